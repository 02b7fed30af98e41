"""All manifests behind a checkpoint: of its corpus, its tokenizer, its initial model, and their inputs."""

import os
from pathlib import Path

from mybert.artifacts.manifest import MANIFEST, fingerprint, read_manifest

PROVENANCE = "provenance.json"
_FOLDERS = ("corpus", "phase2_corpus", "tokenizer", "model", "checkpoint", "init_from", "teacher")
"""Inputs made by a stage."""


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
        reason = f"has no {MANIFEST}"
        if os.path.isfile(path / MANIFEST):  # stages identify a folder by its manifest, or by all its files
            if entry["sha256"] == fingerprint(path / MANIFEST) or entry["sha256"] == fingerprint(path):
                chain[known] = read_manifest(path)
                _follow(chain[known], f"{known}/", chain, gaps)
                continue
            reason = "has changed since training"
        elif not os.path.exists(path):
            reason = "was not found; relative paths start at the current folder"
        if name in _FOLDERS or name.startswith("model-"):  # `mybert merge` numbers its models
            gaps.append(f"{known} ({entry['path']}) {reason}")
