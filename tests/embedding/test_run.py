"""`mybert embed` on files and standard input, to every format."""

import datetime
import io
import json

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from json_files import read_lines, write_lines

from mybert import cli
from mybert.embedding.embedder import Embedder

LINES = ["She ate an apple.", "Apple fell.", "東京は大きい。", "A longer line about nothing in particular, really."]


@pytest.fixture(scope="module")
def embedder(tiny_bert) -> Embedder:
    return Embedder(str(tiny_bert), device="cpu")


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text(f"{LINES[0]}\n{LINES[1]}\n\n{LINES[2]}\n{LINES[3]}", encoding="utf-8")
    return path


def run(*words) -> int:
    return cli.main(["embed", *map(str, words), "--device", "cpu"])


def rows_of(path) -> list[dict]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return read_lines(path)


def test_every_format_has_the_same_vectors_in_input_order(tiny_bert, embedder, lines, tmp_path, capsys):
    expected = embedder.texts(LINES)
    for name in ("v.npy", "v.parquet", "v.jsonl"):
        assert run(tiny_bert, lines, "--output", tmp_path / name) == 0
    assert "skipped: blank lines" in capsys.readouterr().out
    found = np.load(tmp_path / "v.npy")
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() < 1e-6
    for name in ("v.parquet", "v.jsonl"):
        rows = rows_of(tmp_path / name)
        assert [row["text"] for row in rows] == LINES
        assert [row["line"] for row in rows] == [1, 2, 4, 5]
        assert [row["text_number"] for row in rows] == [0, 1, 2, 3]
        assert np.array_equal(np.array([row["vector"] for row in rows], dtype=np.float32), found)


@pytest.mark.parametrize("name", ["w.parquet", "w.jsonl"])
def test_words_say_where_they_stand(tiny_bert, embedder, tmp_path, name):
    texts = [*LINES, " ", "last"]
    source = write_lines(tmp_path / "texts.jsonl", [{"body": text} for text in texts])
    status = run(tiny_bert, source, "--text-column", "body", "--pooling", "words", "--output", tmp_path / name)
    assert status == 0
    rows = rows_of(tmp_path / name)
    assert all(row["word"] == texts[row["text_number"]][row["start"] : row["end"]] for row in rows)
    assert all((row["source"], row["line"]) == (str(source), row["text_number"] + 1) for row in rows)
    expected = embedder.words(texts)
    assert [row["word"] for row in rows] == [word for found in expected for word in found.words]
    vectors = np.array([row["vector"] for row in rows])
    assert np.abs(vectors - np.concatenate([found.vectors for found in expected])).max() < 1e-6


TABLE = [
    {"id": 7, "text": "Penguins live in the south.", "line": "a", "tags": ["bird", "sea"], "vector": None},
    {"id": 8, "text": "The market fell.", "line": "b", "tags": [], "vector": 0.5},
]


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv", "parquet"])
def test_other_columns_of_the_rows_are_kept(tiny_bert, tmp_path, kind):
    frame = pandas.DataFrame(TABLE)
    source = tmp_path / f"table.{kind}"
    if kind in ("jsonl", "json"):
        frame.to_json(source, orient="records", lines=kind == "jsonl")
    elif kind == "parquet":
        frame.to_parquet(source)
    else:
        frame.to_csv(source, index=False, sep="\t" if kind == "tsv" else ",")
    for output in ("v.parquet", "v.jsonl", "w.parquet"):
        vectors = "words" if output == "w.parquet" else "mean"
        assert run(tiny_bert, source, "--pooling", vectors, "--output", tmp_path / output) == 0
        rows = rows_of(tmp_path / output)
        assert {row["text_number"] for row in rows} == {0, 1} and len(rows[0]["vector"]) == 32
        for row in rows:
            expected = TABLE[row["text_number"]]
            assert row["line"] == row["text_number"] + (2 if kind in ("csv", "tsv") else 1)
            assert row["input_line"] == expected["line"] and int(row["id"]) == expected["id"]
            assert row["tags"] == (str(expected["tags"]) if kind in ("csv", "tsv") else expected["tags"])
            assert "input_vector" in row


def test_numbers_that_json_lacks_are_null_in_json_lines(tiny_bert, tmp_path):
    """pandas writes null for NaN, other programs do not."""
    columns = {"text": ["a film", "a song", "a sea"], "stars": [float("nan"), 4.5, float("-inf")]}
    pq.write_table(pa.table(columns), tmp_path / "table.parquet")
    assert run(tiny_bert, tmp_path / "table.parquet", "--output", tmp_path / "v.jsonl") == 0
    text = (tmp_path / "v.jsonl").read_text(encoding="utf-8")
    assert "NaN" not in text and "Infinity" not in text
    assert [row["stars"] for row in rows_of(tmp_path / "v.jsonl")] == [None, 4.5, None]


def test_columns_of_several_types_become_strings_and_numbers_stay_exact(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr("mybert.io.stored_texts.CHARACTERS_PER_BATCH", 1)  # each row is a batch
    columns = {  # values, and the stored ones
        "id": ([1, "x", None], ["1", "x", None]),
        "n": ([1, 0.5, None], [1.0, 0.5, None]),
        "big": ([2**60, 2**60 + 1, None], [2**60, 2**60 + 1, None]),
        "mixed": ([2**53 + 1, 0.5, None], ["9007199254740993", "0.5", None]),  # no common type
        "deep": ([[2**53 + 1], [0.5], None], ["[9007199254740993]", "[0.5]", None]),
    }
    rows = [{"text": "a"} | {name: values[row] for name, (values, _) in columns.items()} for row in range(3)]
    del rows[2]["big"]
    source = tmp_path / "rows.jsonl"
    write_lines(source, rows)
    assert run(tiny_bert, source, "--output", tmp_path / "v.parquet") == 0
    found = rows_of(tmp_path / "v.parquet")
    assert {name: [row[name] for row in found] for name in columns} == {
        name: kept for name, (_, kept) in columns.items()
    }


@pytest.mark.parametrize("characters", [1, 1000])
def test_values_do_not_depend_on_the_other_files(tiny_bert, tmp_path, monkeypatch, characters):
    monkeypatch.setattr("mybert.io.stored_texts.CHARACTERS_PER_BATCH", characters)
    day, moment = datetime.date(2020, 1, 2), pandas.Timestamp("2020-01-02T03:04:05.123456789")
    pq.write_table(pa.table({"text": ["a"], "when": [day], "moment": pandas.Series([moment])}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["a"], "when": [1]}), tmp_path / "b.parquet")
    inputs = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    assert run(tiny_bert, *inputs, "--output", tmp_path / "v.parquet") == 0
    found = rows_of(tmp_path / "v.parquet")
    assert [row["when"] for row in found] == ['"2020-01-02"', "1"]
    assert [row["moment"] for row in found] == [moment, None]


def test_half_a_surrogate_pair_in_another_column_is_left_out_on_request(tiny_bert, tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text('{"text": "a", "title": ["\\ud83d"]}\n{"text": "b", "title": []}\n')
    assert run(tiny_bert, source, "--errors", "skip", "--output", tmp_path / "v.jsonl") == 0
    assert [row["text"] for row in rows_of(tmp_path / "v.jsonl")] == ["b"]


def test_many_texts_go_through_in_parts_and_keep_their_order(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr("mybert.io.stored_texts.CHARACTERS_PER_BATCH", 40)
    source = tmp_path / "many.txt"
    source.write_text("".join(f"{'x ' * (number % 5)}{number}\n" for number in range(30)))
    assert run(tiny_bert, source, "--pooling", "words", "--output", tmp_path / "w.parquet") == 0
    rows = rows_of(tmp_path / "w.parquet")
    assert [int(row["word"]) for row in rows if row["word"] != "x"] == list(range(30))
    assert run(tiny_bert, source, "--output", tmp_path / "v.npy") == 0
    assert np.load(tmp_path / "v.npy").shape == (30, 32)


def test_standard_input_is_read_line_by_line(tiny_bert, tmp_path, embedder, monkeypatch):
    content = "\n".join(json.dumps({"text": line}) for line in LINES)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode()), encoding="utf-8"))
    assert run(tiny_bert, "-", "--output", tmp_path / "j.npy") == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode()), encoding="utf-8"))
    assert run(tiny_bert, "-", "--output", tmp_path / "v.npy") == 0
    assert np.abs(np.load(tmp_path / "v.npy") - embedder.texts(LINES)).max() < 1e-5
    assert np.array_equal(np.load(tmp_path / "j.npy"), np.load(tmp_path / "v.npy"))
    outputs = ("j.npy", "v.npy")
    assert {path.name for path in tmp_path.iterdir()} == {*outputs, *(f"{name}.manifest.json" for name in outputs)}


@pytest.mark.parametrize("vectors", ["mean", "words"])
def test_too_long_a_text_is_found_before_anything_is_computed_or_left_out_and_counted(
    tiny_bert, embedder, lines, tmp_path, monkeypatch, vectors
):
    monkeypatch.setattr("mybert.io.stored_texts.CHARACTERS_PER_BATCH", 10)  # each text is a batch
    words = (tiny_bert, lines, "--output", tmp_path / "v.jsonl", "--max-length", 8, "--pooling", vectors)
    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "_pool", lambda *arguments: pytest.fail("a batch was computed"))
        assert run(*words) == 2
    assert run(*words, "--errors", "skip") == 0
    rows = rows_of(tmp_path / "v.jsonl")
    assert {row["line"] for row in rows} == {1, 2} and {row["text_number"] for row in rows} == {0, 1}
    found = np.array([row["vector"] for row in rows])
    kept = LINES[:2]
    expected = embedder.texts(kept) if vectors == "mean" else np.concatenate([w.vectors for w in embedder.words(kept)])
    assert np.abs(found - expected).max() < 1e-5
    counts = json.loads((tmp_path / "v.jsonl.manifest.json").read_text())["counts"]
    assert counts["texts"] == 2 and counts["skipped"] == {"blank lines": 1, "more than 8 tokens": 2}
    assert run(*words, "--long-texts", "window", "--overwrite") == 0
    assert {row["line"] for row in rows_of(tmp_path / "v.jsonl")} == {1, 2, 4, 5}
