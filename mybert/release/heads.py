"""Heads that can be published, and their pipelines."""

from typing import Any

from mybert.release.hub.handler import PIPELINE_ARGUMENTS, TASKS

PIPELINES = {
    **TASKS,
    "MyBertForNextSentencePrediction": None,
    "MyBertForMultipleChoice": "multiple-choice",
}
"""The class of each head → its task on the Hub. Texts about the heads are in `card/model_card.md`."""


def pipeline_arguments(task: str | None, is_int8: bool) -> dict[str, Any]:
    """Arguments of a pipeline, which uses a GPU if there is one; int8 weights work on the CPU only."""
    return {**PIPELINE_ARGUMENTS.get(task or "", {}), **({"device": "cpu"} if is_int8 else {})}
