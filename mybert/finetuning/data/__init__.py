"""Labelled rows: loading, validation, summary."""
