"""Train a retriever on the documents of collections alone, and score it beside its start model and BM25.

    python benchmarks/retrieval.py MODEL COLLECTION … [--output FOLDER] [--options mined_pairs=2000 seed=1 …]
    python benchmarks/retrieval.py MODEL COLLECTION … --targets 0.5 0.7 1

A COLLECTION is a folder with corpus.jsonl.zst, queries.dev.jsonl and qrels.dev.tsv. Its documents train the model, as
by `mybert finetune --task retrieval --documents`; its queries and judgements only score it. Without --output, MODEL is
scored and nothing is trained. For each model the command prints nDCG@10 of its vectors, of the reciprocal ranks of it
and BM25, and of the hybrid scores, with the weight of BM25 that is chosen from the documents; then the difference of
the trained model from MODEL with its standard error over queries. Trained models stay in FOLDER; the same command
again trains missing ones only. With --targets, nothing is trained: the command prints nDCG@10 of vectors of whole
documents by the words alone, by MODEL, and by both joined, with the length of the first as a multiple of the second.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from transformers.utils import logging

from mybert import finetune
from mybert.retrieval.balance import balance
from mybert.retrieval.collections import Texts, read_judgements, read_texts
from mybert.retrieval.encoder import Encoder
from mybert.retrieval.latent_semantics import LatentSemantics
from mybert.retrieval.passages import DocumentVectors
from mybert.retrieval.ranking import combined, score_ranking
from mybert.retrieval.words import Words, best_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("collections", type=Path, nargs="+")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--options", nargs="*", default=[], help="settings of `mybert finetune`")
    parser.add_argument("--targets", type=float, nargs="+", help="multiples; see above")
    given = parser.parse_args()
    logging.disable_progress_bar()
    if given.targets:
        print_targets(given.model, given.collections, given.targets)
        return
    options = {name: json.loads(value) for name, value in (option.split("=", 1) for option in given.options)}
    print("| collection | BM25 | model | vectors | reciprocal ranks | hybrid | weight | difference |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for folder in given.collections:
        collection = Collection(folder)
        start = collection.print_scores("start", given.model)
        if given.output:
            output = given.output / folder.name
            if not (output / "results.json").is_file():
                documents = [str(folder / "corpus.jsonl.zst")]
                finetune(task="retrieval", model=given.model, documents=documents, output=str(output), **options)
            collection.print_scores("trained", str(output), start)


class Collection:
    """Documents, and queries with a relevant one."""

    def __init__(self, folder: Path):
        self.name = folder.name
        corpus = next(folder.glob("corpus.jsonl*"))
        self.documents = read_texts([str(corpus)], "documents")
        queries = read_texts([str(folder / "queries.dev.jsonl")], "queries")
        self.grades = read_judgements(str(folder / "qrels.dev.tsv"), queries.ids, self.documents.ids).grades
        kept = [place for place, key in enumerate(queries.ids) if key in self.grades]
        self.queries = Texts(*([values[place] for place in kept] for values in queries))
        words = Words.of(self.documents.passages())
        self.language = words.analyzer.language
        self.by_words = np.array([words.scores(query) for query in self.queries.texts])

    def print_scores(self, kind: str, model: str, before: np.ndarray | None = None) -> np.ndarray:
        """Prints a row of the table; returns nDCG@10 of each query by vectors alone."""
        encoder, documents = Encoder(model, device="cpu"), self.documents
        vectors = DocumentVectors(encoder, documents, self.language)
        similar = vectors.cosines(encoder.queries(self.queries.texts))
        weight = balance(documents.titles, documents.texts, encoder.queries, encoder.passages, encoder.start_weight)
        pairs = list(zip(similar, self.by_words, strict=True))
        systems = (
            similar,
            [sum(map(reciprocal_ranks, pair)) for pair in pairs],
            [combined(*p, weight) for p in pairs],
        )
        found = [self.score(scores) for scores in (self.by_words, *systems)]
        bm25, *others = (f"{scores.mean():.3f}" for scores in found)
        cells = [self.name, bm25, kind, *others, f"{weight:g}"]
        if before is not None:
            change = 100 * (found[1] - before)
            cells.append(f"{change.mean():+.1f} ± {change.std() / len(change) ** 0.5:.1f}")
        print("|", " | ".join(cells), "|", flush=True)
        return found[1]

    def score(self, systems: Sequence[np.ndarray]) -> np.ndarray:
        """nDCG@10 of each query, whose documents have these scores."""
        found = []
        for scores, key in zip(systems, self.queries.ids, strict=True):
            ranked = [self.documents.ids[row] for row in best_rows(scores, 10)]
            found.append(score_ranking(ranked, self.grades[key])["ndcg@10"])
        return np.array(found)


def print_targets(model: str, folders: Sequence[Path], multiples: Sequence[float]) -> None:
    """Prints what the targets of training on documents reach; see the top of this file."""
    encoder = Encoder(model, device="cpu")
    names = ["words", "model", *map(str, multiples)]
    print("| collection | " + " | ".join(names) + " |\n| --- |" + " ---: |" * len(names))
    for collection in map(Collection, folders):
        queries, documents = collection.queries.texts, collection.documents.passages()
        words = LatentSemantics(documents, seed=0)
        by_words = words.texts(queries), words.texts(documents)
        by_model = encoder.queries(queries), encoder.passages(documents)
        joined = [[np.hstack([m, x * w]) for m, w in zip(by_model, by_words, strict=True)] for x in multiples]
        systems = [collection.score(left @ right.T).mean() for left, right in (by_words, by_model, *joined)]
        print(f"| {collection.name} | " + " | ".join(f"{score:.3f}" for score in systems) + " |", flush=True)


def reciprocal_ranks(scores: np.ndarray) -> np.ndarray:
    """1 / (60 + rank) of each document (Cormack, Clarke and Büttcher 2009)."""
    found = np.empty(len(scores))
    found[np.argsort(-scores, kind="stable")] = 1 / (60 + np.arange(1, len(scores) + 1))
    return found


if __name__ == "__main__":
    main()
