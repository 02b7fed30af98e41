"""Paths given by users: safe checks and suggestions."""

import difflib
import itertools
from pathlib import Path


def is_file(path: Path) -> bool:
    """As `path.is_file()`; False, and no exception, for what cannot be the name of one."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_there(path: Path) -> bool:
    """As `path.exists()`; False, and no exception, for what cannot be the name of anything."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def did_you_mean(name: str) -> str:
    """What to add to the message that there is no such path: the one beside it whose name is nearest, if any is."""
    path = Path(name)
    try:
        beside = [other.name for other in itertools.islice(path.parent.iterdir(), 10_000) if other.name != path.name]
    except (OSError, ValueError):
        return ""
    nearest = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.7)
    return f"; did you mean {path.parent / nearest[0]}?" if nearest else ""
