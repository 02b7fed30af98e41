"""Prediction requests and responses: rows, and the formats of text-embeddings-inference (TEI)."""

import uuid
from collections.abc import Callable
from typing import Any

from scipy.special import expit, logit
from torch.nn import Sigmoid

from mybert.common.errors import short, short_list
from mybert.inference.logits import as_rows, inputs_of, token_count
from mybert.serving.requests import (
    Body,
    Refused,
    Work,
    check_count,
    check_fields,
    check_parameters,
    field,
    json_bytes,
    json_list,
)
from mybert.serving.served import CHARACTERS_PER_TOKEN, MAX_COLUMN_SETS, MAX_COLUMNS, MAX_SCORES, ServedTask
from mybert.tasks.base import Prediction
from mybert.tasks.text_classification import TextClassification


def predict(served: ServedTask, body: Body) -> Work:
    """Predicts `rows` as `mybert predict` does, or TEI's `inputs`: a text, a pair of texts, or a list of lists of
    texts."""
    has_inputs = served.task == "text-classification"
    if body.get("rows") is not None:
        if body.get("inputs") is not None:
            raise Refused(422, "expected rows or inputs, found both; send two requests")
        check_fields(body, "rows")
        return _work(
            served, field(body, "rows", list), lambda predictions: b'{"predictions": ' + json_list(predictions) + b"}"
        )
    if body.get("inputs") is None or not has_inputs:
        expected = "rows or inputs" if has_inputs else "rows"
        raise Refused(422, f"expected {expected}, found {short_list(body) or 'nothing'}")
    check_parameters(body)
    if field(body, "raw_scores", bool, False):
        raise Refused(422, "raw_scores: only probabilities are supported; leave it out")
    inputs = body["inputs"]
    single = isinstance(inputs, str) or (isinstance(inputs, list) and all(isinstance(x, str) for x in inputs))
    if not single and not isinstance(inputs, list):
        raise Refused(422, f"inputs: expected a text, a pair of texts or a list of lists, found {short(inputs, 40)}")

    def shown(predictions: list[Prediction]) -> bytes:
        return json_bytes(_classes(predictions[0])) if single else json_list(map(_classes, predictions))

    return _work(served, [inputs] if single and inputs else inputs, shown)


def rerank(served: ServedTask, body: Body) -> Work:
    """Texts sorted by their score for a query: `texts` in TEI's format, or `documents` in Cohere's.

    The score of a head with two classes is the logit of the second one above that of the first. Scores pass through a
    sigmoid, in TEI's format unless `raw_scores`.
    """
    check_parameters(body)
    task = served.predictor.task
    assert isinstance(task, TextClassification)  # of other tasks `handlers` has no such path
    if (labels := len(task.id2label)) > 2 or task.config.problem_type == "multi_label_classification":
        raise Refused(424, f"/rerank needs one score or two classes; this head has {labels}", "Backend")
    as_cohere = "documents" in body and "texts" not in body
    texts = [_document(one) for one in field(body, "documents", list)] if as_cohere else field(body, "texts", list)
    query, raw = field(body, "query", str), field(body, "raw_scores", bool, False)
    if (read := len(query) * len(texts) // CHARACTERS_PER_TOKEN) > (most := served.settings.max_tokens):
        raise Refused(413, f"query: {read:,} tokens in all pairs, more than {most:,}; shorten it, or send fewer texts")
    with_text = field(body, "return_documents" if as_cohere else "return_text", bool, False)
    most = field(body, "top_n", int, len(texts))
    if most < 1 and texts:
        raise Refused(422, f"top_n: expected at least 1, found {most}")

    def shown(predictions: list[Prediction]) -> bytes:
        scores = [_relevance(one, task, raw) for one in predictions]
        order = sorted(range(len(texts)), key=lambda number: -scores[number])
        if as_cohere:
            results = [
                {"index": i, "relevance_score": scores[i]} | ({"document": {"text": texts[i]}} if with_text else {})
                for i in order[:most]
            ]
            return json_bytes({"id": str(uuid.uuid4()), "results": results, "meta": {"api_version": {"version": "2"}}})
        return json_list({"index": i, "score": scores[i]} | ({"text": texts[i]} if with_text else {}) for i in order)

    return _work(served, [[query, text] for text in texts], shown)


def _document(given: Any) -> str:
    """The text of one of Cohere's `documents`: a text, or an object with `text`."""
    text = given.get("text") if isinstance(given, dict) else given
    if not isinstance(text, str):
        raise Refused(422, f"documents: expected texts, or objects with text, found {short(given, 40)}")
    return text


def _relevance(prediction: Prediction, task: TextClassification, raw: bool) -> float:
    is_logit = "scores" not in prediction and not isinstance(task.activation, Sigmoid)
    if is_logit:
        return prediction["score"] if raw else float(expit(prediction["score"]))
    relevant = prediction["scores"][task.id2label[1]] if "scores" in prediction else prediction["score"]
    return float(logit(min(max(relevant, 1e-9), 1 - 1e-9))) if raw else relevant


def _work(served: ServedTask, rows: list[Any], shown: Callable[[list[Prediction]], bytes]) -> Work:
    task = served.predictor.task
    _check_rows(rows, served)
    part = served.predictor.part([tuple(row) if isinstance(row, list) else row for row in rows], errors="skip")
    for number, message in part.errors.items():
        raise Refused(422, f"row {number}: {message}")
    tables: list[tuple[Any, ...]] = []

    def encode(served: ServedTask) -> tuple[list[Any], list[int]]:
        inputs = []
        for numbers, table in part.tables:
            features = served.predictor.features(table)
            tables.append((numbers, table, features))
            inputs += as_rows(inputs_of(served.predictor.model, features)[:])
        return inputs, [token_count(one["input_ids"]) for one in inputs]

    def answer(results: list[Any]) -> bytes:
        predictions: list[Prediction] = [{}] * len(rows)
        for numbers, table, features in tables:
            logits, results = results[: len(features)], results[len(features) :]
            for number, one in zip(numbers, task.decode(logits, features, table), strict=True):
                predictions[number] = one
        return shown(predictions)

    return Work(served.tokens_of(part), encode, answer)


def _check_rows(rows: list[Any], served: ServedTask) -> None:
    """Refuses more rows, columns and scores than a response in time has."""
    check_count(rows, served)
    sets = {tuple(row) for row in rows if isinstance(row, dict)}
    if (most := max(map(len, sets), default=0)) > MAX_COLUMNS:
        raise Refused(413, f"{most:,} columns, more than {MAX_COLUMNS}; send those that the model reads")
    if len(sets) > MAX_COLUMN_SETS:
        raise Refused(413, f"rows with {len(sets):,} sets of columns, more than {MAX_COLUMN_SETS}; give them the same")
    labels = len(served.predictor.task.id2label)
    if served.task == "text-classification" and len(rows) * labels > MAX_SCORES:
        raise Refused(
            413, f"{len(rows):,} rows with {labels:,} scores each, more than {MAX_SCORES:,}; send several requests"
        )


def _classes(prediction: Prediction) -> list[dict[str, Any]]:
    scores = prediction.get("scores", {"score": prediction["score"]} if "score" in prediction else {})
    return [{"label": name, "score": scores[name]} for name in sorted(scores, key=scores.get, reverse=True)]
