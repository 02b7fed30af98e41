"""The heads that are published: by which Auto class each is loaded, and what it is."""

from typing import NamedTuple


class Head(NamedTuple):
    """How a saved head is loaded, and what it is."""

    auto: str
    pipeline: str | None
    what: str


HEADS = {
    "MyBertModel": Head("AutoModel", "feature-extraction", "without a head: vectors of tokens and of the whole text"),
    "MyBertLMHeadModel": Head("AutoModelForCausalLM", "text-generation", "that goes on with a text, token by token"),
    "MyBertEncoderDecoderModel": Head(
        "AutoModelForSeq2SeqLM", None, "encoder and decoder that turn one text into another"
    ),
    "MyBertForPreTraining": Head(
        "AutoModelForPreTraining", "fill-mask", "with both heads of pretraining: masked tokens and next sentences"
    ),
    "MyBertForMaskedLM": Head("AutoModelForMaskedLM", "fill-mask", "with a head that guesses masked tokens"),
    "MyBertForNextSentencePrediction": Head(
        "AutoModelForNextSentencePrediction", None, "with a head that tells whether one text follows another"
    ),
    "MyBertForSequenceClassification": Head(
        "AutoModelForSequenceClassification", "text-classification", "with a head that classifies texts"
    ),
    "MyBertForTokenClassification": Head(
        "AutoModelForTokenClassification", "token-classification", "with a head that labels tokens"
    ),
    "MyBertForQuestionAnswering": Head(
        "AutoModelForQuestionAnswering",
        "question-answering",
        "with a head that finds the answer to a question in a text",
    ),
    "MyBertForMultipleChoice": Head(
        "AutoModelForMultipleChoice", "multiple-choice", "with a head that chooses among continuations"
    ),
}
