"""A site of a run on Flower: its data, and its replies to the coordinator."""
