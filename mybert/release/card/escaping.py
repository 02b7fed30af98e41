"""Strings of other people's making, put into Markdown and YAML where they can neither end nor begin anything."""

import re
import unicodedata

from mybert.common.tables import format_cell

# What means something anywhere in a line; at its start; and what GitHub's dialect makes links of.
_MARKUP = re.compile(r"([\\`*_\[\]()#!|~$@{}]|^[-+=]|(?<=^\d)[.)](?=\s)|:(?=//)|(?<=www)\.)")
_LONGEST = 300


def one_line(text) -> str:
    """`text` without line ends, control and direction characters, cut to a length that a card can bear."""
    line = " ".join(str(text).split())
    line = "".join(c for c in line if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def in_markdown(value) -> str:
    """A number as in our tables; a string as itself, whatever Markdown and HTML would make of it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return format_cell(value)
    text = one_line(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(r"\\\1", text)


def in_metadata(value):
    """A value for the YAML block: strings in one line; lists and numbers as they are."""
    if isinstance(value, list):
        return [in_metadata(item) for item in value]
    return one_line(value) if isinstance(value, str) else value
