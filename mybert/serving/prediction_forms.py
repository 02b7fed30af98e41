"""Prediction requests and responses: rows, and the formats of TEI and of Hugging Face pipelines."""

from collections.abc import Callable, Sequence
from typing import Any

from scipy.special import expit

from mybert.common.error_messages import short, short_list
from mybert.serving.checkpoint import MASK_CANDIDATES, ServedCheckpoint
from mybert.serving.forms import (
    Body,
    Refused,
    Work,
    check_count,
    field,
    json_bytes,
    texts_in,
    unlisted,
    with_parameters,
)

# Task heads


def predict(served: ServedCheckpoint, body: Body) -> Work:
    """Predicts `rows` as `mybert predict` does, or TEI's `inputs`: a text, a pair of texts, or a list of lists of
    texts."""
    if body.get("rows") is None and body.get("inputs") is None:
        raise Refused(422, f"expected rows or inputs, found {short_list(body) or 'nothing'}")
    if body.get("rows") is not None:
        rows = field(body, "rows", list)
        return _prediction_work(served, rows, lambda found: {"predictions": found})
    if served.task != "text-classification":
        return pipeline(served, body)
    body = with_parameters(body, "raw_scores", "truncate")
    if field(body, "raw_scores", bool, False):
        raise Refused(422, "raw_scores: only probabilities are supported; leave it out")
    rows, single = _single_or_pairs(body.get("inputs"))
    return _prediction_work(served, rows, lambda found: unlisted([_classes(one) for one in found], single))


def pipeline(served: ServedCheckpoint, body: Body) -> Work:
    """Hugging Face pipelines: one input or a list. Multiple choice returns predictions as in `mybert predict`."""
    body = with_parameters(body, "top_k")
    inputs, top = body.get("inputs"), field(body, "top_k", int, None)
    if top is not None and top < 1:
        raise Refused(422, f"top_k: expected 1 or more, found {top}")
    rows, single = (inputs, False) if isinstance(inputs, list) else ([inputs], True)
    if served.task == "text-classification":  # one list for each input, even of a single one
        return _prediction_work(served, rows, lambda found: [_classes(one)[:top] for one in found])
    if top not in (None, 1):
        raise Refused(422, f"top_k: not supported for {served.task}; leave it out")
    shown = {"token-classification": _entities, "question-answering": _best_answer}.get(served.task, dict)
    return _prediction_work(served, rows, lambda found: unlisted([shown(one) for one in found], single))


def rerank(served: ServedCheckpoint, body: Body) -> Work:
    """TEI's `/rerank`: texts sorted by their score for a query; scores pass through a sigmoid unless `raw_scores`."""
    body = with_parameters(body, "raw_scores", "return_text", "truncate")
    if served.predictor.task.config.num_labels != 1:
        raise Refused(424, "/rerank needs a head with one score for a pair of texts; this one has classes", "Backend")
    query, texts = field(body, "query", str), field(body, "texts", list)
    raw, with_text = field(body, "raw_scores", bool, False), field(body, "return_text", bool, False)

    def answer(found: list[dict]) -> list[dict]:
        scores = [one["score"] if raw else float(expit(one["score"])) for one in found]
        order = sorted(range(len(texts)), key=lambda number: -scores[number])
        return [{"index": i, "score": scores[i]} | ({"text": texts[i]} if with_text else {}) for i in order]

    return _prediction_work(served, [[query, text] for text in texts], answer)


def _prediction_work(served: ServedCheckpoint, rows: list, shown: Callable[[list[dict]], Any]) -> Work:
    check_count(rows, served)
    rows = [tuple(row) if isinstance(row, list) else row for row in rows]

    def answer(results: list[dict]) -> bytes:
        for number, result in enumerate(results):
            if "error" in result:
                raise Refused(422, f"row {number}: {result['error']}")
        return json_bytes(shown(results))

    return Work("predict", rows, served.tokens_of(rows), answer)


def _single_or_pairs(inputs: Any) -> tuple[list, bool]:
    """Returns rows of one or two texts, and whether `inputs` was a single row."""
    if isinstance(inputs, str) or (isinstance(inputs, list) and inputs and all(isinstance(x, str) for x in inputs)):
        return [inputs], True
    if not isinstance(inputs, list):
        raise Refused(422, f"inputs: expected a text, a pair of texts or a list of lists, found {short(inputs, 40)}")
    return inputs, False


def _classes(found: dict) -> list[dict]:
    scores = found.get("scores", {"score": found["score"]} if "score" in found else {})
    return [{"label": name, "score": scores[name]} for name in sorted(scores, key=scores.get, reverse=True)]


def _entities(found: dict) -> list[dict]:
    if "entities" in found:
        return [
            {"entity_group": e["type"], "score": e["score"], "word": e["text"], "start": e["start"], "end": e["end"]}
            for e in found["entities"]
        ]
    places = found.get("offsets") or [(None, None)] * len(found["tags"])
    rows = zip(found["tags"], found["scores"], found["tokens"], places, strict=True)
    return [{"entity": t, "score": s, "word": w, "start": start, "end": end} for t, s, w, (start, end) in rows]


def _best_answer(found: dict) -> dict:
    return {name: found[name] for name in ("answer", "score", "start", "end")}


# Pretraining heads


def masked_words(served: ServedCheckpoint, body: Body) -> Work:
    """The pipeline `fill-mask`: candidates for the mask of a text; lists of them for several masks or texts."""
    body = with_parameters(body, "top_k")
    items, single = texts_in(body, "inputs", served, ids=False)
    top = field(body, "top_k", int, 5)
    if not 1 <= top <= MASK_CANDIDATES:
        raise Refused(422, f"top_k: expected 1 to {MASK_CANDIDATES}, found {top}")
    tokenizer = served.tokenizer
    for number, text in enumerate(items):
        if tokenizer.mask_token not in text:
            raise Refused(422, f"text {number}: no {tokenizer.mask_token}; write it in place of the words to predict")

    def candidates(text: str, best: Sequence[tuple[int, float]], only: bool) -> list[dict]:
        words = tokenizer.convert_ids_to_tokens([token for token, _ in best])
        found = [{"score": s, "token": t, "token_str": w} for (t, s), w in zip(best, words, strict=True)]
        whole = [{"sequence": text.replace(tokenizer.mask_token, w.removeprefix("##"))} for w in words]
        return [one | (two if only else {"sequence": text}) for one, two in zip(found, whole, strict=True)]

    def answer(results: list) -> bytes:
        if any(len(masks) < text.count(tokenizer.mask_token) for text, masks in zip(items, results, strict=True)):
            raise Refused(413, f"a {tokenizer.mask_token} stands after the first {served.max_length} tokens")
        lists = [
            unlisted([candidates(text, best[:top], len(masks) == 1) for best in masks], len(masks) == 1)
            for text, masks in zip(items, results, strict=True)
        ]
        return json_bytes(unlisted(lists, single))

    return Work("fill-mask", items, _cut_lengths(served, items), answer)


def next_sentence(served: ServedCheckpoint, body: Body) -> Work:
    """Next-sentence prediction for a pair of texts or a list of pairs, in the response format of TEI's `/predict`."""
    pairs, single = _single_or_pairs(body.get("inputs"))
    check_count(pairs, served)
    for number, pair in enumerate(pairs):
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise Refused(422, f"pair {number}: expected two texts, found {short(pair, 40)}")

    def answer(results: list[float]) -> bytes:
        found = [_classes({"scores": {"next": follows, "random": 1 - follows}}) for follows in results]
        return json_bytes(unlisted(found, single))

    return Work("next-sentence", pairs, _cut_lengths(served, pairs), answer)


def _cut_lengths(served: ServedCheckpoint, rows: list) -> list[int]:
    return [min(tokens, served.max_length) for tokens in served.tokens_of(rows)]
