"""Checkpoint + labelled rows → a model with one head."""
