"""Every MyBERT model. The Auto classes load this module, so that all code is copied along with any one of them."""

from typing import TYPE_CHECKING

from .backbone_mybert import MyBertModel, MyBertPreTrainedModel
from .configuration_mybert import MyBertConfig
from .decoder_mybert import MyBertDecoder, MyBertLMHeadModel
from .pretraining_heads_mybert import (
    MyBertForMaskedLM,
    MyBertForNextSentencePrediction,
    MyBertForPreTraining,
    MyBertForPreTrainingOutput,
)
from .task_heads_mybert import (
    MyBertForMultipleChoice,
    MyBertForQuestionAnswering,
    MyBertForSequenceClassification,
    MyBertForTokenClassification,
)

if TYPE_CHECKING:  # transformers copies these files too, and does not load them
    from .pipelines_mybert import MyBertTextClassificationPipeline  # noqa: F401
    from .question_answering_mybert import MyBertQuestionAnsweringPipeline  # noqa: F401

__all__ = [
    "MyBertConfig",
    "MyBertDecoder",
    "MyBertForMaskedLM",
    "MyBertForMultipleChoice",
    "MyBertForNextSentencePrediction",
    "MyBertForPreTraining",
    "MyBertForPreTrainingOutput",
    "MyBertForQuestionAnswering",
    "MyBertForSequenceClassification",
    "MyBertForTokenClassification",
    "MyBertLMHeadModel",
    "MyBertModel",
    "MyBertPreTrainedModel",
]
