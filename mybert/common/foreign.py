"""What others wrote and others say: JSON of any shape, and errors of other libraries in one line."""

import difflib
import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

_LONGEST = 300


def parse_json(content: str | bytes, unique: bool = False) -> Any:
    """`json.loads`, but whatever is no JSON raises ValueError, which says where: also what is too much for Python.

    Args:
        unique: whether an object that has a name twice raises it too, where json takes the last value.
    """
    try:
        if isinstance(content, bytes):  # as json itself does it
            content = content.decode(json.detect_encoding(content), "surrogatepass")
        content = content.rstrip()  # or a line that is cut off ends at the first character of the next
        return json.loads(content, object_pairs_hook=_unique if unique else None)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in error.doc else ""
        raise ValueError(f"{error.msg.removesuffix(' at')} at {line}character {error.colno}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except ValueError as error:
        raise ValueError("a number of too many digits" if "int_max_str_digits" in str(error) else error) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{short(next(name for name in names if names.count(name) > 1))} is there twice")
    return found


def is_json(content: str | bytes) -> bool:
    """Whether `parse_json` reads it."""
    try:
        parse_json(content)
    except ValueError:
        return False
    return True


def load_saved_dataset(folder: str) -> "Dataset | DatasetDict":
    """`datasets.load_from_disk`, with its tables looked through: reading a damaged one may end the process.

    Raises:
        Exception: of any kind, where the folder is not what `save_to_disk` left.
    """
    import datasets

    loaded = datasets.load_from_disk(folder)
    for data in loaded.values() if isinstance(loaded, datasets.DatasetDict) else [loaded]:
        data.data.table.validate(full=True)
    return loaded


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


def cause(error: BaseException) -> str:
    """What an exception says, as one line; its kind too, where the words alone mean nothing."""
    said = " ".join(str(error).split())[:_LONGEST]
    return said if said and isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {said}".rstrip(": ")


def short(text: Any, longest: int = 80) -> str:
    """`text` as it is in Python, cut where it is long."""
    shown = repr(text)
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


def short_list(names: Iterable[str]) -> str:
    """The first of many names, one after the other, in one line."""
    first = [" ".join(name.split())[:80] for name in itertools.islice(names, 21)]
    return ", ".join(first[:20] + ["…"] * (len(first) > 20))
