"""Labelled rows: their formats, columns, labels and tags, whatever the task."""
