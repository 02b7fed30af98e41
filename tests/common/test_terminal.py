"""Text on terminals."""

import contextlib
import io

import pytest

from mybert.common import terminal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("columns", "width"), [(80, 80), (100, 100), (250, 100)])
def test_lines_are_wrapped_between_words_at_the_width_of_the_terminal_or_100(monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", str(columns))
    command = "mybert evaluate " + " ".join(f"--option-{i} value-{i}" for i in range(12))
    path = f"open /{'long/' * 60}report.html in a browser"
    text = f"  {'some words ' * 30}\n{command}\n{path}\nshort"
    screen, file = Terminal(), io.StringIO()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(file), terminal.whole_words():
        print(text)
        print('{"text": "' + "a " * 200 + '"}')
        print("\x1b[1m" + "b " * 200)
        print("error " * 50, file=terminal.sys.stderr)
    shown = screen.getvalue()
    *lines, _, _ = shown.splitlines()
    assert all(len(line) <= width for line in lines if "long/" not in line)
    assert shown.replace(" \\\n", " ").split() == f'{text}\n{{"text": "{"a " * 200}"}}\n\x1b[1m{"b " * 200}'.split()
    assert " \\\n  --option" in shown or " \\\n  value" in shown
    assert sum("a a" in line for line in shown.splitlines()) == sum("b b" in line for line in shown.splitlines()) == 1
    assert file.getvalue() == "error " * 50 + "\n"


def test_a_line_whose_indent_is_as_wide_as_the_terminal_is_wrapped():
    assert terminal.wrapped(f"{' ' * 20}some words here", 18).split() == ["some", "words", "here"]


def test_a_command_with_quotes_is_not_wrapped_inside_of_them():
    line = f"  mybert finetune --train '{'my: rows ' * 30}.csv' --resume"
    assert terminal.wrapped(line, 80) == line


def test_files_and_pipes_have_100_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert terminal.line_width(io.StringIO()) == terminal.line_width(None) == 100
    assert terminal.line_width(Terminal()) == 80
    monkeypatch.setenv("COLUMNS", "")
    assert terminal.line_width(Terminal()) == 100  # it has no size
