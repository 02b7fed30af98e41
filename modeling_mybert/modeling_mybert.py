"""Every MyBERT model; the Auto classes load this module, so that the whole code comes along with any one of them."""

from .backbone_mybert import MyBertModel, MyBertPreTrainedModel
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

__all__ = [
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
