"""Conversion of checkpoints, merging, and publication on the Hub."""
