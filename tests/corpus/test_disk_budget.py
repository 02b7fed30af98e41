"""What is said of the disk before a build, beside what the build then takes."""

import gzip
import json
import re
import shutil
import types
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard

from mybert.common.errors import UserError
from mybert.common.quantities import Quantity
from mybert.corpus import build as build_module
from mybert.corpus.disk_budget import expect_room
from mybert.corpus.examples.text_encoding import load_plain_tokenizer
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text.sources import find_sources

NUMBER = r"([\d.]+ [kMG]?)B"


def said(printed):
    found = re.search(f"the corpus: about {NUMBER} of disk while building, {NUMBER} after", printed)
    return [Quantity(number) for number in found.groups()]


def size(folder):
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


@pytest.mark.parametrize("options", [{}, {"nsp": False}, {"dupe_factor": 3, "max_length": 32}])
def test_the_disk_taken_is_at_most_what_was_said_and_not_much_less(
    options, build, make_documents, write_jsonl, capsys, monkeypatch
):
    peaks = []

    def rmtree(path, *arguments, **more):
        if Path(path).name == ".scratch":
            peaks.append(size(Path(path).parent))
        return whole(path, *arguments, **more)

    whole = shutil.rmtree
    monkeypatch.setattr(build_module.shutil, "rmtree", rmtree)
    folder = build([write_jsonl(make_documents(1500, sentences=(10, 20), words=(10, 20)))], **options)[0]
    building, after = said(capsys.readouterr().out)
    assert 0.6 * building < peaks[0] < 1.05 * building
    assert 0.6 * after < size(folder) < 1.1 * after


def test_other_columns_and_compression_are_seen_through(
    make_documents, write_jsonl, vocabulary_folder, tmp_path, capsys
):
    texts = make_documents(1500, sentences=(10, 20), words=(10, 20))
    plain = Path(write_jsonl(texts))
    wide = "".join(json.dumps({"id": "x" * 5000, "text": text}) + "\n" for text in texts)
    (tmp_path / "wide.jsonl").write_text(wide)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "b.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(plain.read_bytes()))
    pa.parquet.write_table(pa.table({"id": ["x" * 5000] * 1500, "text": texts}), tmp_path / "c.parquet")
    tokenizer = load_plain_tokenizer(vocabulary_folder)
    found = {}
    for path in sorted(tmp_path.iterdir()):
        settings = CorpusSettings(inputs=[str(path)], tokenizer="t", output=str(tmp_path / "corpus"))
        expect_room(find_sources(settings.inputs), tokenizer, settings)
        found[path.name] = said(capsys.readouterr().out)
    assert len(found) == 5
    for name, numbers in found.items():
        assert numbers == pytest.approx(found[plain.name], rel=0.1), name


def test_too_little_room_is_refused_before_anything_is_written(
    build, make_documents, write_jsonl, tmp_path, monkeypatch
):
    path = write_jsonl(make_documents(300))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: types.SimpleNamespace(free=10_000))
    with pytest.raises(UserError, match=r"no room for the corpus: about .* [kM]B .* free; free some space"):
        build([path])
    assert [path.name for path in tmp_path.iterdir()] == ["documents.jsonl"]
