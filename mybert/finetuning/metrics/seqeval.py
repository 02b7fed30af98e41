"""Entities in tags, as in seqeval's strict mode: first word, last word and type must be correct."""

import evaluate
import numpy as np
from datasets import Features, List, Value

from mybert.finetuning.evaluation import entity_scores as entities


class Seqeval(evaluate.Metric):
    """`overall_precision`, `overall_recall` and `overall_f1` of entities, `overall_accuracy` of tags, from 0 to 1."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description="""predictions, references: for each sentence a tag for each word
scheme: IOB1, IOB2, IOBES or BILOU (default: the scheme of the references)""",
            features=Features({"predictions": List(Value("string")), "references": List(Value("string"))}),
        )

    def _compute(
        self, predictions: list[list[str]], references: list[list[str]], scheme: str | None = None
    ) -> dict[str, float]:
        """
        Raises:
            ValueError: sentences differ in length, or tags are not those of entities.
        """
        for number, (tags, true) in enumerate(zip(predictions, references, strict=True), 1):
            if len(tags) != len(true):
                raise ValueError(f"sentence {number}: {len(tags)} tags predicted, expected {len(true)}")
        scheme = scheme or entities.scheme_of(references) or entities.scheme_of(predictions)
        flat = [[tag for tags in column for tag in tags] for column in (predictions, references)]
        if scheme is None and {*flat[0], *flat[1]} != {"O"}:
            found = ", ".join(sorted({*flat[0], *flat[1]})[:10])
            raise ValueError(f"expected entity tags of one scheme, such as O, B-PER, I-PER, found {found}")
        scores = entities.score(predictions, references, scheme or "IOB2", np.arange(len(references))[None])
        return {
            **{f"overall_{name}": values[0] for name, values in scores.items()},
            "overall_accuracy": float(np.mean(np.array(flat[0]) == flat[1])),
        }
