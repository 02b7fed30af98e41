"""`mybert search` against a brute-force search with numpy."""

import io
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from json_files import read_lines, write_lines

from mybert import cli
from mybert.embedding import search as search_module
from mybert.embedding.embedder import Embedder

TEXTS = [
    f"{animal} {verb} in the {place}"
    for animal in ("cats", "dogs", "birds")
    for verb in ("sleep", "run")
    for place in ("house", "park", "rain")
]
QUERIES = ["a sleeping cat", "birds in bad weather"]


@pytest.fixture(scope="module")
def vectors(tiny_bert, tmp_path_factory):
    """A folder with TEXTS as v.npy, v.parquet and v.jsonl, and cls vectors as cls.parquet."""
    folder = tmp_path_factory.mktemp("vectors")
    write_lines(folder / "texts.jsonl", [{"id": f"t{number}", "text": text} for number, text in enumerate(TEXTS)])
    for name, pooling in (("v.npy", "mean"), ("v.parquet", "mean"), ("v.jsonl", "mean"), ("cls.parquet", "cls")):
        words = [tiny_bert, folder / "texts.jsonl", "--output", folder / name, "--pooling", pooling]
        assert cli.main(["embed", *map(str, words), "--device", "cpu"]) == 0
    return folder


def run(*words) -> int:
    return cli.main(["search", *map(str, words), "--device", "cpu"])


def brute_force(folder, pooling, top_k) -> list[list[tuple[int, float]]]:
    embedder = Embedder(str(folder), device="cpu", normalize=True)
    scores = embedder.texts(QUERIES, pooling) @ embedder.texts(TEXTS, pooling).T
    return [[(int(row), float(line[row])) for row in np.argsort(-line)[:top_k]] for line in scores]


@pytest.mark.parametrize(
    ("name", "pooling"), [("v.npy", "mean"), ("v.parquet", "mean"), ("v.jsonl", "mean"), ("cls.parquet", "cls")]
)
@pytest.mark.parametrize("rows_per_block", [4, 8192])
def test_the_nearest_texts_are_those_of_brute_force(
    tiny_bert, vectors, tmp_path, monkeypatch, capsys, name, pooling, rows_per_block
):
    monkeypatch.setattr("mybert.embedding.vector_files.ROWS_PER_BLOCK", rows_per_block)
    output = tmp_path / "results.jsonl"
    assert run(vectors / name, *QUERIES, "--top-k", 7, "--output", output) == 0
    results = read_lines(output)
    assert [(r["query_number"], r["rank"]) for r in results] == [(q, rank) for q in (0, 1) for rank in range(1, 8)]
    expected = [pair for found in brute_force(tiny_bert, pooling, 7) for pair in found]
    assert [r["text_number"] for r in results] == [row for row, _ in expected]
    assert [r["score"] for r in results] == pytest.approx([score for _, score in expected], abs=1e-5)
    assert [r["query"] for r in results] == [query for query in QUERIES for _ in range(7)]
    printed = capsys.readouterr().out
    assert all(query in printed for query in QUERIES)
    assert ("has no texts" in printed) == (name == "v.npy")
    if name != "v.npy":
        assert all(r["text"] == TEXTS[r["text_number"]] and r["id"] == f"t{r['text_number']}" for r in results)
        assert all(r["id"] in printed and r["text"] in printed for r in results)


@pytest.mark.parametrize("rows_per_block", [50, 8192])
def test_of_equal_scores_the_first_in_the_file_are_found(tiny_bert, tmp_path, monkeypatch, rows_per_block):
    monkeypatch.setattr("mybert.embedding.vector_files.ROWS_PER_BLOCK", rows_per_block)
    np.save(tmp_path / "v.npy", np.eye(32, dtype=np.float32)[[number % 7 for number in range(200)]])
    words = ["--model", tiny_bert, "--top-k", 5, "--output", tmp_path / "results.jsonl"]
    assert run(tmp_path / "v.npy", QUERIES[0], *words) == 0
    (query,) = Embedder(str(tiny_bert), device="cpu").texts(QUERIES[:1])
    found = [r["text_number"] for r in read_lines(tmp_path / "results.jsonl")]
    assert found == [int(query[:7].argmax()) + 7 * rank for rank in range(5)]


@pytest.mark.parametrize("numbers", [pa.float64(), pa.float16()])
def test_a_parquet_file_that_was_saved_with_other_numbers_is_searched(vectors, tmp_path, tiny_bert, numbers):
    table = pq.read_table(vectors / "v.parquet")
    column = table["vector"].cast(pa.list_(numbers))
    pq.write_table(table.set_column(table.column_names.index("vector"), "vector", column), tmp_path / "v.parquet")
    words = ["--model", tiny_bert, "--top-k", 4, "--output", tmp_path / "results.jsonl"]
    assert run(tmp_path / "v.parquet", *QUERIES, *words) == 0
    expected = [pair for found in brute_force(tiny_bert, "mean", 4) for pair in found]
    results = read_lines(tmp_path / "results.jsonl")
    assert [r["text_number"] for r in results] == [row for row, _ in expected]
    assert [r["score"] for r in results] == pytest.approx([score for _, score in expected], abs=1e-3)


def test_queries_come_from_standard_input_one_a_line(vectors, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(QUERIES).encode()), encoding="utf-8"))
    assert run(vectors / "v.npy", "-", "--top-k", 1, "--output", tmp_path / "r.jsonl") == 0
    assert [result["query"] for result in read_lines(tmp_path / "r.jsonl")] == QUERIES
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\n\nthree"), encoding="utf-8"))
    assert run(vectors / "v.npy", "-") == 2
    assert "query 2: empty" in capsys.readouterr().err


def test_each_line_is_answered_before_the_next_one_arrives_by_one_model(vectors, monkeypatch, capsys):
    loads, answered = [], []

    class Arriving(io.RawIOBase):
        """One line at a time; before each, what has been answered is read."""

        lines = iter([b"\xef\xbb\xbfcat\n", b"dog\n", b"sea"])
        readable = lambda self: True  # noqa: E731

        def readinto(self, buffer):
            answered.append(capsys.readouterr().out)
            line = next(self.lines, b"")
            buffer[: len(line)] = line
            return len(line)

    load = search_module._load
    monkeypatch.setattr(search_module, "_load", lambda *given: loads.append(given) or load(*given))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(Arriving()), encoding="utf-8"))
    assert run(vectors / "v.npy", "-", "--top-k", 1) == 0
    assert len(loads) == 1
    assert not answered[0] and answered[1].startswith("cat\n") and answered[2].startswith("dog\n")
    assert "sea\n" in capsys.readouterr().out + answered[-1]


def test_more_results_than_texts_are_all_texts_and_an_output_is_replaced_on_request(tiny_bert, vectors, tmp_path):
    output, model = tmp_path / "r.jsonl", shutil.copytree(tiny_bert, tmp_path / "copy")
    assert run(vectors / "v.npy", "cat", "--model", model, "--top-k", 100, "--output", output) == 0
    assert sorted(result["text_number"] for result in read_lines(output)) == list(range(len(TEXTS)))
    assert run(vectors / "v.npy", "cat", "--output", output, "--overwrite") == 0
    assert len(read_lines(output)) == 5


@pytest.mark.parametrize(
    ("text", "begin", "shown"),
    [
        ("a short\ntext", -90, "a short text"),
        ("word " * 60, 0, "word " * 40 + "…"),
        ("beginning middle end", 4, "… middle end"),
        ("beginning middle end", 10, "… middle end"),
        ("日本" * 150, 100, "… " + "日本" * 99 + " …"),
    ],
)
def test_a_long_text_is_shown_in_whole_words(text, begin, shown):
    assert search_module._excerpt(text, begin) == shown
