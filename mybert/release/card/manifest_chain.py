"""The chain of manifests behind a checkpoint: of its corpus, of the model it started from, and of theirs."""

from pathlib import Path

from mybert.common.manifest import MANIFEST, fingerprint, read_manifest
from mybert.common.paths import is_file

PROVENANCE = "provenance.json"


def provenance(folder: Path) -> dict[str, dict]:
    """Manifests that the one in `folder` leads to, as far as they are on this disk and unchanged since.

    Returns:
        How it was reached → manifest, for example `corpus`, or `model/corpus` for the corpus of the model that a
        fine-tuned one started from.
    """
    found: dict[str, dict] = {}
    _follow(read_manifest(folder), "", found)
    return found


def _follow(manifest: dict, prefix: str, found: dict[str, dict]) -> None:
    inputs = manifest.get("inputs") if isinstance(manifest, dict) else None
    for name, entry in (inputs if isinstance(inputs, dict) else {}).items():
        path = Path(entry["path"]) if isinstance(entry, dict) and isinstance(entry.get("path"), str) else None
        if path is None or not is_file(path / MANIFEST) or not _is_same(path, entry.get("sha256")):
            continue
        found[f"{prefix}{name}"] = read_manifest(path)
        _follow(found[f"{prefix}{name}"], f"{prefix}{name}/", found)


def _is_same(folder: Path, sha256: str | None) -> bool:
    """Stages identify a folder by its manifest, where that identifies the rest, or by all its files."""
    return sha256 is not None and (fingerprint(folder / MANIFEST) == sha256 or fingerprint(folder) == sha256)
