"""Distillation of a teacher into a smaller encoder: `mybert distill`."""
