"""`mybert evaluate --documents`: a retriever beside BM25, the model that it was trained from, and their fusion."""

import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mybert.artifacts.manifest import (
    ANALYSIS,
    PREDICTIONS,
    RESULTS,
    identity,
    inputs_of,
    json_line,
    read_manifest,
    versions,
    write_json,
    write_manifest,
)
from mybert.artifacts.staging import staged_folder
from mybert.common.metrics import metric_title
from mybert.common.progress import Bar
from mybert.common.tables import RETRIEVAL_SYSTEMS, print_table
from mybert.io.sources import describe_sources, find_sources
from mybert.retrieval.balance import balance
from mybert.retrieval.collections import OF_DOCUMENTS, Judgements, Texts, read_judgements, read_texts
from mybert.retrieval.encoder import Encoder, Reranker
from mybert.retrieval.passages import DocumentVectors
from mybert.retrieval.ranking import (
    METRICS,
    RERANKED,
    combined,
    interval_of_mean,
    reranked,
    score_ranking,
    shown_interval,
)
from mybert.retrieval.words import Words, best_rows
from mybert.tasks.options import pairs
from mybert.tasks.settings import EvaluateSettings

_DEPTH = 1000  # documents of a ranking
_SHOWN, _WORST = 10, 20  # documents of a query in predictions.jsonl, queries in analysis.json
_CHARACTERS = 300
_BLOCK = 64  # queries that are compared with all documents at once

Rankings = list[np.ndarray]
"""The rows of the documents of each query, best first."""


def evaluate_retrieval(settings: EvaluateSettings) -> Path:
    """Ranks the documents of a collection for its queries and scores the rankings.

    Returns:
        The output folder with results.json, analysis.json, predictions.jsonl (one query per line) and
        manifest.json.

    Raises:
        UserError: model, collection, output or a setting cannot be used; nothing is written.
    """
    assert settings.queries is not None and settings.judgements is not None  # otherwise there are no documents
    began, inputs = time.perf_counter(), (settings.model, *settings.documents, settings.queries, settings.judgements)
    with staged_folder(settings.output, overwrite=settings.overwrite, stage="evaluate", inputs=inputs) as folder:
        columns = pairs("columns", settings.columns, "ROLE=COLUMN, such as text=body", OF_DOCUMENTS)
        documents = read_texts(settings.documents, "documents", settings.errors, columns)
        queries = read_texts([settings.queries], "queries", settings.errors)
        judged = read_judgements(settings.judgements, queries.ids, documents.ids, settings.errors)
        queries = _only(queries, judged)
        trained_from = inputs_of(read_manifest(settings.model)).get("model", {}).get("path")
        start = settings.start or (trained_from if trained_from and Path(trained_from).is_dir() else settings.model)
        rankings, facts = _rank_all(settings, start, documents, queries)
        scored = {name: _scores(ranked, documents, queries, judged) for name, ranked in rankings.items()}
        results = _results(scored, settings) | {
            **facts,
            "start_model": start,
            "documents": len(documents.ids),
            "left_out": dict(judged.left_out),
            "seconds": round(time.perf_counter() - began, 1),
            "settings": dataclasses.asdict(settings),
            "versions": versions(),
        }
        write_json(folder / RESULTS, results)
        lines = _lines(rankings, scored, documents, queries, judged)
        (folder / PREDICTIONS).write_text("".join(map(json_line, lines)), encoding="utf-8", newline="\n")
        analysis = {"worse": {other: _worse(lines, other) for other in ("bm25", "start")}}
        (folder / ANALYSIS).write_text(json_line(analysis), encoding="utf-8", newline="\n")
        files = find_sources([*settings.documents, settings.queries, settings.judgements])
        models = {"model": settings.model, "start": start}
        models |= {"reranker": settings.reranker} if settings.reranker else {}
        write_manifest(
            folder,
            "evaluate",
            settings=settings,
            inputs={name: identity(path) for name, path in models.items()} | describe_sources(files),
            counts={"documents": len(documents.ids), "queries": len(queries.ids)},
            metrics=results["model"],
        )
    _print(results)
    return Path(settings.output)


def _only(queries: Texts, judged: Judgements) -> Texts:
    """The queries that have a relevant document."""
    kept = [place for place, key in enumerate(queries.ids) if key in judged.grades]
    return Texts(*([values[place] for place in kept] for values in queries))


def _rank_all(
    settings: EvaluateSettings, start: str, documents: Texts, queries: Texts
) -> tuple[dict[str, Rankings], dict[str, Any]]:
    """The rankings of each system, and the language of BM25 and its weight in the hybrid."""
    passages, asked = documents.passages(), queries.passages()
    words = Words.of(passages, settings.language)
    options: dict[str, Any] = {"device": settings.device, "dtype": settings.dtype}
    options |= {"max_length": settings.max_length, "max_tokens_per_batch": settings.max_tokens_per_batch}
    encoder = Encoder(settings.model, **options)
    weight = balance(documents.titles, documents.texts, encoder.queries, encoder.passages, encoder.start_weight)
    similar = _cosines(encoder, documents, asked, words.analyzer.language)
    if start == settings.model and encoder.is_plain:  # equal vectors, so they are computed once
        similar, before = itertools.tee(similar)
    else:
        before = _cosines(Encoder(start, plain=True, **options), documents, asked, words.analyzer.language)
    reranker = None
    if settings.reranker:
        reranker = Reranker(settings.reranker, device=settings.device, dtype=settings.dtype)
    rankings: dict[str, Rankings] = {"model": [], "bm25": [], "start": [], "hybrid": []}
    rankings |= {"reranked": []} if reranker else {}
    each = zip(asked, _twins(documents, queries), similar, before, strict=True)
    for query, twin, of_model, of_start in Bar(each, total=len(asked), desc="ranking", unit="queries", leave=False):
        by_words = words.scores(query)
        both = combined(of_model, by_words, weight)
        for name, scores in (("model", of_model), ("bm25", by_words), ("start", of_start), ("hybrid", both)):
            rows = best_rows(scores, _DEPTH + 1)
            rows = rows[(rows != twin) & ((scores[rows] > 0) | (name != "bm25"))]
            rankings[name].append(rows[:_DEPTH])
        if reranker:
            first, others = np.split(rankings["hybrid"][-1], [RERANKED])
            scores = reranked(both[first], reranker.scores(query, [passages[row] for row in first.tolist()]))
            rankings["reranked"].append(np.concatenate([first[np.argsort(-scores, kind="stable")], others]))
    return rankings, {"language": words.analyzer.language, "words_weight": weight}


def _twins(documents: Texts, queries: Texts) -> list[int]:
    """The document that is the query itself, with its id and text, as in some collections; it is not to be found."""
    places = {key: row for row, key in enumerate(documents.ids)}
    rows = [places.get(key, -1) for key in queries.ids]
    return [
        row if row >= 0 and text == documents.texts[row] else -1 for row, text in zip(rows, queries.texts, strict=True)
    ]


def _cosines(encoder: Encoder, documents: Texts, asked: list[str], language: str) -> Iterator[np.ndarray]:
    """(documents,) float32 of each query."""
    vectors, encoded = DocumentVectors(encoder, documents, language), encoder.queries(asked)
    return (one for first in range(0, len(asked), _BLOCK) for one in vectors.cosines(encoded[first : first + _BLOCK]))


def _scores(rankings: Rankings, documents: Texts, queries: Texts, judged: Judgements) -> dict[str, np.ndarray]:
    """Each metric of each query."""
    scores = [
        score_ranking([documents.ids[row] for row in rows], judged.grades[key])
        for rows, key in zip(rankings, queries.ids, strict=True)
    ]
    return {name: np.array([one[name] for one in scores]) for name in METRICS}


def _results(scored: dict[str, dict[str, np.ndarray]], settings: EvaluateSettings) -> dict[str, Any]:
    """Means, and the differences of the model from the others and of reranking from the hybrid, with intervals."""

    def interval(values: np.ndarray, is_bounded: bool = True) -> tuple[float, float] | None:
        return interval_of_mean(values, settings.bootstrap, settings.seed, is_bounded)

    def differences(one: str, others: Iterable[str]) -> dict[str, dict[str, dict[str, Any]]]:
        by_other = {other: {name: scored[one][name] - scored[other][name] for name in METRICS} for other in others}
        return {
            other: {
                name: {"mean": float(of.mean()), "interval": interval(of, False)} for name, of in by_metric.items()
            }
            for other, by_metric in by_other.items()
        }

    reranked_from = {"reranked_differences": differences("reranked", ["hybrid"])} if "reranked" in scored else {}
    return {
        "task": "retrieval",
        "metric": METRICS[0],
        **{system: {name: float(values.mean()) for name, values in of.items()} for system, of in scored.items()},
        "intervals_95": {
            system: {name: interval(values) for name, values in of.items()} for system, of in scored.items()
        },
        "differences": differences("model", (other for other in scored if other != "model")),
        **reranked_from,
        "rows": len(scored["model"][METRICS[0]]),
    }


def _lines(
    rankings: dict[str, Rankings],
    scored: dict[str, dict[str, np.ndarray]],
    documents: Texts,
    queries: Texts,
    judged: Judgements,
) -> list[dict[str, Any]]:
    """What each system found for each query."""
    places = {key: row for row, key in enumerate(documents.ids)}
    passages = documents.passages()

    def shown(row: int, grades: dict[str, int]) -> dict[str, Any]:
        key = documents.ids[row]
        return {"id": key, "grade": grades.get(key, 0), "text": passages[row][:_CHARACTERS]}

    lines = []
    for number, (key, query) in enumerate(zip(queries.ids, queries.passages(), strict=True)):
        grades = judged.grades[key]
        relevant = sorted((name for name in grades if grades[name]), key=lambda name: -grades[name])
        lines.append(
            {
                "id": key,
                "query": query,
                "scores": {
                    system: {name: float(of[name][number]) for name in METRICS} for system, of in scored.items()
                },
                "relevant": [shown(places[name], grades) for name in relevant[:_SHOWN]],
                "found": {
                    system: [shown(row, grades) for row in ranked[number][:_SHOWN].tolist()]
                    for system, ranked in rankings.items()
                },
            }
        )
    return lines


def _worse(lines: Sequence[dict[str, Any]], other: str) -> dict[str, Any]:
    """The queries for which the model is worse than another system, the largest differences first."""

    def difference(line: dict[str, Any]) -> float:
        return line["scores"]["model"][METRICS[0]] - line["scores"][other][METRICS[0]]

    worse = sorted((line for line in lines if difference(line) < 0), key=difference)
    rows = [
        {
            "id": line["id"],
            "query": line["query"],
            "model": line["scores"]["model"][METRICS[0]],
            other: line["scores"][other][METRICS[0]],
            "relevant": line["relevant"][0],
            "found": line["found"]["model"][0] if line["found"]["model"] else None,
        }
        for line in worse[:_WORST]
    ]
    better = sum(difference(line) > 0 for line in lines)
    return {"worse": len(worse), "better": better, "queries": rows}


def _print(results: dict[str, Any]) -> None:
    rows = []
    for system, title in RETRIEVAL_SYSTEMS.items():
        if system not in results:
            continue
        interval = shown_interval(results["intervals_95"][system][METRICS[0]])
        rows.append((title, *(f"{results[system][name]:.3f}" for name in METRICS), interval))
    print(f"{results['rows']:,} queries, {results['documents']:,} documents, language of BM25: {results['language']}")
    columns = ("ranked by", *map(metric_title, METRICS), "95% interval")
    print_table("Retrieval", rows, columns)
    if reranked := results.get("reranked_differences"):
        one = reranked["hybrid"][METRICS[0]]
        low, high = one["interval"] or (None, None)
        interval = "" if low is None else f" (95% interval {low:+.3f} to {high:+.3f})"
        print(f"the reranker changes {metric_title(METRICS[0])} of the hybrid by {one['mean']:+.3f}{interval}")
