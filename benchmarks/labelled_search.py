"""Train a retriever and a reranker on labelled queries, and score both beside BM25 and the start model.

    python benchmarks/labelled_search.py MODEL COLLECTION --train QUERIES JUDGEMENTS --output FOLDER
    python benchmarks/labelled_search.py MODEL FOLDER/qa --questions qa/train.jsonl qa/dev.jsonl --output FOLDER

COLLECTION is a folder as in retrieval.py; QUERIES and JUDGEMENTS are other queries of its documents. With --questions,
rows of a set of questions with their contexts train the models, and the collection is made of the second file: each
context is a document, each question a query. Reranked are the 100 documents that the trained retriever and BM25 rank
best together, for the first --reranked queries. Finished models in FOLDER are not trained again.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from retrieval import Collection
from rich.progress import track
from transformers.utils import logging

from mybert import finetune
from mybert.retrieval.balance import balance
from mybert.retrieval.encoder import Encoder, Reranker
from mybert.retrieval.passages import DocumentVectors
from mybert.retrieval.ranking import combined, score_ranking
from mybert.retrieval.words import best_rows

_DEPTH = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("collection", type=Path)
    parser.add_argument("--train", nargs=2, metavar=("QUERIES", "JUDGEMENTS"))
    parser.add_argument("--questions", nargs=2, type=Path, metavar=("TRAIN", "DEV"))
    parser.add_argument("--reranked", type=int, default=100, help="queries whose documents are reranked")
    parser.add_argument("--options", nargs="*", default=[], help="settings of `mybert finetune`")
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
    rows |= {name: json.loads(value) for name, value in (option.split("=", 1) for option in given.options)}
    collection = Collection(given.collection)
    print("| collection | BM25 | model | vectors | reciprocal ranks | hybrid | weight | difference |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    start = collection.print_scores("start", given.model)
    folders = {task: str(given.output / task) for task in ("retrieval", "reranking")}
    if not (given.output / "retrieval" / "results.json").is_file():
        finetune(task="retrieval", model=given.model, output=folders["retrieval"], **rows)
    collection.print_scores("trained", folders["retrieval"], start)
    if not (given.output / "reranking" / "results.json").is_file():
        finetune(task="reranking", model=given.model, output=folders["reranking"], **rows)
    rerank(collection, folders["retrieval"], folders["reranking"], given.reranked)


def collection_of_questions(file: Path, folder: Path) -> None:
    """Writes a collection whose documents are the contexts of questions."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
    ids = {context: f"d{number}" for number, context in enumerate(dict.fromkeys(row["context"] for row in rows))}
    documents = [{"id": key, "text": context} for context, key in ids.items()]
    queries = [{"id": row["id"], "text": row["question"]} for row in rows]
    for name, lines in (("corpus.jsonl", documents), ("queries.dev.jsonl", queries)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    judgements = "".join(f"{row['id']}\t{ids[row['context']]}\t1\n" for row in rows)
    (folder / "qrels.dev.tsv").write_text(judgements, encoding="utf-8")


def rerank(collection: Collection, retriever: str, reranker: str, count: int) -> None:
    """Prints nDCG@10 of the first `count` queries: BM25, hybrid scores, and each of them reranked."""
    encoder, model, documents = Encoder(retriever, device="cpu"), Reranker(reranker), collection.documents
    vectors = DocumentVectors(encoder, documents, collection.language)
    weight = balance(documents.titles, documents.texts, encoder.queries, encoder.passages, encoder.start_weight)
    texts, queries = documents.passages(), list(zip(collection.queries.ids, collection.queries.texts, strict=True))
    similar = vectors.cosines(encoder.queries(collection.queries.texts[:count]))
    scores: dict[str, list[float]] = {"BM25": [], "BM25, reranked": [], "hybrid": [], "hybrid, reranked": []}
    for (key, query), cosines, by_words in track(
        list(zip(queries[:count], similar, collection.by_words, strict=False)), description="reranking"
    ):
        for name, first in (("BM25", by_words), ("hybrid", combined(cosines, by_words, weight))):
            ranked = best_rows(first, _DEPTH)
            order = np.argsort(-model.scores(query, [texts[row] for row in ranked]), kind="stable")
            for label, rows in ((name, ranked), (f"{name}, reranked", [ranked[place] for place in order])):
                metrics = score_ranking([documents.ids[row] for row in rows], collection.grades[key])
                scores[label].append(metrics["ndcg@10"])
    for label, values in scores.items():
        print(f"| {label}, {len(values)} queries | {np.mean(values):.3f} |")


if __name__ == "__main__":
    main()
