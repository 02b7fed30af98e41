"""Metrics of `evaluate` that load without a network. A new metric is a function and an entry in `METRICS`.

    from mybert.finetuning import metrics

    metrics.load("f1").compute(predictions=[0, 1], references=[1, 1])

Arguments and results have the names of the Hub's metrics; the values are those of `mybert evaluate`. Undefined scores
are 0. Options of scikit-learn, such as `average` and `sample_weight`, are passed on.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import evaluate
import numpy as np
from datasets import Features, List, Value
from scipy import stats
from sklearn import metrics

from mybert.finetuning.data.tag_checks import read_sentences
from mybert.finetuning.evaluation import entity_scores as entities
from mybert.finetuning.evaluation import squad_scores as squad_rules


def load(name: str, **settings: Any) -> evaluate.Metric:
    """The metric with this name in `METRICS`; `settings` are of `evaluate.Metric`, such as `experiment_id`."""
    if name not in METRICS:
        raise ValueError(f"expected one of {', '.join(METRICS)}, found {name!r}")
    function, features, inputs = METRICS[name]
    info = evaluate.MetricInfo(function.__doc__, "", features, inputs_description=inputs)
    members = {"_info": lambda self: info, "_compute": lambda self, **options: function(**options)}
    return type(name, (evaluate.Metric,), members)(**settings)


def accuracy(predictions: list, references: list, **options: Any) -> dict[str, float]:
    """Share of correct labels, `accuracy` from 0 to 1."""
    return {"accuracy": float(metrics.accuracy_score(references, predictions, **options))}


def f1(predictions: list, references: list, **options: Any) -> dict[str, float | list[float]]:
    """Harmonic mean of precision and recall, `f1` from 0 to 1."""
    return {"f1": np.asarray(metrics.f1_score(references, predictions, **{"zero_division": 0, **options})).tolist()}


def matthews_correlation(predictions: list, references: list, **options: Any) -> dict[str, float]:
    """Matthews correlation coefficient of two or more classes, `matthews_correlation` from -1 to 1."""
    return {"matthews_correlation": float(metrics.matthews_corrcoef(references, predictions, **options))}


def multi_label(predictions: list[list[int]], references: list[list[int]]) -> dict[str, float]:
    """Several labels per row: `f1_micro`, `f1_macro`, and `accuracy`, the share of rows with all labels correct."""
    for name, rows in (("predictions", predictions), ("references", references)):
        for number, row in enumerate(rows, 1):
            if len(row) != len(references[0]) or not set(row) <= {0, 1}:
                raise ValueError(f"{name}, row {number}: expected {len(references[0])} times 0 or 1, found {row}")
    pair = np.array(references), np.array(predictions)
    scores = {f"f1_{kind}": metrics.f1_score(*pair, average=kind, zero_division=0) for kind in ("micro", "macro")}
    return {name: float(value) for name, value in {**scores, "accuracy": metrics.accuracy_score(*pair)}.items()}


def pearsonr(predictions: list[float], references: list[float]) -> dict[str, float]:
    """Pearson correlation, `pearsonr` from -1 to 1."""
    return {"pearsonr": _correlation(stats.pearsonr, predictions, references)}


def spearmanr(predictions: list[float], references: list[float]) -> dict[str, float]:
    """Spearman rank correlation, `spearmanr` from -1 to 1."""
    return {"spearmanr": _correlation(stats.spearmanr, predictions, references)}


def _correlation(function: Callable, predictions: list[float], references: list[float]) -> float:
    varies = np.ptp(predictions) and np.ptp(references)
    return float(function(predictions, references).statistic) if varies else 0.0


def seqeval(
    predictions: list[list[str]], references: list[list[str]], scheme: str | None = None, mode: str | None = None
) -> dict[str, float]:
    """Entities in tags: `overall_precision`, `overall_recall`, `overall_f1`, and `overall_accuracy` of tags.

    The first word, the last word and the type of an entity must be correct, as in CoNLL's scorer and in seqeval. In
    the mode `strict`, tags that violate the scheme are not part of an entity.
    """
    for number, (predicted, expected) in enumerate(zip(predictions, references, strict=True), 1):
        if len(predicted) != len(expected):
            raise ValueError(f"sentence {number}: {len(predicted)} tags predicted, expected {len(expected)}")
    if mode not in (None, "strict"):
        raise ValueError(f"mode: expected None or 'strict', found {mode!r}")
    tags = read_sentences([*references, *predictions])
    flat = [[tag for tags in column for tag in tags] for column in (predictions, references)]
    if (tags is None or tags.stray) and {*flat[0], *flat[1]} != {"O"}:
        found = ", ".join(sorted({*flat[0], *flat[1]})[:10])
        raise ValueError(f"expected entity tags of one scheme, such as O, B-PER, I-PER, found {found}")
    find, marks = entities.find, tags.marks if tags else {}
    if mode == "strict":
        of_references = read_sentences(references) or tags
        find = partial(entities.find_strict, scheme=scheme or (of_references.scheme if of_references else "IO"))
    scores = entities.ratios(find(predictions, marks), find(references, marks), np.arange(len(references))[None])
    overall = {f"overall_{name}": values[0] for name, values in scores.items()}
    return {**overall, "overall_accuracy": float(metrics.accuracy_score(*flat[::-1]))}


def squad(predictions: list[dict], references: list[dict]) -> dict[str, float]:
    """SQuAD 1.1: `exact_match` and `f1` in percent (Rajpurkar et al. 2016)."""
    scores = []
    for prediction, reference in squad_rules.matched(predictions, references):
        text, answers = prediction["prediction_text"], reference["answers"]["text"]
        if not answers:
            raise ValueError(f"question {reference['id']!r} has no answer; use squad_v2 for such questions")
        if squad_rules.normalise(text):
            scores.append((squad_rules.exact_match(text, answers), squad_rules.f1(text, answers)))
        else:  # unlike in SQuAD 2.0, two empty texts have F1 0
            scores.append((float("" in map(squad_rules.normalise, answers)), 0.0))
    exact, overlap = 100 * np.mean(scores, axis=0)
    return {"exact_match": float(exact), "f1": float(overlap)}


def squad_v2(predictions: list[dict], references: list[dict], no_answer_threshold: float = 1.0) -> dict[str, float]:
    """SQuAD 2.0: `exact` and `f1` in percent (Rajpurkar et al. 2018).

    Of all questions, of those with (`HasAns_`) and without an answer (`NoAns_`), and with the best threshold
    (`best_`, `best_…_thresh`).

    Raises:
        ValueError: a question has no prediction.
    """
    matched = squad_rules.matched(predictions, references)
    texts = [prediction["prediction_text"] for prediction, _ in matched]
    answers = [reference["answers"]["text"] for _, reference in matched]
    margins = np.array([prediction["no_answer_probability"] for prediction, _ in matched])
    has_answer = np.array([bool(one) for one in answers])
    found, best = {}, {}
    for name, measure in (("exact", squad_rules.exact_match), ("f1", squad_rules.f1)):
        answered = np.array(list(map(measure, texts, answers)))
        unanswered = np.array([measure("", one) for one in answers])
        found[name] = np.where(margins > no_answer_threshold, unanswered, answered)
        threshold = squad_rules.best_threshold(margins, answered, unanswered)
        best[f"best_{name}"] = _percent(np.where(margins > threshold, unanswered, answered))
        best[f"best_{name}_thresh"] = threshold
    scores = {}
    for prefix, rows in (("", has_answer | True), ("HasAns_", has_answer), ("NoAns_", ~has_answer)):
        if rows.any():
            scores |= {f"{prefix}{name}": _percent(values[rows]) for name, values in found.items()}
            scores[f"{prefix}total"] = int(rows.sum())
    return {**scores, **best}


def _percent(values: np.ndarray) -> float:
    return 100 * float(values.mean())


def _columns(kind: Any, references: Any = None) -> Features:
    return Features({"predictions": kind, "references": kind if references is None else references})


_LABELS = [_columns(Value("int64")), _columns(Value("string"))]
_LABEL = "predictions, references: a label for each row"
_NUMBER = "predictions, references: a number for each row"
_QUESTION = {"id": Value("string"), "answers": {"text": List(Value("string")), "answer_start": List(Value("int64"))}}
_ANSWER = {"id": Value("string"), "prediction_text": Value("string")}
_SQUAD = """predictions: {id, prediction_text} for each question
references: {id, answers: {text: […], answer_start: […]}} for each question, in any order"""
METRICS: dict[str, tuple[Callable[..., dict[str, Any]], Features | list[Features], str]] = {
    "accuracy": (accuracy, _LABELS, _LABEL),
    "f1": (f1, _LABELS, f"{_LABEL}\naverage, pos_label, labels, sample_weight: as in scikit-learn"),
    "matthews_correlation": (matthews_correlation, _LABELS, _LABEL),
    "multi_label": (multi_label, _columns(List(Value("int64"))), "for each row a 1 or 0 for each label"),
    "pearsonr": (pearsonr, _columns(Value("float64")), _NUMBER),
    "spearmanr": (spearmanr, _columns(Value("float64")), _NUMBER),
    "seqeval": (
        seqeval,
        _columns(List(Value("string"))),
        "predictions, references: for each sentence a tag for each word\n"
        "mode: strict counts only entities whose tags follow the scheme (default: all, as CoNLL's scorer)\n"
        "scheme: for the strict mode IOB1, IOB2, IOE1, IOE2, IOBES or BILOU (default: that of the references)",
    ),
    "squad": (squad, _columns(_ANSWER, _QUESTION), _SQUAD),
    "squad_v2": (
        squad_v2,
        _columns({**_ANSWER, "no_answer_probability": Value("float64")}, _QUESTION),
        f"{_SQUAD}; empty lists for no answer\n"
        "no_answer_threshold: predictions with a higher no_answer_probability count as no answer",
    ),
}
"""Function, features and description of the inputs by name.

Several features are alternatives. The docstring of the function is the description of the metric.
"""
