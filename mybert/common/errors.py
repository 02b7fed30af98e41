"""The exception for user mistakes, and for optional packages that are missing."""

import contextlib
from collections.abc import Iterator


class UserError(ValueError):
    """A mistake in the input, the settings or the environment.

    The message states the expected and the found value (with file, line or field) and the remedy. The command line
    prints it as one line and exits with status 2, without a stack trace. Docstrings list it for the public functions
    only.
    """


@contextlib.contextmanager
def needing(extra: str, user: str) -> Iterator[None]:
    """Tells which extra of MyBERT `user` needs if an import in this block fails."""
    try:
        yield
    except ImportError as error:
        raise UserError(f"{user} needs {error.name}: pip install 'mybert[{extra}]'") from error
