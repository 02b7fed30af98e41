"""TensorFlow checkpoints: a file written by TensorFlow, all forms of tables, and damaged files."""

import runpy
import shutil
import struct
import sys
from pathlib import Path
from types import ModuleType

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest

from mybert.common.errors import UserError
from mybert.release.convert.tensorflow_checkpoint import TensorFlowCheckpoint, _read_table

FOLDER = Path(__file__).with_name("tensorflow_checkpoint")


@pytest.fixture(scope="module")
def written() -> dict:
    """The namespace of `write.py`, which wrote the checkpoint, without TensorFlow."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("tensorflow", "tensorflow.compat", "tensorflow.compat.v1"):
            module = ModuleType(name)
            patch.setitem(sys.modules, name, module)
        sys.modules["tensorflow"].compat = sys.modules["tensorflow.compat"]
        sys.modules["tensorflow.compat"].v1 = sys.modules["tensorflow.compat.v1"]
        return runpy.run_path(str(FOLDER / "write.py"))


@pytest.fixture
def prefix(tmp_path) -> Path:
    """A copy of the checkpoint that a test may damage."""
    shutil.copytree(FOLDER, tmp_path / "copy")
    return tmp_path / "copy/bert_model.ckpt"


def varint(number: int) -> bytes:
    low = b""
    while number >= 0x80:
        low, number = low + bytes([number & 0x7F | 0x80]), number >> 7
    return low + bytes([number])


def masked(checksum: int) -> int:
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) % 2**32


def block_of(entries: list[tuple[bytes, bytes]], interval: int) -> bytes:
    """A block of a LevelDB table; every `interval`-th key is stored whole."""
    block, starts, before = b"", [], b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % interval == 0:
            starts.append(len(block))
        else:
            shared = next((i for i, (a, b) in enumerate(zip(before, key, strict=False)) if a != b), len(before))
        block += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    starts = starts or [0]
    return block + struct.pack(f"<{len(starts)}I", *starts) + struct.pack("<I", len(starts))


def table_of(entries: list[tuple[bytes, bytes]], per_block: int, snappy: bool = False) -> bytes:
    """A LevelDB table with `per_block` entries per block."""
    table, index = b"", []

    def add(block: bytes) -> bytes:
        nonlocal table
        stored = pa.compress(block, "snappy", asbytes=True) if snappy else block
        handle = varint(len(table)) + varint(len(stored))
        kind = bytes([snappy])
        table += stored + kind + struct.pack("<I", masked(google_crc32c.value(stored + kind)))
        return handle

    for start in range(0, len(entries), per_block):
        part = entries[start : start + per_block]
        last, following = part[-1][0], entries[start + per_block : start + per_block + 1]
        separator = last if following else bytes([last[0] + 1])  # after the last key, a larger short one
        index.append((separator, add(block_of(part, 16))))
    handles = add(block_of([], 16)) + add(block_of(index, 1))
    return table + handles.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def test_every_tensor_of_a_checkpoint_written_by_tensorflow_is_read(written):
    checkpoint = TensorFlowCheckpoint(FOLDER / "bert_model.ckpt")
    shapes = written["shapes"]()
    every = {f"{name}{slot}": shape for name, shape in shapes.items() for slot in ("", "/adam_m", "/adam_v")}
    assert set(checkpoint) == {*every, "global_step"}
    for name, shape in every.items():
        np.testing.assert_array_equal(checkpoint[name], written["values"](name, shape))
    assert checkpoint["global_step"] == 1234
    assert checkpoint["global_step"].dtype == np.int64


def test_the_table_writer_of_this_test_writes_the_same_bytes_as_tensorflow():
    content = (FOLDER / "bert_model.ckpt.index").read_bytes()
    entries = list(_read_table(content))
    assert len(entries) == 92
    assert table_of(entries, per_block=1000) == content


@pytest.mark.parametrize("snappy", [False, True])
@pytest.mark.parametrize("per_block", [1, 7, 1000])
def test_tables_with_several_and_compressed_blocks_are_read(prefix, per_block, snappy):
    index = prefix.with_name("bert_model.ckpt.index")
    entries = list(_read_table(index.read_bytes()))
    before = TensorFlowCheckpoint(prefix)
    index.write_bytes(table_of(entries, per_block, snappy))
    found = TensorFlowCheckpoint(prefix)
    assert found.entries == before.entries
    np.testing.assert_array_equal(found["bert/pooler/dense/kernel"], before["bert/pooler/dense/kernel"])


def test_a_tensor_is_found_in_the_data_file_that_its_entry_names(prefix):
    """The entry names shard 1 and offset 3."""
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    shape = b"".join(b"\x12" + varint(len(dim)) + dim for dim in (b"\x08\x02", b"\x08\x03"))
    entry = b"\x08\x02" + b"\x12" + varint(len(shape)) + shape + b"\x18\x01" + b"\x20\x03" + b"\x28\x30"
    entry += b"\x35" + struct.pack("<I", masked(google_crc32c.value(array.tobytes())))
    header = b"\x08\x02" + b"\x1a\x02\x08\x01"
    prefix.with_name("two.ckpt.index").write_bytes(table_of([(b"", header), (b"weights", entry)], 10))
    prefix.with_name("two.ckpt.data-00000-of-00002").write_bytes(b"")
    prefix.with_name("two.ckpt.data-00001-of-00002").write_bytes(b"???" + array.tobytes())
    np.testing.assert_array_equal(TensorFlowCheckpoint(prefix.with_name("two.ckpt"))["weights"], array)


def test_a_shortened_index_is_refused(prefix):
    index = prefix.with_name("bert_model.ckpt.index")
    whole = index.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        index.write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"bert_model.ckpt.index is damaged"):
            TensorFlowCheckpoint(prefix)


def test_every_flipped_bit_in_the_index_is_found(prefix):
    index = prefix.with_name("bert_model.ckpt.index")
    whole = index.read_bytes()
    entries = TensorFlowCheckpoint(prefix).entries
    for place in range(0, len(whole), 37):
        index.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            found = TensorFlowCheckpoint(prefix).entries
        except UserError as error:
            assert "bert_model.ckpt.index" in str(error)
        else:  # in the unused meta block or the padding of the footer
            assert found == entries
            assert place > len(whole) - 100


def test_a_flipped_bit_in_the_data_is_found_and_the_tensor_named(prefix):
    data = prefix.with_name("bert_model.ckpt.data-00000-of-00001")
    place = TensorFlowCheckpoint(prefix).entries["bert/pooler/dense/bias"].offset
    content = bytearray(data.read_bytes())
    content[place] ^= 1
    data.write_bytes(content)
    checkpoint = TensorFlowCheckpoint(prefix)
    with pytest.raises(UserError, match=r"data-00000-of-00001 is damaged: wrong checksum of bert/pooler/dense/bias"):
        checkpoint["bert/pooler/dense/bias"]
    checkpoint["bert/pooler/dense/kernel"]


def test_a_shortened_or_missing_data_file_is_refused(prefix):
    data = prefix.with_name("bert_model.ckpt.data-00000-of-00001")
    checkpoint = TensorFlowCheckpoint(prefix)
    last = max(checkpoint, key=lambda name: checkpoint.entries[name].offset)
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(UserError, match=rf"data-00000-of-00001 ends before {last}"):
        checkpoint[last]
    data.unlink()
    with pytest.raises(UserError, match=r"data-00000-of-00001 is missing"):
        TensorFlowCheckpoint(prefix)


def test_a_path_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"model.ckpt.index does not exist"):
        TensorFlowCheckpoint(tmp_path / "model.ckpt")
