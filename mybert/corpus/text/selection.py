"""Selection of documents: filters, deduplication and near-deduplication."""

import functools
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from mybert.artifacts.engines import run_tasks
from mybert.artifacts.manifest import fingerprint, write_json
from mybert.common.errors import UserError, needing
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text.document_store import StoredDocuments, in_tasks, read_stored
from mybert.corpus.text.near_duplicates import without_near_duplicates

_KEPT, _COUNTS = "kept.npy", "kept.json"


def select_documents(stored: StoredDocuments, settings: CorpusSettings) -> tuple[np.ndarray, dict[str, Any]]:
    """Applies filters, then `deduplicate`, then `deduplicate_near`. An interrupted build reads its selection again.

    Returns:
        The ascending indices of the documents that are used, and counts by the reason for which others are not.
    """
    record = stored.folder / _COUNTS
    if record.is_file():
        return np.load(stored.folder / _KEPT), json.loads(record.read_text(encoding="utf-8"))
    kept, filtered = np.arange(len(stored.lengths)), {}
    for name in settings.filter:
        apply = functools.partial(_apply, name=name, place=os.getcwd(), folder=str(stored.folder))
        good = np.concatenate(run_tasks(apply, in_tasks(kept, stored.lengths[kept]), settings, name))
        filtered[name] = int((~good).sum())
        kept = kept[good]
    if not len(kept):
        raise UserError(
            f"--filter {' '.join(settings.filter)}: no document is left of {len(stored.lengths):,}; "
            "it must return True for those to keep"
        )
    firsts = np.unique(stored.identities[kept], return_index=True)[1]
    duplicates = len(kept) - len(firsts)
    if settings.removes_duplicates:
        kept = kept[np.sort(firsts)]
    near = 0
    if settings.deduplicate_near:
        unique = without_near_duplicates(stored, kept, settings)
        near, kept = len(kept) - len(unique), unique
    counts = {
        "documents": len(kept),
        "characters": int(stored.lengths[kept].sum()),
        "documents_duplicate": duplicates,
        "documents_filtered": filtered,
        "documents_near_duplicate": near,
    }
    np.save(stored.folder / _KEPT, kept)
    write_json(record, counts)
    return kept, counts


def require_selectors(settings: CorpusSettings) -> dict[str, str]:
    """Imports filters and the package of `deduplicate_near`, so that a mistake is found before documents are read.

    Returns:
        The fingerprint of each filter's module.
    """
    if settings.deduplicate_near:
        with needing("dedup", "--deduplicate-near"):
            import datasketch  # noqa: F401
    fingerprints = {}
    for name in settings.filter:
        load_filter(name, os.getcwd())
        file = getattr(sys.modules[name.partition(":")[0]], "__file__", None)
        fingerprints[name] = fingerprint(file) if file else ""
    return fingerprints


def _apply(documents: np.ndarray, *, name: str, place: str, folder: str) -> np.ndarray:
    """(documents,) bool: the filter's result for each."""
    function = load_filter(name, place)
    return np.array([_keeps(function, name, text) for text in read_stored(folder, documents)], dtype=bool)


def _keeps(function: Callable[[str], bool], name: str, text: str) -> bool:
    beginning = f"the document that begins {text[:60]!r}"
    try:
        answer = function(text)
    except (Exception, SystemExit) as error:  # of the user's own code
        raise UserError(f"--filter {name} failed at {beginning}: {_reason(error)}") from error
    if not isinstance(answer, (bool, np.bool_)):
        raise UserError(f"--filter {name} must return True or False; it returned {answer!r} for {beginning}")
    return bool(answer)


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


@functools.cache
def load_filter(name: str, place: str) -> Callable[[str], bool]:
    """Imports `package.module:function`, also from the folder `place`."""
    module, _, function = name.partition(":")
    if place not in sys.path:
        sys.path.append(place)
    try:
        loaded = getattr(importlib.import_module(module), function, None)
    except (Exception, SystemExit) as error:  # of the user's own code
        raise UserError(f"--filter {name}: {module} cannot be imported ({_reason(error)})") from error
    if not callable(loaded):
        raise UserError(f"--filter {name}: {module} has no function {function}")
    return loaded
