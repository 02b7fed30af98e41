"""Entities in tags, by seqeval's strict mode: right are those whose first word, last word and type are all right."""

import evaluate
from datasets import Features, List, Value

from mybert.finetuning.evaluation import bootstrap_scores as class_scores
from mybert.finetuning.evaluation import entity_scores as entities


class Seqeval(evaluate.Metric):
    """`overall_precision`, `overall_recall` and `overall_f1` of entities, `overall_accuracy` of tags, from 0 to 1."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description="""predictions, references: for each sentence a tag for each word
scheme: IOB1, IOB2, IOBES or BILOU; without, the one that the references follow""",
            features=Features({"predictions": List(Value("string")), "references": List(Value("string"))}),
        )

    def _compute(
        self, predictions: list[list[str]], references: list[list[str]], scheme: str | None = None
    ) -> dict[str, float]:
        """
        Raises:
            ValueError: sentences differ in length, or tags are not those of entities.
        """
        for number, (said, true) in enumerate(zip(predictions, references, strict=True), 1):
            if len(said) != len(true):
                raise ValueError(f"sentence {number}: {len(said)} tags predicted, expected {len(true)}")
        scheme = scheme or entities.scheme_of(references) or entities.scheme_of(predictions)
        flat = [[tag for tags in column for tag in tags] for column in (predictions, references)]
        if scheme is None and {*flat[0], *flat[1]} != {"O"}:
            found = ", ".join(sorted({*flat[0], *flat[1]})[:10])
            raise ValueError(f"expected entity tags of one scheme, such as O, B-PER, I-PER, found {found}")
        rows = class_scores.every_row(references)
        scores = entities.score(predictions, references, scheme or "IOB2", rows)
        return {
            **{f"overall_{name}": values[0] for name, values in scores.items()},
            "overall_accuracy": class_scores.score_labels(*flat)["accuracy"],
        }
