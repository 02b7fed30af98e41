"""SQuAD 1.1: exact match and F1 of answers (Rajpurkar et al. 2016)."""

import evaluate
import numpy as np
from datasets import Features, List, Value

from mybert.finetuning.evaluation import squad_scores as squad


class Squad(evaluate.Metric):
    """`exact_match` and `f1` in percent."""

    def _info(self) -> evaluate.MetricInfo:
        answers = {"text": List(Value("string")), "answer_start": List(Value("int64"))}
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description="""predictions: {id, prediction_text} for each question
references: {id, answers: {text: […], answer_start: […]}} for each question, in any order""",
            features=Features(
                {
                    "predictions": {"id": Value("string"), "prediction_text": Value("string")},
                    "references": {"id": Value("string"), "answers": answers},
                }
            ),
        )

    def _compute(self, predictions: list[dict], references: list[dict]) -> dict[str, float]:
        """
        Raises:
            ValueError: a question has no prediction or no true answer.
        """
        pairs = []
        for prediction, reference in squad.matched(predictions, references):
            if not reference["answers"]["text"]:
                raise ValueError(f"question {reference['id']!r} has no answer; use squad_v2 for such questions")
            pairs.append(_scores(prediction["prediction_text"], reference["answers"]["text"]))
        exact, f1 = 100 * np.mean(pairs, axis=0)
        return {"exact_match": float(exact), "f1": float(f1)}


def _scores(prediction: str, answers: list[str]) -> tuple[float, float]:
    if squad.normalise(prediction):
        return squad.exact_match(prediction, answers), squad.f1(prediction, answers)
    return float("" in map(squad.normalise, answers)), 0.0  # unlike SQuAD 2.0, where two empty texts have F1 1
