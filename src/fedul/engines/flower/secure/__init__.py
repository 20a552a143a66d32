"""Secure aggregation of everything that sites send: what is summed, the exchanges, and what a site reveals."""
