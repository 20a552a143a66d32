"""The contestants of `speed.py`: each a program that does rounds of a `Work` when it is told to."""
