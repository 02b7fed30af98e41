"""HTTP service of a checkpoint: `mybert serve`."""
