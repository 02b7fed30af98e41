"""Search in PostgreSQL with pgvector (`pip install 'psycopg[binary]'`), whose rows have the vectors of `mybert embed`.

    mybert embed MODEL passages-1.jsonl --normalize --engine ray --output vectors-1.parquet
    python postgres_search.py MODEL "a film about the sea" --database postgresql:///library --load vectors-*.parquet

Each Parquet file is a shard. A file that is loaded again replaces its rows, so a load that broke off is repeated.
"""

import argparse
from pathlib import Path

import psycopg
import pyarrow.parquet as pq

from mybert import Embedder


def load(connection: psycopg.Connection, shard: Path) -> None:
    """Copies the texts and vectors of a shard into the table `passages`, all of them or none."""
    width = pq.read_schema(shard).field("vector").type.list_size
    with connection.transaction():
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        columns = f"shard text, number bigint, text text, vector vector({width})"
        connection.execute(f"CREATE TABLE IF NOT EXISTS passages ({columns})")
        connection.execute("CREATE INDEX IF NOT EXISTS nearest ON passages USING hnsw (vector vector_cosine_ops)")
        connection.execute("DELETE FROM passages WHERE shard = %s", [shard.name])
        with connection.cursor().copy("COPY passages (shard, number, text, vector) FROM STDIN") as rows:
            for batch in pq.ParquetFile(shard).iter_batches(1000, columns=["text_number", "text", "vector"]):
                for row in batch.to_pylist():
                    text = row["text"].replace("\0", " ")  # which PostgreSQL does not store
                    rows.write_row((shard.name, row["text_number"], text, str(row["vector"])))


def nearest(connection: psycopg.Connection, embedder: Embedder, query: str, top: int = 5) -> list[tuple[float, str]]:
    """The texts with the highest cosines to the query, and these, best first."""
    prompt = "query" if "query" in embedder.modules.prompts else None
    vector = str(embedder.texts([query], prompt_name=prompt)[0].tolist())
    found = "SELECT 1 - (vector <=> %s), text FROM passages ORDER BY vector <=> %s LIMIT %s"
    return connection.execute(found, [vector, vector, top]).fetchall()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("query")
    parser.add_argument("--database", required=True)
    parser.add_argument("--load", type=Path, nargs="+", default=[])
    options = parser.parse_args()
    with psycopg.connect(options.database) as connection:
        for shard in options.load:
            load(connection, shard)
        for cosine, text in nearest(connection, Embedder(options.model), options.query):
            print(f"{cosine:.3f}  {text}")


if __name__ == "__main__":
    main()
