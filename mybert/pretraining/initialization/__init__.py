"""The weights that pretraining starts from."""
