"""`mybert corpus`: documents → pretraining examples on disk."""

import functools
import json
import shutil
import time
from collections import Counter
from pathlib import Path

import numpy as np

from mybert.common.errors import UserError
from mybert.common.manifest import fingerprint, identity, write_manifest
from mybert.common.output_folders import refuse_existing
from mybert.corpus.disk_budget import SAMPLE_CHARACTERS, SAMPLE_DOCUMENTS, expect_room, require_room
from mybert.corpus.examples.engines import run_tasks
from mybert.corpus.examples.shards import Shard, make_shard, plain, plan_shards, save_shards
from mybert.corpus.examples.text_encoding import load_wordpiece, plain_tokenizer
from mybert.corpus.report import print_report, summarize
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text.document_store import StoredDocuments, held_out, open_stored, read_stored, store_documents
from mybert.corpus.text.selection import select_documents
from mybert.corpus.text.sources import describe_sources, find_sources, read_documents
from mybert.corpus.work_folder import describe_job, work_folder

_MOST_UNKNOWN = 0.5


def main(settings: CorpusSettings) -> None:
    print(f"the corpus is in {build_corpus(settings)}")


def build_corpus(settings: CorpusSettings) -> Path:
    """Builds the examples and prints a summary.

    Returns:
        The folder: a `datasets` data set of the training examples, `validation/` with those of held-out documents (if
        any), `tokenizer/` and `manifest.json`. The same settings and inputs give the same bytes, the manifest's times
        apart, for any number of processes, either engine, and however often the build was interrupted and resumed.

    Raises:
        UserError: the output exists, an input, its text or the tokenizer cannot be used, or the disk is too small.
    """
    began = time.monotonic()
    inputs = [*settings.inputs, settings.tokenizer]
    refuse_existing(settings.output, overwrite=settings.overwrite, stage="corpus", inputs=inputs)
    sources = find_sources(settings.inputs)
    tokenizer = load_wordpiece(settings.tokenizer)
    with work_folder(settings, describe_job(settings, sources, tokenizer)) as (folder, scratch):
        stored = open_stored(scratch)
        if stored is None:  # else most of what is needed is there already
            expect_room(sources, plain_tokenizer(tokenizer), settings)
            stored = _store(scratch, settings)
        tokenizer.save_pretrained(folder / "tokenizer")
        chosen = select_documents(stored, settings)
        shards = _plan(stored, chosen.documents, folder / "tokenizer", settings)
        parts = _make_shards(shards, scratch, folder / "tokenizer", settings)
        if not any(record["counts"]["examples"] for record in parts["training"]):
            raise UserError(
                f"no example can be made of these {len(chosen.documents)} documents: they hold no tokens or, for "
                "--negatives same-document, no second sentence"
            )
        key = _key(settings, stored, folder / "tokenizer")
        held = sum(shard.documents for shard in shards if shard.part == "validation")
        for part, records in parts.items():
            if not any(record["counts"]["examples"] for record in records):
                continue  # held-out documents of a sentence each, say
            target = folder if part == "training" else folder / part
            paths = [scratch / f"{shard.name}.arrow" for shard in shards if shard.part == part]
            save_shards(paths, target, f"{key} {part}")
        facts = summarize(parts, stored.counts | chosen.counts | {"documents_held_out": held}, stored.skipped)
        write_manifest(
            folder,
            "corpus",
            settings=settings,
            inputs={
                **describe_sources(sources),
                "documents": {"sha256": stored.sha256},  # this alone tells of what is not on this disk
                # of the folder that was named, for its manifest to be found; the copy has other bytes
                "tokenizer": {"sha256": fingerprint(folder / "tokenizer"), **identity(settings.tokenizer)},
            },
            seconds=round(time.monotonic() - began, 1),
            **facts,
        )
        shutil.rmtree(scratch)  # last: without it nothing can be gone on with
    print_report(facts, settings.validation_share)
    return Path(settings.output)


def _store(scratch: Path, settings: CorpusSettings) -> StoredDocuments:
    skipped: Counter = Counter()
    documents = read_documents(
        settings.inputs,
        text_column=settings.text_column,
        errors=settings.errors,
        document_per_file=settings.document_per_file,
        skipped=skipped,
    )
    return store_documents(documents, scratch, settings, skipped)


def _plan(stored: StoredDocuments, chosen: np.ndarray, tokenizer: Path, settings: CorpusSettings) -> list[Shard]:
    """The work to be done; which documents a part has, and in which order, is left beside them."""
    identities = stored.identities[chosen]
    validation, training = held_out(identities, settings)
    _check_fit(stored.folder, chosen[training], tokenizer, settings.tokenizer)
    require_room(stored, chosen, plain(str(tokenizer)), settings)
    shards = []
    for part, order, dupes in (("validation", validation, 1), ("training", training, settings.dupe_factor)):
        np.save(stored.folder / f"{part}.npy", np.stack([chosen[order], identities[order]]))
        shards += plan_shards(part, stored.lengths[chosen[order]], dupes)
    return shards


def _make_shards(shards: list[Shard], scratch: Path, tokenizer: Path, settings: CorpusSettings) -> dict:
    """Records of the shards, by part."""
    make = functools.partial(make_shard, folder=str(scratch), tokenizer=str(tokenizer), settings=settings)
    records = run_tasks(make, shards, settings, "examples")
    parts: dict[str, list[dict]] = {"training": []}
    for shard, record in zip(shards, records, strict=True):
        parts.setdefault(shard.part, []).append(record)
    return parts


def _check_fit(folder: Path, documents: np.ndarray, tokenizer: Path, name: str) -> None:
    """
    Raises:
        UserError: most of what the tokenizer finds in the first documents is unknown to it.
    """
    texts = read_stored(folder, documents[:SAMPLE_DOCUMENTS])
    known = plain(str(tokenizer))  # loaded here, it is there already in the processes forked later
    sample = [text[:SAMPLE_CHARACTERS] for text in texts]
    found = [encoding.ids for encoding in known.backend.encode_batch_fast(sample, add_special_tokens=False)]
    total = sum(map(len, found))
    unknown = sum(ids.count(known.unk_id) for ids in found)
    if unknown > _MOST_UNKNOWN * total:
        raise UserError(
            f"--tokenizer {name} does not fit these documents: {unknown / total:.0%} of their tokens are "
            "[UNK]; train one on them by `mybert tokenizer`"
        )


def _key(settings: CorpusSettings, stored: StoredDocuments, tokenizer: Path) -> str:
    """Everything that the examples are a function of."""
    return json.dumps([settings.decisive(), stored.sha256, fingerprint(tokenizer)], sort_keys=True)
