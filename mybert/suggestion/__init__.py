"""Rows worth labelling next."""
