"""What the model is. Everything here but this file travels with a checkpoint and needs torch and transformers only."""

import transformers

from modeling_mybert.configuration_mybert import AUTO_MAP, NAMED_SIZES, MyBertConfig
from modeling_mybert.modeling_mybert import (
    MyBertForMaskedLM,
    MyBertForNextSentencePrediction,
    MyBertForPreTraining,
    MyBertForPreTrainingOutput,
    MyBertModel,
    MyBertPreTrainedModel,
)

transformers.AutoConfig.register(MyBertConfig.model_type, MyBertConfig)
for _auto, _name in AUTO_MAP.items():
    if _auto != "AutoConfig":
        getattr(transformers, _auto).register(MyBertConfig, globals()[_name.split(".")[1]])

__all__ = [
    "AUTO_MAP",
    "NAMED_SIZES",
    "MyBertConfig",
    "MyBertForMaskedLM",
    "MyBertForNextSentencePrediction",
    "MyBertForPreTraining",
    "MyBertForPreTrainingOutput",
    "MyBertModel",
    "MyBertPreTrainedModel",
]
