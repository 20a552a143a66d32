"""Evaluation: with the truth of research data (error)."""
