"""JSON files and lines."""

import json
from pathlib import Path


def change_json(path: Path, **values) -> None:
    """Sets entries of the object in a file."""
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def write_lines(path: Path, rows: list[dict]) -> Path:
    """Writes a file of JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_lines(lines: Path | str) -> list[dict]:
    """The objects in a file or text of JSON lines."""
    text = lines.read_text(encoding="utf-8") if isinstance(lines, Path) else lines
    return [json.loads(line) for line in text.splitlines()]
