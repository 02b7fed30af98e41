"""Records of a run: the manifests behind a checkpoint, and what is published of them.

Published records have no folders, and no names of the user's files unless asked.
"""

import hashlib
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from mybert.artifacts.manifest import MANIFEST, behind, fingerprint, is_model, read_manifest
from mybert.release.hub.secret_scan import file_name, without_folders

PROVENANCE = "provenance.json"
_FOLDERS = ("corpus", "tokenizer", "init_from", "teacher")
"""Inputs made by a stage, beside models."""
NOT_NAMED = "(not named)"
"""Stands for a text in published settings and for the name of a source."""
_PUBLIC_TEXTS = (
    *("attn_implementation", "casing", "device", "dtype", "errors", "eval_strategy", "initial_weights", "language"),
    *("length_schedule", "long_texts", "losses", "lr_scheduler_type", "method", "metric", "metric_for_best_model"),
    *("negatives", "on_nonfinite", "optim", "optimizer", "pooling", "problem", "save_strategy", "size", "task"),
    *("time_budget", "train_sampling_strategy"),
)
"""Settings whose texts are published; those of others may name files, columns or labels."""
_PUBLIC_FACTS = (
    *("architecture", "created", "gpu", "group", "hardware", "job", "metric", "name", "sha256", "source", "stage"),
    *("task", "test", "piece", "pieces"),  # the last two are tokens of the published vocabulary
)
"""Other entries whose texts are published, beside those of `versions`; texts of all others may quote rows."""
_VERSIONS = "versions"
_SETTINGS = ("settings", "choices", "training_arguments")
_QUOTED = ("giveaway_words", "examples", "neighbours")  # words, rows and files of the user
_ORIGINS = ("_name_or_path", "name_or_path")
_NUMBERED = re.compile(r"(input|replay|general|task_data)-\d+")
_SHARE = re.compile(r"^\d+% of ")


def manifest_chain(folder: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
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
            gaps.append(f"{name} ({entry['path']}) {reason}; the card does not describe its training data")
        return False

    return {name: manifest for name, _, manifest in behind(read_manifest(folder), is_known)}, gaps


@dataclass(frozen=True)
class PublicRecords:
    """Makes the published form of manifest.json, results.json and configurations.

    Attributes:
        hub: names of inputs on the Hub, which are published.
        local: names of inputs on this machine that can be found in a text; without a dot or slash they may be words.
        named: whether the names of inputs on this machine are published, without their folders.
        labels: texts that are published although they look like paths.
    """

    hub: Collection[str]
    local: Collection[str]
    named: bool
    labels: Collection[str] = ()

    @classmethod
    def of(cls, manifests: Iterable[dict[str, Any]], named: bool, labels: Collection[str] = ()) -> Self:
        """With the names in these manifests, which hold a fingerprint of all inputs but those on the Hub."""
        inputs = [manifest.get("inputs") for manifest in manifests]
        entries = [entry for some in inputs if isinstance(some, dict) for entry in some.values()]
        known = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("path"), str)]
        local = {entry["path"] for entry in known if "sha256" in entry}
        return cls(
            {entry["path"] for entry in known if "sha256" not in entry},
            {name for name in local if len(name) > 4 and ("." in name or "/" in name)},
            named,
            labels,
        )

    def config(self, config: dict[str, Any]) -> dict[str, Any]:
        """A configuration without the name that it was loaded from, and without folders."""
        return without_folders({key: value for key, value in config.items() if key not in _ORIGINS}, self.labels)

    def record(self, record: dict[str, Any]) -> dict[str, Any]:
        """A manifest or results.json."""
        return without_folders(self._entry("", record), self.labels)

    def _entry(self, key: str, value: Any) -> Any:
        if key == "inputs" and isinstance(value, dict):
            return self._inputs(value)
        if key in _SETTINGS:
            return self._setting(key, value)
        if key == _VERSIONS:
            return value
        if isinstance(value, dict):
            items = {name: item for name, item in value.items() if name not in _QUOTED}
            return {name: self._entry(name, item) for name, item in items.items() if self._is_public(name, item)}
        if isinstance(value, list):
            return [self._entry(key, item) for item in value if self._is_public(key, item)]
        if not isinstance(value, str) or value in self.labels:
            return value
        if key == "source":  # the name of rows, or of a share of them, such as "10% of train.csv"
            name = _SHARE.sub("", value)
            return value if name in self.hub else f"{value.removesuffix(name)}{self._named(name)}"
        for name in sorted(self.local, key=len, reverse=True):  # a path before the name of its file
            value = value.replace(name, self._named(name))
        return value

    def _is_public(self, key: str, value: Any) -> bool:
        return not isinstance(value, str) or key in _PUBLIC_FACTS or value in self.labels

    def _inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Numbered inputs on this machine as their number, size and one hash of all, unless they are named."""
        public_inputs: dict[str, dict[str, Any]] = {}
        together: dict[str, list[dict[str, Any]]] = {}
        for key, entry in inputs.items():
            if not isinstance(entry, dict):
                continue
            name, facts = entry.get("path"), {part: entry[part] for part in ("sha256", "bytes") if part in entry}
            if isinstance(name, str) and ("sha256" not in entry or self.named):
                public_inputs[key] = {"path": name if "sha256" not in entry else file_name(name), **facts}
            elif numbered := _NUMBERED.fullmatch(key):
                together.setdefault(numbered[1], []).append(facts)
            else:
                public_inputs[key] = facts
        for kind, entries in together.items():
            hashes = "".join(f"{facts.get('sha256')}\n" for facts in entries)
            sizes = [facts["bytes"] for facts in entries if isinstance(facts.get("bytes"), int)]
            whole = {"sources": len(entries), "sha256": hashlib.sha256(hashes.encode("utf-8", "replace")).hexdigest()}
            public_inputs[f"{kind}-sources"] = whole | ({"bytes": sum(sizes)} if sizes else {})
        return public_inputs

    def _setting(self, key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._setting(name, item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._setting(key, item) for item in value]
        return NOT_NAMED if isinstance(value, str) and key not in _PUBLIC_TEXTS and value not in self.hub else value

    def _named(self, name: str) -> str:
        return file_name(name) if self.named else NOT_NAMED
