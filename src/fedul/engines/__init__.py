"""Engines: where clients run. An engine yields the updates of clients; an algorithm aggregates them."""
