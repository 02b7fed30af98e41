"""Examples → pretrained checkpoint: masking, batching, training, evaluation."""
