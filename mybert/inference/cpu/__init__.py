"""Faster operations for CPUs; the results agree to rounding."""

from mybert.inference.cpu.attention import attend, attend_rows
from mybert.inference.cpu.elementwise import cross_entropy, dropout, softmax
from mybert.inference.cpu.int8 import use_int8
from mybert.inference.cpu.onednn import linear, round_up
from mybert.inference.cpu.prepacked import optimize_for_inference

__all__ = [
    "attend",
    "attend_rows",
    "cross_entropy",
    "dropout",
    "linear",
    "optimize_for_inference",
    "round_up",
    "softmax",
    "use_int8",
]
