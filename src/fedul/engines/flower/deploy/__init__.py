"""Setting up a federation: app folder, keys, and a federation on loopback."""
