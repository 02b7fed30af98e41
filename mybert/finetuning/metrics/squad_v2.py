"""SQuAD 2.0: exact match and F1 of answers to questions that may have none (Rajpurkar et al. 2018)."""

import evaluate
import numpy as np
from datasets import Features, List, Value

from mybert.finetuning.evaluation import squad_scores as squad


class SquadV2(evaluate.Metric):
    """`exact` and `f1` in percent: of all questions, of those with (`HasAns_`) and without an answer (`NoAns_`), and
    with the best threshold (`best_`, `best_…_thresh`)."""

    def _info(self) -> evaluate.MetricInfo:
        answers = {"text": List(Value("string")), "answer_start": List(Value("int64"))}
        prediction = {
            "id": Value("string"),
            "prediction_text": Value("string"),
            "no_answer_probability": Value("float64"),
        }
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description="""predictions: {id, prediction_text, no_answer_probability} for each question
references: {id, answers: {text: […], answer_start: […]}} for each question, in any order; empty lists for no answer
no_answer_threshold: predictions with a higher probability of no answer count as no answer""",
            features=Features({"predictions": prediction, "references": {"id": Value("string"), "answers": answers}}),
        )

    def _compute(
        self, predictions: list[dict], references: list[dict], no_answer_threshold: float = 1.0
    ) -> dict[str, float]:
        """
        Raises:
            ValueError: a question has no prediction.
        """
        pairs = squad.matched(predictions, references)
        texts = [one["prediction_text"] for one, _ in pairs]
        answers = [one["answers"]["text"] for _, one in pairs]
        margins = np.array([one["no_answer_probability"] for one, _ in pairs])
        has_answer = np.array([bool(one) for one in answers])
        found, best = {}, {}
        for name, measure in (("exact", squad.exact_match), ("f1", squad.f1)):
            answered = np.array(list(map(measure, texts, answers)))
            unanswered = np.array([measure("", one) for one in answers])
            found[name] = np.where(margins > no_answer_threshold, unanswered, answered)
            threshold = squad.best_threshold(margins, answered, unanswered)
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
