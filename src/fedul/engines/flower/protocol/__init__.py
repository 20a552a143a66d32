"""Messages between coordinator and sites, and what they agree on."""
