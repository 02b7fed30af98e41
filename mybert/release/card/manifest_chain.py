"""The manifests behind a checkpoint: of its corpus, its tokenizer, the model it started from, and of theirs."""

import os
from pathlib import Path

from mybert.common.manifest import MANIFEST, fingerprint, read_manifest

PROVENANCE = "provenance.json"
_FOLDERS = ("corpus", "phase2_corpus", "tokenizer", "model", "checkpoint", "init_from")  # inputs made by a stage


def manifest_chain(folder: Path) -> tuple[dict[str, dict], list[str]]:
    """Follows the inputs of a manifest to their manifests.

    Returns:
        Manifests by the inputs that lead to them, for example `corpus`, or `model/corpus` for the corpus of the model
        that fine-tuning started from; and a reason for each input whose manifest was not found.
    """
    chain: dict[str, dict] = {}
    gaps: list[str] = []
    _follow(read_manifest(folder), "", chain, gaps)
    return chain, gaps


def _follow(manifest: dict, prefix: str, chain: dict[str, dict], gaps: list[str]) -> None:
    inputs = manifest.get("inputs")
    for name, entry in (inputs if isinstance(inputs, dict) else {}).items():
        if not isinstance(entry, dict) or not isinstance(entry.get("path"), str) or "sha256" not in entry:
            continue  # a data set or model of the Hub
        path, known = Path(entry["path"]), f"{prefix}{name}"
        if os.path.isfile(path / MANIFEST) and _is_same(path, entry["sha256"]):
            chain[known] = read_manifest(path)
            _follow(chain[known], f"{known}/", chain, gaps)
        elif name in _FOLDERS:
            gaps.append(f"{known} ({entry['path']}) {_reason(path)}")


def _reason(path: Path) -> str:
    if not os.path.exists(path):
        return "was not found; relative paths start at the current folder"
    return "has changed since training" if os.path.isfile(path / MANIFEST) else f"has no {MANIFEST}"


def _is_same(folder: Path, sha256: str) -> bool:
    """Stages identify a folder by its manifest, or by all its files."""
    return sha256 in (fingerprint(folder / MANIFEST), fingerprint(folder))
