"""Sentences to segment pairs and stored examples."""
