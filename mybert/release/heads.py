"""Heads that can be published, and their pipelines."""

from typing import Any

from mybert.release.hub.handler import TASKS

PIPELINES = {
    **TASKS,
    "MyBertForNextSentencePrediction": None,
    "MyBertForMultipleChoice": "multiple-choice",
    "MyBertEncoderDecoderModel": None,
}
"""The class of each head → its task on the Hub. Texts about the heads are in `card/model_card.md`."""

_PIPELINE_ARGUMENTS = {
    "fill-mask": {"tokenizer_kwargs": {"truncation": True}},
    "text-classification": {"truncation": True},
    "feature-extraction": {"truncation": True},
}
"""Arguments for texts longer than the model can read; other pipelines truncate by default or use windows."""


def pipeline_arguments(task: str | None, is_int8: bool) -> dict[str, Any]:
    """Arguments of a pipeline, which uses a GPU if there is one; int8 weights work on the CPU only."""
    return {**_PIPELINE_ARGUMENTS.get(task or "", {}), **({"device": "cpu"} if is_int8 else {})}


def model_configs(config: dict) -> dict[str, dict]:
    """The configurations in a config.json by the prefix of their weights: one, or `encoder.` and `decoder.`."""
    if config.get("model_type") != "encoder-decoder":
        return {"": config}
    return {f"{name}.": config[name] for name in ("encoder", "decoder") if isinstance(config.get(name), dict)}


def is_mybert(config: dict) -> bool:
    """Whether a config.json describes a MyBERT model, or an encoder-decoder of two MyBERT models."""
    types = [part.get("model_type") for part in model_configs(config).values()]
    return types in (["mybert"], ["mybert", "mybert"])
