"""Train a retriever and a reranker on labelled queries, and score both beside BM25 and the start model.

    python benchmarks/labelled_search.py MODEL COLLECTION --train QUERIES JUDGEMENTS --output FOLDER
    python benchmarks/labelled_search.py MODEL FOLDER/qa --questions qa/train.jsonl qa/dev.jsonl --output FOLDER

COLLECTION is a folder as in retrieval.py; QUERIES and JUDGEMENTS are other queries of its documents. With --questions,
rows of a set of questions with their contexts train the models, and the collection is made of the second file: each
context is a document, each question a query. Reranked are the 100 documents that the trained retriever and BM25 rank
best together, for --reranked queries drawn at random. Finished models in FOLDER are not trained again.

With --channel, a retriever is trained on the rows alone and another one on the rows and the documents, which give it a
channel of words; there is no reranker. --documents and --rows make it shorter: the documents that are relevant for a
query and some of the others, and the first rows.
"""

import argparse
import json
import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from retrieval import Collection
from rich.progress import track
from transformers.utils import logging

from mybert import finetune
from mybert.retrieval.balance import balance
from mybert.retrieval.collections import read_judgements, read_texts
from mybert.retrieval.encoder import Encoder, Reranker
from mybert.retrieval.passages import DocumentVectors
from mybert.retrieval.ranking import RERANKED, combined, reranked, score_ranking
from mybert.retrieval.words import best_rows

_COLUMNS = ("id", "title", "text")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("collection", type=Path)
    parser.add_argument("--train", nargs=2, metavar=("QUERIES", "JUDGEMENTS"))
    parser.add_argument("--questions", nargs=2, type=Path, metavar=("TRAIN", "DEV"))
    parser.add_argument("--reranked", type=int, default=100, help="queries whose documents are reranked")
    parser.add_argument("--options", nargs="*", default=[], help="settings of `mybert finetune`")
    parser.add_argument("--channel", action="store_true")
    parser.add_argument("--documents", type=int, help="with --channel")
    parser.add_argument("--rows", type=int, help="with --channel")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    logging.disable_progress_bar()
    if given.questions:
        collection_of_questions(given.questions[1], given.collection)
        rows: dict[str, object] = {"train": [str(given.questions[0])]}
    else:
        queries, judgements = given.train
        documents = [str(given.collection / "corpus.jsonl.zst")]
        rows = {"documents": documents, "queries": queries, "judgements": judgements}
    if given.channel:
        compare_channel(given)
        return
    rows |= options_of(given.options)
    collection = Collection(given.collection)
    print_head()
    start = collection.print_scores("start", given.model)
    folders = {task: str(given.output / task) for task in ("retrieval", "reranking")}
    if not (given.output / "retrieval" / "results.json").is_file():
        finetune(task="retrieval", model=given.model, output=folders["retrieval"], **rows)
    collection.print_scores("trained", folders["retrieval"], start)
    if not (given.output / "reranking" / "results.json").is_file():
        finetune(task="reranking", model=given.model, output=folders["reranking"], **rows)
    rerank(collection, folders["retrieval"], folders["reranking"], given.reranked)


def print_head() -> None:
    print("| collection | BM25 | model | vectors | reciprocal ranks | hybrid | weight | difference |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |", flush=True)


def options_of(given: list[str]) -> dict[str, object]:
    return {name: json.loads(value) for name, value in (option.split("=", 1) for option in given)}


def compare_channel(given: argparse.Namespace) -> None:
    """Scores a retriever of rows beside one of rows and documents, on dev queries that it has not seen."""
    whole, folder = Collection(given.collection), given.output / given.collection.name
    folder.mkdir(parents=True, exist_ok=True)
    passages = whole.documents.passages()
    texts = dict(zip(whole.documents.ids, passages, strict=True))
    if given.questions:
        lines = [json.loads(line) for line in given.questions[0].read_text(encoding="utf-8").split("\n") if line]
        rows = [{"query": line["question"], "positive": line["context"]} for line in lines]
    else:
        asked = read_texts([given.train[0]], "queries")
        queries = dict(zip(asked.ids, asked.passages(), strict=True))
        grades = read_judgements(given.train[1], queries, texts).grades
        rows = [{"query": queries[key], "positive": texts[one]} for key, of in grades.items() for one in of if of[one]]
    write_rows(folder / "rows.jsonl", rows[: given.rows])
    answers = {row["positive"] for row in rows} | {texts[key] for of in whole.grades.values() for key in of}
    order = sorted(range(len(texts)), key=lambda place: passages[place] not in answers)
    kept = sorted(order[: given.documents])
    write_rows(
        folder / "corpus.jsonl",
        ({name: values[place] for name, values in zip(_COLUMNS, whole.documents, strict=True)} for place in kept),
    )
    for name in ("queries.dev.jsonl", "qrels.dev.tsv"):
        shutil.copy(given.collection / name, folder)
    collection, before = Collection(folder), None
    print_head()
    collection.print_scores("start", given.model)
    for name, documents in (("rows", {}), ("rows and documents", {"documents": [str(folder / "corpus.jsonl")]})):
        output = given.output / name.replace(" ", "_")
        if not (output / "results.json").is_file():
            options: dict[str, object] = documents | options_of(given.options)
            train = [str(folder / "rows.jsonl")]
            finetune(task="retrieval", model=given.model, train=train, output=str(output), **options)
        before = collection.print_scores(name, str(output), before)


def write_rows(file: Path, rows: Iterable[dict[str, str]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def collection_of_questions(file: Path, folder: Path) -> None:
    """Writes a collection whose documents are the contexts of questions."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
    ids = {context: f"d{number}" for number, context in enumerate(dict.fromkeys(row["context"] for row in rows))}
    documents = [{"id": key, "text": context} for context, key in ids.items()]
    queries = [{"id": row["id"], "text": row["question"]} for row in rows]
    for name, lines in (("corpus.jsonl", documents), ("queries.dev.jsonl", queries)):
        write_rows(folder / name, lines)
    judgements = "".join(f"{row['id']}\t{ids[row['context']]}\t1\n" for row in rows)
    (folder / "qrels.dev.tsv").write_text(judgements, encoding="utf-8")


def rerank(collection: Collection, retriever: str, reranker: str, count: int) -> None:
    """Prints nDCG@10 of `count` queries, drawn at random: BM25, hybrid scores, and each of them reranked."""
    encoder, model, documents = Encoder(retriever, device="cpu"), Reranker(reranker), collection.documents
    vectors = DocumentVectors(encoder, documents, collection.language)
    weight = balance(documents.titles, documents.texts, encoder.queries, encoder.passages, encoder.start_weight)
    texts, (ids, _, queries) = documents.passages(), collection.queries
    drawn = random.Random(0).sample(range(len(ids)), min(count, len(ids)))
    similar = vectors.cosines(encoder.queries([queries[place] for place in drawn]))
    scores: dict[str, list[float]] = {}
    for place, cosines in track(list(zip(drawn, similar, strict=True)), description="reranking"):
        key, query, by_words = ids[place], queries[place], collection.by_words[place]
        for name, first in (("BM25", by_words), ("hybrid", combined(cosines, by_words, weight))):
            ranked = best_rows(first, RERANKED)
            logits = model.scores(query, [texts[row] for row in ranked])
            alone, both = (np.argsort(-one, kind="stable") for one in (logits, reranked(first[ranked], logits)))
            orders = {name: ranked, f"{name}, reranked": ranked[both], f"{name}, reranker alone": ranked[alone]}
            for label, rows in orders.items():
                metrics = score_ranking([documents.ids[row] for row in rows], collection.grades[key])
                scores.setdefault(label, []).append(metrics["ndcg@10"])
    for label, values in scores.items():
        print(f"| {label}, {len(values)} queries | {np.mean(values):.3f} |")


if __name__ == "__main__":
    main()
