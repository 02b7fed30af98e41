"""Faster computation on CPUs: the operations that `modeling_mybert` and the code of checkpoints call where it exists.

Nothing here imports `modeling_mybert`, since a checkpoint brings classes of its own. The results agree to rounding.
"""

from mybert.inference.cpu.attention import attend, attend_rows
from mybert.inference.cpu.elementwise import cross_entropy, dropout, softmax
from mybert.inference.cpu.int8 import use_int8
from mybert.inference.cpu.onednn import linear
from mybert.inference.cpu.prepacked import PrepackedEncoder
from mybert.inference.cpu.rounding import round_up

INTERFACE = 1
"""Raised when a function here takes other arguments: code of older checkpoints then uses PyTorch's operations."""

__all__ = [
    "INTERFACE",
    "PrepackedEncoder",
    "attend",
    "attend_rows",
    "cross_entropy",
    "dropout",
    "linear",
    "round_up",
    "softmax",
    "use_int8",
]
