"""Checks of paths given by users, and suggestions for misspelt ones."""

import difflib
import itertools
from pathlib import Path


def is_file(path: Path) -> bool:
    """`path.is_file()` that returns False for invalid names instead of raising."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_there(path: Path) -> bool:
    """`path.exists()` that returns False for invalid names instead of raising."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def did_you_mean(name: str) -> str:
    """`; did you mean NAME?` with the most similar name in the same folder, or "" if there is none."""
    path = Path(name)
    try:
        beside = [other.name for other in itertools.islice(path.parent.iterdir(), 10_000) if other.name != path.name]
    except (OSError, ValueError):
        return ""
    nearest = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.7)
    return f"; did you mean {path.parent / nearest[0]}?" if nearest else ""
