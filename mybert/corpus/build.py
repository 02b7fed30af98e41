"""`mybert corpus`: documents to pretraining examples on disk."""

import copy
import functools
import hashlib
import importlib.metadata
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mybert.artifacts.engines import run_tasks
from mybert.artifacts.jobs import finished_run, sizes_and_times, work_folder
from mybert.artifacts.manifest import fingerprint, identity, write_manifest
from mybert.artifacts.run_fingerprint import RunFingerprint
from mybert.common.errors import UserError
from mybert.common.quantities import counted
from mybert.corpus.disk_budget import SAMPLE_CHARACTERS, SAMPLE_DOCUMENTS, require_room
from mybert.corpus.examples.shards import Shard, make_shard, plan_shards, save_shards
from mybert.corpus.examples.text_encoding import PlainTokenizer, load_wordpiece, plain_tokenizer
from mybert.corpus.report import print_report, summarize
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.statistics import write_statistics
from mybert.corpus.text.document_store import StoredDocuments, held_out, open_stored, read_stored, store_documents
from mybert.corpus.text.selection import require_selectors, select_documents
from mybert.io.documents import read_documents
from mybert.io.sources import Source, describe_sources, find_sources
from tokenization import MyBertTokenizer

_MAX_UNKNOWN = 0.5
_MAX_LENGTH = 128
"""Default of --max-length, unless the tokenizer has a smaller limit."""


def build_corpus(settings: CorpusSettings) -> Path:
    """Builds the examples and prints a summary.

    Returns:
        The folder: a `datasets` data set of the training examples, `validation/` with the examples of held-out
        documents (if any), `tokenizer/`, `manifest.json` and `results.json`. The same settings and
        inputs give the same bytes (times in the manifest apart) for any number of processes, either
        engine, and after any number of interruptions.

    Raises:
        UserError: the output exists, an input, its text or the tokenizer cannot be used, or the disk is too small.
    """
    began = time.monotonic()
    sources = find_sources(settings.inputs)
    tokenizer = load_wordpiece(settings.tokenizer)
    is_limit = settings.max_length is None and tokenizer.model_max_length < _MAX_LENGTH
    settings = copy.copy(settings)  # which keeps `given`
    settings.max_length = settings.max_length or min(_MAX_LENGTH, tokenizer.model_max_length)
    job = _describe_job(settings, sources, tokenizer)
    if finished_run(settings, job):
        return Path(settings.output)
    staged = work_folder(
        settings,
        job,
        lambda scratch: open_stored(scratch) is not None,
        stage="corpus",
        inputs=[*settings.inputs, settings.tokenizer],
    )
    with staged as (folder, scratch):
        tokenizer.save_pretrained(folder / "tokenizer")
        left = open_stored(scratch)
        stored = left or _store(scratch, settings)
        chosen, counts = select_documents(stored, settings)
        shards = _plan(stored, chosen, folder / "tokenizer", settings, is_new=left is None)
        parts = _make_shards(shards, scratch, folder / "tokenizer", settings)
        if not any(record["counts"]["examples"] for record in parts["training"]):
            reason = "no tokens; check the inputs and --text-column"
            if settings.nsp and settings.negatives == "same-document":
                reason = "no tokens or no second sentence; use --negatives other-document or --no-nsp"
            raise UserError(f"{counted(len(chosen), 'document')} without an example: {reason}")
        # everything that determines the examples
        key = json.dumps([job.choices, stored.sha256, fingerprint(folder / "tokenizer")], sort_keys=True)
        for part, records in parts.items():
            if any(record["counts"]["examples"] for record in records):
                paths = [scratch / f"{shard.name}.arrow" for shard in shards if shard.part == part]
                save_shards(paths, folder if part == "training" else folder / part, f"{key} {part}")
        held = sum(shard.documents for shard in shards if shard.part == "validation")
        facts = summarize(parts, stored.counts | counts | {"documents_held_out": held}, stored.skipped)
        write_manifest(
            folder,
            "corpus",
            settings=settings,
            inputs={
                **describe_sources(sources),
                "documents": {"sha256": stored.sha256},  # the only fingerprint of inputs that are not on this disk
                # the path of the given folder, whose manifest is looked up later; the copy has other bytes
                "tokenizer": {"sha256": fingerprint(folder / "tokenizer"), **identity(settings.tokenizer)},
            },
            job=job.digest,
            seconds=round(time.monotonic() - began, 1),
            **facts,
        )
        write_statistics(folder, stored.folder, chosen, parts, settings)
    print_report(facts, settings, is_limit)
    return Path(settings.output)


def _describe_job(settings: CorpusSettings, sources: Sequence[Source], tokenizer: MyBertTokenizer) -> RunFingerprint:
    """Everything that determines the result. Files are described by name, size and time, without reading them."""
    inputs = {
        "inputs": [[source.name, sizes_and_times(source.name)] for source in sources],
        "tokenizer": {"sha256": hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()},
    }
    others = {"filters": require_selectors(settings), "sentencex": importlib.metadata.version("sentencex")}
    return RunFingerprint.of(settings, inputs, decisive=others)


def _store(scratch: Path, settings: CorpusSettings) -> StoredDocuments:
    skipped: Counter[str] = Counter()
    documents = read_documents(
        settings.inputs,
        text_column=settings.text_column,
        errors=settings.errors,
        plain_text="file" if settings.document_per_file else "paragraphs",
        skipped=skipped,
    )
    return store_documents(documents, scratch, settings, skipped)


def _plan(
    stored: StoredDocuments, chosen: np.ndarray, folder: Path, settings: CorpusSettings, *, is_new: bool
) -> list[Shard]:
    """Plans the shards and writes the documents of each part, in order, beside the stored documents.

    `chosen` are the indices of the documents that are used, `folder` holds the tokenizer. No shard of an earlier run
    exists if `is_new`.
    """
    identities = stored.identities[chosen]
    validation, training = held_out(identities, settings)
    tokenizer = plain_tokenizer(str(folder))  # loaded before processes are forked
    _check_fit(stored.folder, chosen[training], tokenizer, settings.tokenizer)
    if is_new:
        require_room(stored, chosen, tokenizer, settings)
    shards = []
    for part, order, dupes in (("validation", validation, 1), ("training", training, settings.dupe_factor)):
        np.save(stored.folder / f"{part}.npy", np.stack([chosen[order], identities[order]]))
        shards += plan_shards(part, stored.lengths[chosen[order]], dupes)
    return shards


def _make_shards(
    shards: list[Shard], scratch: Path, tokenizer: Path, settings: CorpusSettings
) -> dict[str, list[dict[str, Any]]]:
    """Returns the records of the shards, by part."""
    make = functools.partial(make_shard, folder=str(scratch), tokenizer=str(tokenizer), settings=settings)
    records = run_tasks(make, shards, settings, "examples")
    parts: dict[str, list[dict[str, Any]]] = {"training": []}
    for shard, record in zip(shards, records, strict=True):
        parts.setdefault(shard.part, []).append(record)
    return parts


def _check_fit(folder: Path, documents: np.ndarray, tokenizer: PlainTokenizer, name: str) -> None:
    """Raises if most tokens of the first documents are [UNK]."""
    sample = [text[:SAMPLE_CHARACTERS] for text in read_stored(folder, documents[:SAMPLE_DOCUMENTS])]
    token_ids = [encoding.ids for encoding in tokenizer.backend.encode_batch_fast(sample, add_special_tokens=False)]
    total = sum(map(len, token_ids))
    unknown = sum(ids.count(tokenizer.unk_id) for ids in token_ids)
    if unknown > _MAX_UNKNOWN * total:
        raise UserError(
            f"the tokenizer {name} does not fit these documents: {unknown / total:.0%} of their tokens are [UNK]; "
            "train one on them by `mybert tokenizer`"
        )
