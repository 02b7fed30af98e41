"""Text to pretraining examples: `mybert tokenizer` and `mybert corpus`."""
