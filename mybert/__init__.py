"""How a MyBERT is made, measured and shipped. Nothing in here travels with a checkpoint."""

__version__ = "0.1.0"
