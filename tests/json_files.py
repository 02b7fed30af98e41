"""Changes of JSON files."""

import json
from pathlib import Path


def change_json(path: Path, **values) -> None:
    """Sets entries of the object in a file."""
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")
