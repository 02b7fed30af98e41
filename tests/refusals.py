"""Mistakes of users: what the one line says that a command prints before it ends."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mybert import cli


def _contents(folder: Path) -> dict[Path, bytes | bool]:
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def assert_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Callable:
    """A function from the words of a command, which is run in `tmp_path`, and a message.

    The command must end with exit status 2, without a traceback, print `message` in the last line of standard error
    or in one of the reasons listed after it, and change no file. " … " in a message stands for anything.
    """

    def check(words: list, message: str) -> None:
        monkeypatch.chdir(tmp_path)
        before = _contents(tmp_path)
        assert cli.main([*map(str, words)]) == 2
        output, errors = capsys.readouterr()
        start = errors.rindex(f"mybert {words[0]}: error: ")
        _, *reasons = errors[start:].splitlines()
        assert all(reason.startswith("  - ") for reason in reasons) and "Traceback" not in output + errors, errors
        assert re.search(".*".join(map(re.escape, message.split(" … "))), errors[start:]), errors[start:]
        assert _contents(tmp_path) == before

    return check
