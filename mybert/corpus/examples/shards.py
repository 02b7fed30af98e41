"""Shards: files with the examples of some blocks of documents. A shard is finished when its record exists."""

import hashlib
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mybert.artifacts.manifest import fingerprint, write_json
from mybert.common.json_io import parse_json
from mybert.common.progress import no_dataset_bars
from mybert.corpus.examples.blocks import block_to_examples, example_schema
from mybert.corpus.examples.text_encoding import plain_tokenizer
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text.document_store import group_in_blocks, read_stored

# Enough shards to keep all processes busy, each small enough for memory; independent of the number of processes.
_SHARDS, _MIN_CHARACTERS, _MAX_CHARACTERS = 64, 1 << 20, 1 << 25


@dataclass(frozen=True)
class Block:
    """The documents `order[start:end]` of a part, used `dupes` times."""

    key: str
    start: int
    end: int
    dupes: int


@dataclass(frozen=True)
class Shard:
    """One task: the examples of `blocks`, written to the file `name`.arrow."""

    name: str
    part: str
    blocks: tuple[Block, ...]

    @property
    def documents(self) -> int:
        return sum(block.end - block.start for block in self.blocks)


def plan_shards(part: str, lengths: np.ndarray, dupes: int) -> list[Shard]:
    """Plans shards of about the same size.

    `lengths` (documents,) are characters, in the order of the part; each document is used `dupes` times.
    """
    ranges = group_in_blocks(lengths)
    sizes = [int(lengths[start:end].sum()) for start, end in ranges]
    wanted = min(max(sum(sizes) // _SHARDS, _MIN_CHARACTERS // dupes), _MAX_CHARACTERS // dupes)
    shards, blocks, characters = [], [], 0
    for number, size in enumerate(sizes):
        blocks.append(Block(f"{part}-{number}", *ranges[number], dupes))
        characters += size
        if characters >= wanted:
            shards.append(tuple(blocks))
            blocks, characters = [], 0
    shards += [tuple(blocks)] if blocks else []
    return [Shard(f"{part}-shard-{number:05d}", part, blocks) for number, blocks in enumerate(shards)]


def make_shard(shard: Shard, *, folder: str, tokenizer: str, settings: CorpusSettings) -> dict[str, Any]:
    """Writes the examples of a shard, unless it is finished.

    Args:
        folder: holds the documents and, for each part, `PART.npy`: its documents in order, and their identities.

    Returns:
        `counts` of `block_to_examples`, `lengths`, the number of examples of each, and the `sha256` of the file.
    """
    path = Path(folder) / f"{shard.name}.arrow"
    if (record := finished(path)) is not None:
        return record
    order = np.load(path.with_name(f"{shard.part}.npy"), mmap_mode="r")
    counts: Counter[str] = Counter()
    lengths: Counter[str] = Counter()
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")  # a node assumed lost may write the same shard
    with pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_stream(sink, example_schema(settings.nsp)) as writer:
        for block in shard.blocks:
            documents, identities = order[:, block.start : block.end].tolist()
            texts = read_stored(folder, documents)
            encoder = plain_tokenizer(tokenizer)
            table, block_counts = block_to_examples(texts, identities, encoder, settings, block.key, block.dupes)
            writer.write_table(table)
            counts.update(block_counts)
            lengths.update(map(str, pc.list_value_length(table["input_ids"]).to_pylist()))
    aside.replace(path)
    record = {"counts": counts, "lengths": lengths, "sha256": fingerprint(path)}
    write_json(path.with_suffix(".json"), record)
    return record


def finished(path: Path) -> dict[str, Any] | None:
    """The record of a shard; None if the shard is incomplete or damaged."""
    try:
        record = parse_json(path.with_suffix(".json").read_bytes())
        return record if record["sha256"] == fingerprint(path) else None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def save_shards(paths: list[Path], folder: Path, identity: str) -> None:
    """Writes the examples of some shards by `Dataset.save_to_disk`.

    `identity` determines the fingerprint of the data set, which is random by default.
    """
    examples = datasets.concatenate_datasets([datasets.Dataset.from_file(str(path)) for path in paths])
    examples.reset_format()
    examples._fingerprint = hashlib.sha256(identity.encode()).hexdigest()[:16]
    with no_dataset_bars():
        examples.save_to_disk(str(folder))
