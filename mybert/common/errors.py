"""Errors, the words of their messages, and what the running command has warned of."""

import contextlib
import difflib
import functools
import itertools
import logging
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any


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
        package = (error.name or str(error)).split(".")[0]
        raise UserError(f"{user} needs {package}: pip install 'mybert[{extra}]'") from error


_LONGEST = 300
_JOINER = re.compile(r"(?<=\S)[\u200c\u200d](?=\S)")  # inside words of Persian or Hindi, and in emoji


NOT_FINITE = "its weights are damaged, or its training has failed; copy it again, or train it with a lower rate"
"""Why a model computes NaN or infinity, and the remedy."""


def cause(error: BaseException) -> str:
    """The message of an exception as one line, preceded by its type unless it is an OSError or ValueError."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    message = " ".join(str(error).split())[:_LONGEST]
    if message and isinstance(error, OSError | ValueError):
        return message
    return f"{type(error).__name__}: {message}".rstrip(": ")


def short(value: Any, longest: int = 200) -> str:
    """`repr(value)`, truncated to `longest` characters."""
    shown = repr(value)
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


def short_list(names: Iterable[str], longest: int = 80) -> str:
    """The first twenty names, separated by commas, with an ellipsis if there are more.

    Args:
        longest: characters of a name; the rest is an ellipsis. A shortened path names nothing: give it more.
    """
    lines = (visible(name) for name in itertools.islice(names, 21))
    first = [line if len(line) <= longest else f"{line[:longest]}…" for line in lines]
    return ", ".join(first[:20] + ["…"] * (len(first) > 20))


def excerpt(text: str, longest: int) -> str:
    """At most `longest` characters from the beginning of a text; whole words, if it has spaces there."""
    if len(text) <= longest:
        return text
    words = text[: longest + 1].rpartition(" ")[0]
    return words if len(words) > longest // 2 else text[:longest]


def visible(name: str) -> str:
    """The name as it is, or as a Python literal if it has spaces or characters that cannot be seen: 'sport '."""
    seen = _JOINER.sub("", name)
    return name if seen.isprintable() and seen == " ".join(seen.split()) else repr(name)


def nearest_name(name: str, names: Iterable[str]) -> str:
    """` (did you mean 'NAME'?)` with the most similar of `names`, or "" if none is similar."""
    nearest = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {nearest[0]!r}?)" if nearest else ""


def did_you_mean(name: str) -> str:
    """`; did you mean NAME?` with the most similar name in the same folder, or "" if there is none."""
    path = Path(name)
    try:
        beside = [other.name for other in itertools.islice(path.parent.iterdir(), 10_000) if other.name != path.name]
    except (OSError, ValueError):
        return ""
    nearest = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.7)
    return f"; did you mean {path.parent / nearest[0]}?" if nearest else ""


called_in_python: ContextVar[bool] = ContextVar("called_in_python", default=False)

warn_once = functools.cache(logging.getLogger(__name__).warning)
"""Logs a warning once in a command: `mybert pretrain --text` finds and reads its inputs several times."""


command_line: ContextVar[Sequence[str]] = ContextVar("command_line", default=())
"""The words after `mybert` that started the running command."""


def resuming_call(stage: str) -> str:
    """The call that continues an interrupted run of `stage`: of a command all its words, quoted for a shell."""
    words = [word for word in command_line.get() if word not in ("--resume", "--overwrite")]
    if called_in_python.get() or not words:
        return f"mybert.{stage}(…, resume=True)"
    return quoted_command("mybert", *words, "--resume")


def quoted_command(*words: str) -> str:
    """A command with its words quoted for the shell of this system."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
