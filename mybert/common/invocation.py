"""The running command: whether it was called in a shell or as a function of `mybert`, and what it has warned of."""

import functools
import logging
from contextvars import ContextVar

called_in_python: ContextVar[bool] = ContextVar("called_in_python", default=False)

warn_once = functools.cache(logging.getLogger(__name__).warning)
"""Logs a warning once in a command: `mybert pretrain --text` finds and reads its inputs several times."""


def resuming_call(stage: str) -> str:
    """The call that continues an interrupted run of `stage`, as the user writes it."""
    return f"mybert.{stage}(…, resume=True)" if called_in_python.get() else f"mybert {stage} … --resume"
