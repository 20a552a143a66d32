"""The simulators that `speed.py` compares: each is a program that runs rounds of a `Workload` on request."""
