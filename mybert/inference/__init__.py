"""What the code of a model uses where this package is installed: faster operations, and checks of arguments.

Nothing here imports `modeling_mybert`, since a checkpoint brings classes of its own.
"""

from mybert.inference import checks, faster

INTERFACE = 2
"""Raised when a function here takes other arguments: code of older checkpoints then computes without the package."""

__all__ = ["INTERFACE", "checks", "faster"]
