"""Checkpoints that are whole: written aside, sealed with the hashes of their files, renamed; checked before use."""

import os
import re
from pathlib import Path

from mybert.common.error_messages import short
from mybert.common.json_io import parse_json
from mybert.common.manifest import fingerprint, write_json

SEAL = "checkpoint.json"
"""Its presence says that a checkpoint is whole; it holds the size and hash of every other file."""
PARTIAL = ".checkpoint.partial"
"""Where a checkpoint stands until it is whole; what a killed process leaves there is never looked at."""
_NAME = re.compile(r"checkpoint-(\d+)")


def seal(folder: Path) -> None:
    """Writes the seal of a finished checkpoint, once all of its bytes are on the disk and not only on their way."""
    files = {}
    for file in _files(folder):
        with file.open("rb+") as stream:
            os.fsync(stream.fileno())
        files[file.relative_to(folder).as_posix()] = {"bytes": file.stat().st_size, "sha256": fingerprint(file)}
    write_json(folder / SEAL, {"files": files})


def find_damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, naming the file, or None."""
    try:
        found = parse_json((folder / SEAL).read_bytes())["files"]
        expected = {name: (int(facts["bytes"]), facts["sha256"]) for name, facts in found.items()}
    except FileNotFoundError:
        return f"no {SEAL}: it was not saved to its end"
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return f"{SEAL} is damaged"
    for name, (wanted, _) in expected.items():
        file = folder / name
        if not os.path.isfile(file):
            return f"{short(name)[1:-1]} is missing"
        if (size := file.stat().st_size) != wanted:
            return f"{name} has {size:,} bytes instead of {wanted:,}"
    for name, (_, sha256) in expected.items():  # reading everything comes last
        if fingerprint(folder / name) != sha256:
            return f"{name} has other content than was saved (SHA-256 differs)"
    return None


def last_whole(output: Path) -> tuple[Path | None, dict[Path, str]]:
    """
    Returns:
        The newest undamaged checkpoint in the folder `output`, if any; and what is wrong with each newer one.
    """
    named = [(int(match[1]), path) for path in output.glob("checkpoint-*") if (match := _NAME.fullmatch(path.name))]
    damaged = {}
    for _, path in sorted(named, reverse=True):
        if (damage := find_damage(path)) is None:
            return path, damaged
        damaged[path] = damage
    return None, damaged


def set_aside(checkpoint: Path) -> Path:
    """Renames a damaged checkpoint, so that neither resuming nor the limit on their number counts it."""
    number, place = 0, checkpoint.with_name(f"damaged-{checkpoint.name}")
    while place.exists():
        number += 1
        place = checkpoint.with_name(f"damaged-{checkpoint.name}.{number}")
    return checkpoint.rename(place)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SEAL)
