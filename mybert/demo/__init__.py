"""A page in the browser to try models."""
