"""TensorFlow's checkpoints ("tensor bundles"), read without TensorFlow.

`PREFIX.index` is a sorted table in LevelDB's format, from tensor name to where its bytes stand; those are, without any
framing, in `PREFIX.data-00000-of-00001` and so on. Sources: leveldb `doc/table_format.md`; tensorflow
`core/protobuf/tensor_bundle.proto`, `core/util/tensor_bundle/tensor_bundle.h`.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import pyarrow as pa

from mybert.common.errors import UserError
from mybert.release.convert.crc32c import crc32c

_FOOTER = 48  # two handles, padded, and the magic number
_MAGIC = 0xDB4775248B80FB57
_TRAILER = 5  # of a block: its compression and its checksum
_NUMBERS = {
    1: np.float32,
    2: np.float64,
    3: np.int32,
    9: np.int64,
    19: np.float16,
}  # tensorflow/core/framework/types.proto


@dataclass(frozen=True)
class Entry:
    """Where a tensor stands.

    Attributes:
        dtype: its number in TensorFlow's `DataType`.
        shape: its dimensions.
        shard, offset, size: the data file, and the bytes in it.
        checksum: masked CRC-32C of those bytes.
        sliced: it is stored in parts, under names of their own.
    """

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool


class TensorFlowCheckpoint(Mapping[str, np.ndarray]):
    """A checkpoint as a mapping from name to array; a tensor is read, and its checksum compared, when it is asked for.

    Args:
        prefix: the path that TensorFlow calls the checkpoint, such as `uncased_L-12_H-768_A-12/bert_model.ckpt`.

    Raises:
        UserError: a file is missing, shortened or damaged. Also by `checkpoint[name]`.
    """

    def __init__(self, prefix: str | Path):
        self.prefix = str(prefix)
        self.index = Path(f"{prefix}.index")
        if not self.index.is_file():
            raise UserError(
                f"{self.index} does not exist; name a checkpoint without its ending, as in bert_model.ckpt"
            )
        try:
            table = dict(_read_table(self.index.read_bytes()))
            if b"" not in table:
                raise ValueError("it has no header")
            header = _fields(table.pop(b""))
            self.entries = {name.decode(): _entry(value) for name, value in sorted(table.items())}
        except (IndexError, struct.error, ValueError, OSError, pa.ArrowException) as error:
            raise UserError(f"{self.index} is not a whole checkpoint index ({error}); copy it again") from error
        self.shards = header.get(1, [0])[0]
        if header.get(2, [0])[0] != 0:
            raise UserError(f"{self.index} was written on a big-endian machine, which cannot be read here")
        for shard in range(self.shards):
            if not self._file(shard).is_file():
                raise UserError(f"{self._file(shard)} is missing: {self.prefix} has {self.shards} data file(s)")

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self.entries[name]
        if entry.sliced or entry.dtype not in _NUMBERS:
            kind = "stored in slices" if entry.sliced else f"of TensorFlow's type number {entry.dtype}"
            raise UserError(f"{self.prefix}: {name} is {kind}, which is not read here")
        path = self._file(entry.shard)
        with path.open("rb") as file:
            file.seek(entry.offset)
            content = file.read(entry.size)
        if len(content) < entry.size:
            raise UserError(f"{path} ends before {name} ({entry.offset + entry.size:,} bytes expected); copy it again")
        dtype = np.dtype(_NUMBERS[entry.dtype]).newbyteorder("<")
        if _masked(crc32c(content)) != entry.checksum or prod(entry.shape) * dtype.itemsize != entry.size:
            raise UserError(f"{path} is damaged: the bytes of {name} do not have their checksum; copy it again")
        return np.frombuffer(content, dtype).reshape(entry.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def _file(self, shard: int) -> Path:
        return Path(f"{self.prefix}.data-{shard:05d}-of-{self.shards:05d}")


def _read_table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a LevelDB table."""
    footer = content[-_FOOTER:]
    if len(footer) < _FOOTER or struct.unpack("<Q", footer[-8:])[0] != _MAGIC:
        raise ValueError("it does not end as a table does")
    _, _, *index_of_blocks, _ = _varints(footer, 0, 4)
    for _, handle in _read_block(content, *index_of_blocks):
        offset, size, _ = _varints(handle, 0, 2)
        yield from _read_block(content, offset, size)


def _read_block(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Its entries: each key is given by how much of it is shared with the one before, and the rest."""
    stored, trailer = content[offset : offset + size + 1], content[offset + size + 1 : offset + size + _TRAILER]
    if _masked(crc32c(stored)) != struct.unpack("<I", trailer)[0]:
        raise ValueError(f"the block at byte {offset} does not have its checksum")
    block = _decompress(stored[:-1], stored[-1])
    end = len(block) - 4 * (1 + struct.unpack("<I", block[-4:])[0])  # the places where keys start afresh, not needed
    key, at = b"", 0
    while at < end:
        shared, unshared, length, at = _varints(block, at, 3)
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + length]
        at += length


def _decompress(block: bytes, compression: int) -> bytes:
    if compression == 0:
        return block
    if compression == 1:
        return pa.decompress(block, _varints(block, 0, 1)[0], codec="snappy", asbytes=True)
    raise ValueError(f"compression {compression} is unknown")


def _masked(checksum: int) -> int:
    """As it is stored: a checksum of bytes that hold checksums would be a poor one (leveldb, `util/crc32c.h`)."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varints(content: bytes, at: int, count: int) -> tuple[int, ...]:
    """`count` numbers from byte `at` on, seven bits a byte, the lowest first; and last, where they end."""
    numbers = []
    for _ in range(count):
        value = shift = 0
        while content[at] >= 0x80:
            value |= (content[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
        numbers.append(value | content[at] << shift)
        at += 1
    return *numbers, at


def _fields(message: bytes) -> dict[int, list]:
    """The fields of a protocol buffer message by number: integers, or bytes."""
    found: dict[int, list] = {}
    at = 0
    while at < len(message):
        tag, at = _varints(message, at, 1)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varints(message, at, 1)
        elif kind == 2:
            length, at = _varints(message, at, 1)
            value, at = message[at : at + length], at + length
        elif kind == 5:
            value, at = struct.unpack_from("<I", message, at)[0], at + 4
        else:
            raise ValueError(f"an entry has a field of kind {kind}")
        found.setdefault(number, []).append(value)
    return found


def _entry(message: bytes) -> Entry:
    """Reads a `BundleEntryProto`; a field that is zero is not written."""
    fields = _fields(message)
    shape = _fields(fields.get(2, [b""])[0]).get(2, [])
    return Entry(
        dtype=fields.get(1, [0])[0],
        shape=tuple(_fields(dimension).get(1, [0])[0] for dimension in shape),
        shard=fields.get(3, [0])[0],
        offset=fields.get(4, [0])[0],
        size=fields.get(5, [0])[0],
        checksum=fields.get(6, [0])[0],
        sliced=7 in fields,
    )
