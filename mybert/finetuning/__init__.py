"""Checkpoint + labelled rows → a model with one head; its evaluation and its predictions."""
