"""The models of MyBERT, registered with transformers' Auto classes and pipelines.

Files whose names end with `_mybert` travel with every checkpoint and need torch and transformers only.
"""

from modeling_mybert import modeling_mybert as _models
from modeling_mybert.configuration_mybert import AUTO_MAP, NAMED_SIZES, MyBertConfig
from modeling_mybert.modeling_mybert import *  # noqa: F403 - its __all__ names every model
from modeling_mybert.question_answering_mybert import MyBertQuestionAnsweringPipeline
from modeling_mybert.registration import register, use_for_bert

register()

__all__ = [
    "AUTO_MAP",
    "NAMED_SIZES",
    "MyBertConfig",
    "MyBertQuestionAnsweringPipeline",
    "use_for_bert",
    *_models.__all__,
]
