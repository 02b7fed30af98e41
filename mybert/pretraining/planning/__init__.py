"""Cost of a pretraining run: parameters, FLOPs, memory, time."""
