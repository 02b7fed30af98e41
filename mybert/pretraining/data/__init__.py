"""Batches for pretraining: masking, sampling, collation."""
