"""Computation with an open checkpoint."""
