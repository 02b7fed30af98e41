"""The fine-tuning tasks, one module each."""
