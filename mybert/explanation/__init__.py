"""Explanations: the words of a row that a prediction depends on."""
