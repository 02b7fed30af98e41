"""Comparison of runs: which is better, by how much, where, and whether it may be chance."""
