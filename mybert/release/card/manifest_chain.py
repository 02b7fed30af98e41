"""All manifests behind a checkpoint: of its corpus, its tokenizer, its initial model, and their inputs."""

import os
from pathlib import Path

from mybert.artifacts.manifest import MANIFEST, behind, fingerprint, is_model, read_manifest

PROVENANCE = "provenance.json"
_FOLDERS = ("corpus", "phase2_corpus", "tokenizer", "init_from", "teacher")
"""Inputs made by a stage, beside models."""


def manifest_chain(folder: Path) -> tuple[dict[str, dict], list[str]]:
    """Follows the inputs of a manifest to their manifests.

    Returns:
        Manifests by the inputs that lead to them, for example `corpus`, or `model/corpus` for the corpus of the model
        that fine-tuning started from; and a reason for each input whose manifest was not found.
    """
    gaps: list[str] = []

    def is_known(name: str, entry: dict[str, str]) -> bool:
        if "sha256" not in entry:
            return False  # a data set or model of the Hub
        path, reason = Path(entry["path"]), f"has no {MANIFEST}"
        if os.path.isfile(path / MANIFEST):  # stages identify a folder by its manifest, or by all its files
            if entry["sha256"] == fingerprint(path / MANIFEST) or entry["sha256"] == fingerprint(path):
                return True
            reason = "has changed since training"
        elif not os.path.exists(path):
            reason = "was not found; relative paths start at the current folder"
        if is_model(name) or name.rpartition("/")[2] in _FOLDERS:
            gaps.append(f"{name} ({entry['path']}) {reason}")
        return False

    return {name: manifest for name, _, manifest in behind(read_manifest(folder), is_known)}, gaps
