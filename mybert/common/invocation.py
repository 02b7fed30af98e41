"""How the running command was called: in a shell, or as a function of `mybert`."""

from contextvars import ContextVar

called_in_python: ContextVar[bool] = ContextVar("called_in_python", default=False)


def resuming_call(stage: str) -> str:
    """The call that continues an interrupted run of `stage`, as the user writes it."""
    return f"mybert.{stage}(…, resume=True)" if called_in_python.get() else f"mybert {stage} … --resume"
