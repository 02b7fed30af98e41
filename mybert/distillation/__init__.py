"""Teacher and corpus → a smaller pretrained encoder: `mybert distill`."""
