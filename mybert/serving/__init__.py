"""A checkpoint as an HTTP service: `mybert serve`."""
