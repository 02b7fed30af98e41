"""Pseudo-log-likelihood of texts under a masked language model: `mybert score`."""
