"""The simulation engine: all clients run in this process."""
