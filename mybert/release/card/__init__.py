"""The model card, rendered from manifests and results."""
