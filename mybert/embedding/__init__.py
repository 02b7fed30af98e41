"""Vectors of texts and words: `mybert embed` and `mybert search`."""
