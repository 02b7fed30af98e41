"""Heads that can be published: the Auto class, the pipeline and a description of each."""

from typing import NamedTuple


class Head(NamedTuple):
    """
    Attributes:
        auto: the Auto class that loads it.
        pipeline: the task of `transformers.pipeline`, if there is one.
        description: completes "A BERT …" in the model card.
    """

    auto: str
    pipeline: str | None
    description: str


HEADS = {
    "MyBertModel": Head("AutoModel", "feature-extraction", "encoder without a head"),
    "MyBertLMHeadModel": Head("AutoModelForCausalLM", "text-generation", "decoder for text generation"),
    "MyBertEncoderDecoderModel": Head("AutoModelForSeq2SeqLM", None, "encoder-decoder for text-to-text generation"),
    "MyBertForPreTraining": Head(
        "AutoModelForPreTraining",
        "fill-mask",
        "encoder with both pretraining heads: masked language modelling and next sentence prediction",
    ),
    "MyBertForMaskedLM": Head("AutoModelForMaskedLM", "fill-mask", "encoder with a masked language modelling head"),
    "MyBertForNextSentencePrediction": Head(
        "AutoModelForNextSentencePrediction", None, "encoder with a next sentence prediction head"
    ),
    "MyBertForSequenceClassification": Head(
        "AutoModelForSequenceClassification", "text-classification", "encoder with a text classification head"
    ),
    "MyBertForTokenClassification": Head(
        "AutoModelForTokenClassification", "token-classification", "encoder with a token classification head"
    ),
    "MyBertForQuestionAnswering": Head(
        "AutoModelForQuestionAnswering", "question-answering", "encoder with an extractive question answering head"
    ),
    "MyBertForMultipleChoice": Head(
        "AutoModelForMultipleChoice", "multiple-choice", "encoder with a multiple choice head"
    ),
}

PIPELINE_ARGUMENTS = {
    "fill-mask": {"tokenizer_kwargs": {"truncation": True}},
    "text-classification": {"truncation": True},
    "feature-extraction": {"truncation": True},
}
"""Arguments for texts longer than the model can read; other pipelines truncate by default or use windows."""


def model_configs(config: dict) -> dict[str, dict]:
    """The configurations in a config.json by the prefix of their weights: one, or `encoder.` and `decoder.`."""
    if config.get("model_type") != "encoder-decoder":
        return {"": config}
    return {f"{name}.": config[name] for name in ("encoder", "decoder") if isinstance(config.get(name), dict)}


def is_mybert(config: dict) -> bool:
    """Whether a config.json describes a MyBERT model, or an encoder-decoder of two MyBERT models."""
    types = [part.get("model_type") for part in model_configs(config).values()]
    return types in (["mybert"], ["mybert", "mybert"])
