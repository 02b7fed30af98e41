"""Checks of stages. Each takes the files of a stage and yields its findings."""
