"""Escaping of foreign strings for Markdown and YAML."""

import html
import re
import unicodedata
from typing import Any

from mybert.common.tables import format_cell

# Characters with a meaning anywhere in a line, at its start, and in the links of GitHub's dialect.
_MARKUP = re.compile(r"([\\`*_\[\]()#!|~$@{}]|^[-+=]|(?<=^\d)[.)](?=\s)|:(?=//)|(?<=www)\.)")
_LONGEST = 300


def one_line(text: object) -> str:
    """`text` in one line, without control and direction characters, truncated to 300 characters."""
    line = " ".join(str(text).split())
    line = "".join(c for c in line if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def in_markdown(value: object) -> str:
    """A number as in the tables of MyBERT; a string with Markdown and HTML escaped."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return format_cell(value)
    return _MARKUP.sub(r"\\\1", html.escape(one_line(value), quote=False))


def in_metadata(value: Any) -> Any:
    """A value for the YAML block: strings in one line; lists and numbers unchanged."""
    if isinstance(value, list):
        return [in_metadata(item) for item in value]
    return one_line(value) if isinstance(value, str) else value
