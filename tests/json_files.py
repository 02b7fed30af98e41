"""JSON files and lines, and files of other content."""

import json
from pathlib import Path


def change_json(path: Path, **values) -> None:
    """Sets entries of the object in a file."""
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def write_lines(path: Path, rows: list[dict]) -> Path:
    """Writes a file of JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_files(folder: Path, files: dict) -> None:
    """Writes files by their names: lists as JSON lines or JSON, text, bytes, or what a function writes."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if callable(content):
            content(path)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, list) and path.suffix == ".jsonl":
            write_lines(path, content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def read_lines(lines: Path | str) -> list[dict]:
    """The objects in a file or text of JSON lines."""
    text = lines.read_text(encoding="utf-8") if isinstance(lines, Path) else lines
    return [json.loads(line) for line in text.splitlines()]
