"""Every MyBERT model. The Auto classes load this module, so that all code is copied along with any one of them."""

from transformers import BertLMHeadModel

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


class MyBertLMHeadModel(BertLMHeadModel):
    """transformers' decoder with the weights of a MyBERT folder, for generation. It computes padding."""

    config_class = MyBertConfig

    def __init__(self, config: MyBertConfig):
        if config.int8_outliers is not None:
            raise ValueError("int8 weights have no decoder; load the checkpoint that they were quantised from")
        super().__init__(config)  # type: ignore[arg-type]


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
    "MyBertLMHeadModel",
    "MyBertModel",
    "MyBertPreTrainedModel",
]
