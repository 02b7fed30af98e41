"""Text on terminals."""

import io

from mybert.common import tables
from mybert.common.errors import short_list


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_files_and_pipes_have_100_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert tables.line_width(io.StringIO()) == tables.line_width(None) == 100
    assert tables.line_width(Terminal()) == 80
    monkeypatch.setenv("COLUMNS", "")
    assert tables.line_width(Terminal()) == 100  # it has no size


def test_long_names_in_a_list_are_cut():
    assert short_list(["a" * 81, "b" * 80]) == f"{'a' * 80}…, {'b' * 80}"
