"""Measurements: what the book-keeping costs, and the figures that a replay must reach."""
