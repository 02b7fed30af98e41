"""Text on terminals: at most 100 columns, wrapped between words."""

import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, TextIO

_MOST = 100
_QUOTED = re.compile("'[^']*'")
_LEAST = 10  # of a wrapped line beside its indent


def line_width(stream: TextIO | None) -> int:
    """Columns of what is printed to `stream`: those of the terminal, at most 100; 100 in files and pipes."""
    if stream is None or not stream.isatty():
        return _MOST
    columns = os.environ.get("COLUMNS", "")
    if not columns.isdecimal():
        with contextlib.suppress(OSError):
            columns = str(os.get_terminal_size(stream.fileno()).columns)
    return min(int(columns or 0) or _MOST, _MOST)


def wrapped(text: str, width: int) -> str:
    """The text with longer lines wrapped. Commands get backslashes; JSON and commands with quotes stay as they are."""
    return "\n".join(line if len(line) <= width else _wrap(line, width) for line in text.split("\n"))


def _wrap(line: str, width: int) -> str:
    body = line.lstrip(" ")
    is_command = body.startswith("mybert ") and ": " not in _QUOTED.sub("", body)
    if body.startswith(("{", "[")) or (is_command and _QUOTED.search(body)):  # a break may be inside of the quotes
        return line
    indent = " " * (len(line) - len(body))
    lines = textwrap.wrap(
        body,
        max(width - len(indent) - 2, _LEAST),
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return (" \\\n" if is_command else "\n").join(indent + part for part in lines)


class _Wrapping:
    """A terminal whose long lines are wrapped, except those with control characters."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(text if "\x1b" in text or "\r" in text else wrapped(text, line_width(self._stream)))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def whole_words() -> Iterator[None]:
    """Wraps the long lines that this block prints on a terminal."""
    with contextlib.ExitStack() as stack:
        for stream, redirect in ((sys.stdout, contextlib.redirect_stdout), (sys.stderr, contextlib.redirect_stderr)):
            if stream is not None and stream.isatty():
                stack.enter_context(redirect(_Wrapping(stream)))
        yield
