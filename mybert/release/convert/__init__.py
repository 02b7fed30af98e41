"""Conversion from and to other checkpoint formats."""
