"""`mybert corpus`: documents → pretraining examples on disk."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa

from mybert.common.errors import UserError
from mybert.common.manifest import fingerprint, refuse_existing, staged_folder, write_manifest
from mybert.common.settings import parse_settings
from mybert.corpus.blocks import block_to_examples, example_schema
from mybert.corpus.documents import (
    StoredDocuments,
    even_order,
    group_in_blocks,
    held_out,
    read_stored,
    store_documents,
)
from mybert.corpus.report import print_report, summarize
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.sources import Source, find_sources, read_documents
from mybert.corpus.wordpiece import load_plain_tokenizer, load_wordpiece

_SAMPLE_DOCUMENTS, _SAMPLE_CHARACTERS = 100, 500
_MOST_UNKNOWN = 0.5


def main(argv: list[str], prog: str) -> None:
    (settings,) = parse_settings(
        (CorpusSettings,), argv, prog, "Documents → masked-language and next-sentence examples."
    )
    print(f"the corpus is in {build_corpus(settings)}")


def build_corpus(settings: CorpusSettings) -> Path:
    """Builds the examples and prints a summary.

    Returns:
        The folder: a `datasets` data set of the training examples, `validation/` with those of held-out documents (if
        any), `tokenizer/` and `manifest.json`. The same settings and inputs give the same bytes, the manifest's times
        apart, for any number of processes.

    Raises:
        UserError: the output exists, an input, its text or the tokenizer cannot be used, or the disk is full.
    """
    began = time.monotonic()
    refuse_existing(settings.output, overwrite=settings.overwrite)
    sources = find_sources(settings.inputs)
    tokenizer = load_wordpiece(settings.tokenizer)
    skipped: Counter = Counter()
    with staged_folder(settings.output, overwrite=settings.overwrite) as folder:
        scratch = folder / ".scratch"
        scratch.mkdir()
        tokenizer.save_pretrained(folder / "tokenizer")
        documents = read_documents(
            settings.inputs,
            text_column=settings.text_column,
            errors=settings.errors,
            document_per_file=settings.document_per_file,
            skipped=skipped,
        )
        stored = store_documents(documents, scratch / "documents.arrow", settings)
        validation, training = held_out(stored, settings)
        _check_fit(stored.path, training, folder / "tokenizer", settings.tokenizer)
        blocks = _blocks(stored, "validation", validation, 1)
        held = len(blocks)
        blocks += _blocks(stored, "training", training, settings.dupe_factor)
        examples, counts = _map_blocks(blocks, stored.path, folder, settings)
        first = sum(count["examples"] for count in counts[:held])
        parts = {"training": examples.select(range(first, len(examples)))}
        if first == len(examples):
            raise UserError(
                f"no example can be made of these {len(training)} documents: they hold no tokens or, for --negatives "
                "same-document, no second sentence"
            )
        identity = _identity(settings, stored, folder / "tokenizer")
        _save(parts["training"], folder, f"{identity} training")
        if first:
            parts["validation"] = examples.select(range(first))
            _save(parts["validation"], folder / "validation", f"{identity} validation")
        facts = summarize(parts, counts, stored.counts | {"documents_held_out": len(validation)}, skipped)
        shutil.rmtree(scratch)
        write_manifest(
            folder,
            "corpus",
            settings=settings,
            inputs=_inputs(sources, stored, settings, folder),
            seconds=round(time.monotonic() - began, 1),
            **facts,
        )
    print_report(facts)
    return Path(settings.output)


def _blocks(stored: StoredDocuments, part: str, order: np.ndarray, dupes: int) -> list[dict]:
    """Rows for `_make_examples`, in an order of which any stretch means about as much work as another as long."""
    lengths = stored.lengths[order]
    blocks = [
        {"key": f"{part}-{number}", "documents": order[start:end], "dupes": dupes}
        for number, (start, end) in enumerate(group_in_blocks(lengths))
    ]
    return [blocks[i] for i in even_order([int(stored.lengths[block["documents"]].sum()) for block in blocks])]


def _map_blocks(blocks: list[dict], path: Path, folder: Path, settings: CorpusSettings):
    """
    Returns:
        examples: of all blocks, in their order.
        counts: for each block what `block_to_examples` counted.
    """
    scratch = path.parent
    processes = min(settings.num_proc or os.cpu_count() or 1, len(blocks))
    features = datasets.Features.from_arrow_schema(example_schema(settings.nsp))
    rows = datasets.Dataset.from_list(blocks)
    with _one_thread_a_process(), _interrupts_as_such():
        examples = rows.map(
            functools.partial(_make_examples, path=str(path), tokenizer=str(folder / "tokenizer"), settings=settings),
            batched=True,
            batch_size=1,
            remove_columns=rows.column_names,
            features=features,
            num_proc=processes if processes > 1 else None,
            cache_file_name=str(scratch / "examples.arrow"),
            new_fingerprint="0" * 16,
            desc="examples",
        )
    counts = [json.loads((scratch / f"{block['key']}.json").read_text()) for block in blocks]
    return examples, counts


def _make_examples(rows: dict, *, path: str, tokenizer: str, settings: CorpusSettings) -> pa.Table:
    """One block; what was counted is left beside the documents."""
    (key,), (documents,), (dupes,) = rows["key"], rows["documents"], rows["dupes"]
    texts, identities = read_stored(path, documents)
    table, counts = block_to_examples(texts, identities, _plain_tokenizer(tokenizer), settings, key, dupes)
    Path(path).with_name(f"{key}.json").write_text(json.dumps(counts))
    return table


_plain_tokenizer = functools.cache(load_plain_tokenizer)


@contextlib.contextmanager
def _one_thread_a_process() -> Iterator[None]:
    """The tokenizers library starts a thread a core, in each process, unless told otherwise."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        yield
    finally:
        os.environ.pop("TOKENIZERS_PARALLELISM")
        if before is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = before


@contextlib.contextmanager
def _interrupts_as_such() -> Iterator[None]:
    """When interrupted, the datasets library waits a moment for its processes and fails at that instead."""
    try:
        yield
    except Exception as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise


def _check_fit(path: Path, documents: np.ndarray, tokenizer: Path, name: str) -> None:
    """
    Raises:
        UserError: most of what the tokenizer finds in the first documents is unknown to it.
    """
    texts, _ = read_stored(str(path), documents[:_SAMPLE_DOCUMENTS])
    plain = _plain_tokenizer(str(tokenizer))  # loaded here, it is there already in the processes forked later
    sample = [text[:_SAMPLE_CHARACTERS] for text in texts]
    found = [encoding.ids for encoding in plain.backend.encode_batch_fast(sample, add_special_tokens=False)]
    total = sum(map(len, found))
    unknown = sum(ids.count(plain.unk_id) for ids in found)
    if unknown > _MOST_UNKNOWN * total:
        raise UserError(
            f"--tokenizer {name} does not fit these documents: {unknown / total:.0%} of their tokens are "
            "[UNK]; train one on them by `mybert tokenizer`"
        )


def _identity(settings: CorpusSettings, stored: StoredDocuments, tokenizer: Path) -> str:
    """Everything that the examples are a function of."""
    without = {"inputs", "tokenizer", "output", "overwrite", "num_proc"}
    chosen = {name: value for name, value in dataclasses.asdict(settings).items() if name not in without}
    return json.dumps([chosen, stored.sha256, fingerprint(tokenizer)], sort_keys=True)


def _save(examples: datasets.Dataset, folder: Path, identity: str) -> None:
    """Writes a data set; its fingerprint, random otherwise, becomes a function of `identity`."""
    examples._fingerprint = hashlib.sha256(identity.encode()).hexdigest()[:16]
    examples.save_to_disk(str(folder))


def _inputs(sources: list[Source], stored: StoredDocuments, settings: CorpusSettings, folder: Path) -> dict:
    """Path and fingerprint of every file, of the tokenizer and of all documents.

    The last alone tells of standard input and data sets of the Hub.
    """
    inputs = {f"input-{number}": {"path": source.name} for number, source in enumerate(sources)}
    for entry in inputs.values():
        path = Path(entry["path"])
        if path.exists():
            files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
            entry |= {"sha256": fingerprint(path), "bytes": sum(file.stat().st_size for file in files)}
    return {
        **inputs,
        "documents": {"sha256": stored.sha256},
        "tokenizer": {"path": settings.tokenizer, "sha256": fingerprint(folder / "tokenizer")},
    }
