"""Reading of TensorFlow checkpoints ("tensor bundles") without TensorFlow.

`PREFIX.index` is a sorted table in LevelDB's format, from tensor names to the places of their bytes in
`PREFIX.data-00000-of-00001` and so on. Sources: leveldb `doc/table_format.md`; tensorflow
`core/protobuf/tensor_bundle.proto`, `core/util/tensor_bundle/tensor_bundle.h`.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa

from mybert.common.errors import UserError

_FOOTER = 48  # two block handles, padding and the magic number
_MAGIC = 0xDB4775248B80FB57
_TRAILER = 5  # of a block: compression and checksum
_DTYPES = {1: np.float32, 2: np.float64, 3: np.int32, 9: np.int64, 19: np.float16}  # tensorflow's types.proto


@dataclass(frozen=True)
class Entry:
    """The place of a tensor.

    Attributes:
        dtype: number in TensorFlow's `DataType`.
        shard, offset, size: the data file, and the bytes in it.
        checksum: masked CRC-32C of those bytes.
        sliced: whether it is stored in parts under other names.
    """

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool


class TensorFlowCheckpoint(Mapping[str, np.ndarray]):
    """A mapping from name to array. A tensor is read, and its checksum compared, on access.

    `prefix` is the path without ending, such as `uncased_L-12_H-768_A-12/bert_model.ckpt`.
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
            header = _fields(table.pop(b"", b""))
            self.shards = header[1][0]
            self.entries = {name.decode(): _entry(value) for name, value in sorted(table.items())}
        except (LookupError, struct.error, ValueError, OSError, pa.ArrowException) as error:
            raise UserError(f"{self.index} is damaged ({error}); copy it again") from error
        if header.get(2, [0])[0] != 0:
            raise UserError(f"{self.index} was written on a big-endian machine, which is not supported")
        for shard in range(self.shards):
            if not self._file(shard).is_file():
                raise UserError(f"{self._file(shard)} is missing: data files of {self.prefix}: {self.shards}")

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self.entries[name]
        if entry.sliced or entry.dtype not in _DTYPES:
            kind = "stored in slices" if entry.sliced else f"of TensorFlow's type number {entry.dtype}"
            raise UserError(f"{self.prefix}: {name} is {kind}, which is not supported")
        path = self._file(entry.shard)
        with path.open("rb") as file:
            file.seek(entry.offset)
            content = file.read(entry.size)
        if len(content) < entry.size:
            raise UserError(f"{path} ends before {name} ({entry.offset + entry.size:,} bytes expected); copy it again")
        dtype = np.dtype(_DTYPES[entry.dtype]).newbyteorder("<")
        if _masked_crc(content) != entry.checksum or prod(entry.shape) * dtype.itemsize != entry.size:
            raise UserError(f"{path} is damaged: wrong checksum of {name}; copy it again")
        return np.frombuffer(content, dtype).reshape(entry.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def _file(self, shard: int) -> Path:
        return Path(f"{self.prefix}.data-{shard:05d}-of-{self.shards:05d}")


def _read_table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a LevelDB table."""
    footer = content[-_FOOTER:]
    if len(footer) < _FOOTER or struct.unpack("<Q", footer[-8:])[0] != _MAGIC:
        raise ValueError("it does not end with the footer of a table")
    _, _, *index_block, _ = _varints(footer, 0, 4)
    for _, handle in _read_block(content, *index_block):
        offset, size, _ = _varints(handle, 0, 2)
        yield from _read_block(content, offset, size)


def _read_block(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Entries of a block. A key is stored as the length of the prefix shared with the previous key, and the rest."""
    stored, trailer = content[offset : offset + size + 1], content[offset + size + 1 : offset + size + _TRAILER]
    if _masked_crc(stored) != struct.unpack("<I", trailer)[0]:
        raise ValueError(f"wrong checksum of the block at byte {offset}")
    block = _decompress(stored[:-1], stored[-1])
    end = len(block) - 4 * (1 + struct.unpack("<I", block[-4:])[0])  # positions of whole keys follow, unused here
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
    raise ValueError(f"unknown compression {compression}")


def _masked_crc(content: bytes) -> int:
    """CRC-32C, masked as it is stored (leveldb, `util/crc32c.h`)."""
    checksum = google_crc32c.value(content)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varints(content: bytes, at: int, count: int) -> tuple[int, ...]:
    """`count` numbers from byte `at`, seven bits a byte, lowest first; and the position after them."""
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
            raise ValueError(f"unknown kind of field {kind}")
        found.setdefault(number, []).append(value)
    return found


def _entry(message: bytes) -> Entry:
    """Parses a `BundleEntryProto`, in which fields with the value 0 are not stored."""
    fields = _fields(message)
    shape = _fields(fields.get(2, [b""])[0]).get(2, [])
    dtype, shard, offset, size, checksum = (fields.get(number, [0])[0] for number in (1, 3, 4, 5, 6))
    dimensions = tuple(_fields(dimension).get(1, [0])[0] for dimension in shape)
    return Entry(dtype, dimensions, shard, offset, size, checksum, sliced=7 in fields)
