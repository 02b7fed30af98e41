"""Faster operations for CPUs; the results agree to rounding."""

from mybert.inference.cpu.prepacked import optimize_for_inference

__all__ = ["optimize_for_inference"]
