"""Texts → vectors of their words or of themselves."""
