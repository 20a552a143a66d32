"""The coordinator of a run on Flower."""
