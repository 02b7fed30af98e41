"""Heads that can be published: the pipeline, a description and the use of each."""

from typing import NamedTuple


class Head(NamedTuple):
    """
    Attributes:
        pipeline: the task of `transformers.pipeline`, if there is one.
        description: completes "A BERT …" in the model card.
        use: the intended use, for the model card.
    """

    pipeline: str | None
    description: str
    use: str


HEADS = {
    "MyBertModel": Head(
        "feature-extraction",
        "encoder without a head",
        "Fine-tune it on a task, or compute embeddings of texts and tokens.",
    ),
    "MyBertForPreTraining": Head(
        "fill-mask",
        "encoder with both pretraining heads: masked language modelling and next sentence prediction",
        "Fine-tune it on a task, fill in masked tokens, or compute embeddings of texts.",
    ),
    "MyBertForMaskedLM": Head(
        "fill-mask",
        "encoder with a masked language modelling head",
        "Fine-tune it on a task, fill in masked tokens, or compute embeddings of texts.",
    ),
    "MyBertForNextSentencePrediction": Head(
        None, "encoder with a next sentence prediction head", "Predict whether one text follows another."
    ),
    "MyBertForSequenceClassification": Head(
        "text-classification", "encoder with a text classification head", "Classify texts or pairs of texts."
    ),
    "MyBertForTokenClassification": Head(
        "token-classification",
        "encoder with a token classification head",
        "Label the words of a text, for example named entities.",
    ),
    "MyBertForQuestionAnswering": Head(
        "question-answering",
        "encoder with an extractive question answering head",
        "Find the answer to a question in a text.",
    ),
    "MyBertForMultipleChoice": Head(
        "multiple-choice", "encoder with a multiple choice head", "Choose among several continuations of a text."
    ),
    "MyBertLMHeadModel": Head("text-generation", "decoder for text generation", "Generate text."),
    "MyBertEncoderDecoderModel": Head(
        None, "encoder-decoder for text-to-text generation", "Generate a text from a text."
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
