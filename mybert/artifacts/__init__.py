"""Outputs of the commands: staging, manifests and resume."""
