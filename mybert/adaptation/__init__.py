"""Domain adaptation: a changed vocabulary, and the model that fits it."""
