"""Inference, scores with confidence intervals, error reports and predictions."""
