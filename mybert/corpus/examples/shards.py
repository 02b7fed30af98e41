"""Stage 2 on disk: some blocks of documents → one file of examples. A shard is finished once its record stands."""

import functools
import hashlib
import json
import shutil
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa

from mybert.common.json_io import parse_json
from mybert.common.manifest import fingerprint, write_json
from mybert.corpus.examples.blocks import block_to_examples, example_schema
from mybert.corpus.examples.text_encoding import load_plain_tokenizer
from mybert.corpus.report import measure
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text.document_store import even_order, group_in_blocks, read_stored

# As many as keep all processes busy to the end, of a size that memory holds; both regardless of their number.
_SHARDS, _FEWEST_CHARACTERS, _MOST_CHARACTERS = 64, 1 << 20, 1 << 25
_FILE_BYTES = 500_000_000  # of a finished data set: the data sets library's own limit


@dataclass(frozen=True)
class Block:
    """Documents that examples are made of together: `order[start:end]` of a part, used `dupes` times."""

    key: str
    start: int
    end: int
    dupes: int


@dataclass(frozen=True)
class Shard:
    """What one task makes: examples of `blocks`, in the file `name`.arrow."""

    name: str
    part: str
    blocks: tuple[Block, ...]

    @property
    def documents(self) -> int:
        return sum(block.end - block.start for block in self.blocks)


def plan_shards(part: str, lengths: np.ndarray, dupes: int) -> list[Shard]:
    """Shards of about as much work each.

    Args:
        part: `training` or `validation`.
        lengths: (documents,) characters of each, in the order in which the part has them.
        dupes: times that a document is used.
    """
    ranges = group_in_blocks(lengths)
    sizes = [int(lengths[start:end].sum()) for start, end in ranges]
    wanted = min(max(sum(sizes) // _SHARDS, _FEWEST_CHARACTERS // dupes), _MOST_CHARACTERS // dupes)
    shards, blocks, characters = [], [], 0
    for number in even_order(sizes):
        blocks.append(Block(f"{part}-{number}", *ranges[number], dupes))
        characters += sizes[number]
        if characters >= wanted:
            shards.append(tuple(blocks))
            blocks, characters = [], 0
    shards += [tuple(blocks)] if blocks else []
    return [Shard(f"{part}-shard-{number:05d}", part, blocks) for number, blocks in enumerate(shards)]


def make_shard(shard: Shard, *, folder: str, tokenizer: str, settings: CorpusSettings) -> dict:
    """Writes the examples of a shard, or finds them written.

    Args:
        folder: with the documents and, for each part, `PART.npy`: its documents in order, and their identities.
        tokenizer: its folder.

    Returns:
        `counts` of `block_to_examples`, `lengths` and `sums` of `measure`, and the `sha256` of the file.
    """
    path = Path(folder) / f"{shard.name}.arrow"
    if (record := finished(path)) is not None:
        return record
    order = np.load(path.with_name(f"{shard.part}.npy"), mmap_mode="r")
    counts, lengths, sums = Counter(), Counter(), Counter()
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")  # a node taken for lost may be at the same shard
    with pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_stream(sink, example_schema(settings.nsp)) as writer:
        for block in shard.blocks:
            documents, identities = order[:, block.start : block.end].tolist()
            texts = read_stored(folder, documents)
            table, found = block_to_examples(texts, identities, plain(tokenizer), settings, block.key, block.dupes)
            writer.write_table(table)
            counts.update(found)
            of_table = measure(table)
            lengths.update(of_table[0])
            sums.update(of_table[1])
    aside.replace(path)
    record = {"counts": counts, "lengths": lengths, "sums": sums, "sha256": fingerprint(path)}
    write_json(path.with_suffix(".json"), record)
    return record


plain = functools.cache(load_plain_tokenizer)


def finished(path: Path) -> dict | None:
    """The record of a shard; None if the shard is not complete or not as it was written."""
    try:
        record = parse_json(path.with_suffix(".json").read_bytes())
        return record if record["sha256"] == fingerprint(path) else None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def save_shards(paths: list[Path], folder: Path, identity: str) -> None:
    """Writes the examples of some shards as `Dataset.save_to_disk` does, but a file at a time.

    So no more than a file's worth of mapped pages counts as memory of this process.

    Args:
        identity: the fingerprint, random otherwise, becomes a function of it.
    """
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    files = open_shards(paths).data.nbytes // _FILE_BYTES + 1
    names = [f"data-{index:05d}-of-{files:05d}.arrow" for index in range(files)]
    for index, name in enumerate(names):
        examples = open_shards(paths).shard(files, index, contiguous=True)
        examples._fingerprint = digest
        part = folder / ".part"
        examples.save_to_disk(str(part), num_shards=1)
        (part / "data-00000-of-00001.arrow").replace(folder / name)
    state = json.loads((part / "state.json").read_text())
    state["_data_files"] = [{"filename": name} for name in names]
    (folder / "state.json").write_text(json.dumps(state, indent=2, sort_keys=True))
    (part / "dataset_info.json").replace(folder / "dataset_info.json")
    shutil.rmtree(part)


def open_shards(paths: list[Path]) -> datasets.Dataset:
    """The examples of shards, one shard after the other; mapped, not read."""
    examples = datasets.concatenate_datasets([datasets.Dataset.from_file(str(path)) for path in paths])
    examples.reset_format()
    return examples
