"""Every MyBERT model. The Auto classes load this module, so that all code is copied along with any one of them."""

from typing import TYPE_CHECKING

from .backbone_mybert import MyBertModel, MyBertPreTrainedModel
from .configuration_mybert import MyBertConfig
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

if TYPE_CHECKING:  # transformers copies this file too, and does not load it
    from .question_answering_mybert import MyBertQuestionAnsweringPipeline  # noqa: F401
    from .token_classification_mybert import MyBertTokenClassificationPipeline  # noqa: F401

__all__ = [
    "MyBertConfig",
    "MyBertForMaskedLM",
    "MyBertForMultipleChoice",
    "MyBertForNextSentencePrediction",
    "MyBertForPreTraining",
    "MyBertForPreTrainingOutput",
    "MyBertForQuestionAnswering",
    "MyBertForSequenceClassification",
    "MyBertForTokenClassification",
    "MyBertModel",
    "MyBertPreTrainedModel",
]
