"""Labelled rows and their predictions: scores with confidence intervals, errors, suspicious labels."""
