"""Time, memory and size of `mybert index`, and time and recall of searches.

    python benchmarks/index.py MODEL TEXT… --output FOLDER [--passages 100000] [--words 50] [--queries 300]
        [--precision float32] [--vectors VECTORS.npy] [--markdown FILE]

The texts are cut into passages of WORDS words, one document each. If they have too few, passages are repeated with a
tenth of their words replaced by words of others. With `--vectors`, a file of `mybert embed --normalize`, nothing is
encoded: each passage gets the mean of two of these vectors, drawn at random. So a million passages take minutes, and
the time of encoding has to be added. FOLDER keeps passages and index; the same command again only searches.

`mybert index` runs in a process of its own. Its memory is sampled from /proc (Linux): what it has allocated, and pages
of mapped files, which the kernel gives up when others need memory.

A query has six of eight consecutive words of a passage. Searches for ten documents run on one core. Beside the time
that passes there is the processor time, which other processes on the machine hardly change. Recall is the share of
the ten documents of a search by vectors whose cosine is among the ten highest of all passages.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from sides import timed

_INDEX = "import sys; from index import run; sys.exit(run(*sys.argv[1:]))"
_TOP = 10
_BLOCK = 1 << 15  # passages
_SAMPLE = 500  # passages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=50)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--markdown", help="file to which the table is added")
    given = parser.parse_args()
    output = given.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    passages, folder = output / "passages.jsonl", output / "index"
    if not passages.is_file():
        write_passages(given.texts, passages, given.passages, given.words)
    rows = [] if folder.is_dir() else build(given.model, passages, folder, given.precision, given.vectors)
    rows += searches(folder, queries(passages, given.queries))

    from saved_tables import save_table

    save_table(given.markdown, f"{given.passages:,} passages of {given.words} words", rows, ("measured", "value"))


def write_passages(texts: list[str], path: Path, count: int, words: int) -> None:
    """Writes rows with `id` and `text`."""
    from mybert.io.documents import read_documents

    draw, seen = random.Random(0), []

    def cut() -> Iterator[str]:
        for document in read_documents(texts):
            found = document.text.split()
            for start in range(0, len(found) - words // 2, words):
                yield " ".join(found[start : start + words])

    pieces = cut()
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            if passage := next(pieces, None):
                seen.append(passage)
            else:
                passage = changed(draw, seen)
            file.write(json.dumps({"id": number, "text": passage}) + "\n")
    print(f"{len(seen):,} of {count:,} passages are of the texts, the others repeat them with changes", flush=True)


def changed(draw: random.Random, passages: list[str]) -> str:
    """A passage with a tenth of its words replaced."""
    words = draw.choice(passages).split()
    for place in draw.sample(range(len(words)), max(len(words) // 10, 1)):
        words[place] = draw.choice(draw.choice(passages).split())
    return " ".join(words)


def build(model: str, passages: Path, folder: Path, precision: str, vectors: Path | None) -> list[tuple[str, str]]:
    """Runs `mybert index`; returns rows of the table."""
    from corpus_memory import held_memory

    given = str(vectors.resolve()) if vectors else ""
    command = [sys.executable, "-c", _INDEX, given, "index", model, str(passages), "--output", str(folder)]
    begun, peaks = time.perf_counter(), {"RssAnon": 0.0, "RssFile": 0.0}
    command += ["--precision", precision, "--language", "en"]
    with subprocess.Popen(command, cwd=Path(__file__).parent) as process:
        while process.poll() is None:
            held = held_memory(process.pid)
            peaks = {name: max(peak, held[name]) for name, peak in peaks.items()}
            time.sleep(0.1)
    if process.returncode:
        raise SystemExit("mybert index failed")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    passed, computed = time.perf_counter() - begun, used.ru_utime + used.ru_stime
    return [
        ("mybert index", f"{passed:,.0f} s; {computed:,.0f} s of the processor"),
        ("memory, MB", f"{peaks['RssAnon']:,.0f}"),
        ("mapped files, MB", f"{peaks['RssFile']:,.0f}"),
        ("size of the index, MB", f"{size / 1e6:,.0f}"),
    ]


def run(vectors: str, *words: str) -> int:
    """`mybert`, with an encoder that mixes given vectors."""
    from mybert.cli import main
    from mybert.retrieval.encoder import Encoder

    def passages(self, texts, progress=None):
        if len(texts) < _SAMPLE:  # for the weight of BM25
            return encode(self, texts, progress)
        mixed = known[draw.integers(len(known), size=(len(texts), 2))].sum(axis=1)
        return mixed / np.linalg.norm(mixed, axis=1, keepdims=True)

    if vectors:
        known, draw, encode = np.load(vectors), np.random.default_rng(0), Encoder.passages
        Encoder.passages = passages
    return main(list(words))


def queries(passages: Path, count: int) -> list[str]:
    draw = random.Random(1)
    lines = passages.read_text(encoding="utf-8").splitlines()
    found = []
    for line in draw.sample(lines, count):
        words = json.loads(line)["text"].split()
        start = draw.randrange(len(words) - 8)
        kept = sorted(draw.sample(range(start, start + 8), 6))
        found.append(" ".join(words[place] for place in kept))
    return found


def searches(folder: Path, asked: list[str]) -> list[tuple[str, str]]:
    """Searches on one core; returns rows of the table."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.environ["RAYON_NUM_THREADS"] = os.environ["TOKENIZERS_PARALLELISM"] = "1"
    import torch

    from mybert import Index

    torch.set_num_threads(1)
    index = Index(folder, device="cpu")
    rows = [row("vector of a query", milliseconds(asked, lambda query: index.encoder.queries([query])))]
    for mode in ("dense", "words", "hybrid"):
        rows.append(row(mode, milliseconds(asked, lambda query, mode=mode: index.search(query, _TOP, mode))))
    rows.append(("recall of the ten nearest", f"{recall(index, asked):.4f}"))
    return rows


def milliseconds(asked: Iterable[str], function) -> np.ndarray:
    """(queries, 2): time that passed and processor time, after a round that is not measured."""
    found = [timed(function, query)[1:] for query in [*islice(asked, 20), *asked]]
    return 1000 * np.array(found[20:])


def row(name: str, seconds: np.ndarray) -> tuple[str, str]:
    middle, high = np.percentile(seconds, (50, 99), axis=0)
    numbers = f"p50 {middle[0]:.1f} ms, p99 {high[0]:.1f} ms; of the processor {middle[1]:.1f} and {high[1]:.1f} ms"
    return f"search, {name}" if name != "vector of a query" else name, numbers


def recall(index, asked: list[str]) -> float:
    """The share of the ten documents found by vectors that are among the ten nearest."""
    vectors = index.encoder.queries(asked)
    best = np.full((len(asked), _TOP), -np.inf, dtype=np.float32)
    for segment in index.store.segments:
        for start in range(0, len(segment), _BLOCK):
            block = slice(start, start + _BLOCK)
            cosines = vectors @ segment.vectors[block].astype(np.float32).T / segment.norms[block]
            best = np.sort(np.concatenate([best, cosines], axis=1), axis=1)[:, -_TOP:]
    found = [[hit.score for hit in index.search(query, _TOP, "dense")] for query in asked]
    return float(np.mean(np.array(found) >= best[:, :1] - 1e-6))


if __name__ == "__main__":
    main()
