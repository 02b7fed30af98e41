"""The models of MyBERT, registered with transformers' Auto classes and pipelines.

All files except this one travel with every checkpoint and need torch and transformers only.
"""

import transformers
from transformers import pipelines

from modeling_mybert import modeling_mybert as _models
from modeling_mybert import pipelines_mybert, question_answering_mybert
from modeling_mybert.configuration_mybert import AUTO_MAP, NAMED_SIZES, PIPELINES, MyBertConfig
from modeling_mybert.encoder_decoder_mybert import MyBertEncoderDecoderConfig, MyBertEncoderDecoderModel
from modeling_mybert.modeling_mybert import *  # noqa: F403 - its __all__ names every model
from modeling_mybert.question_answering_mybert import MyBertQuestionAnsweringPipeline

# exist_ok: the code of a checkpoint may have registered itself before this package was imported.
transformers.AutoConfig.register(MyBertConfig.model_type, MyBertConfig, exist_ok=True)
for _auto, _name in AUTO_MAP.items():
    if _auto != "AutoConfig":
        getattr(transformers, _auto).register(MyBertConfig, getattr(_models, _name.split(".")[1]), exist_ok=True)

MyBertConfig.pipelines_are_registered = True
getattr(pipelines, "REMOVED_TASKS", {}).pop("question-answering", None)  # transformers 5 refuses the name otherwise
_classes = {**vars(pipelines_mybert), **vars(question_answering_mybert)}
for _task, _name, _auto in PIPELINES.values():
    _pipeline = _classes[_name.split(".")[1]]
    if _task in pipelines.PIPELINE_REGISTRY.supported_tasks:
        pipelines.PIPELINE_REGISTRY.supported_tasks[_task]["impl"] = _pipeline
    else:
        _auto_class = getattr(transformers, _auto)
        pipelines.PIPELINE_REGISTRY.register_pipeline(_task, _pipeline, pt_model=_auto_class, type="text")

__all__ = [
    "AUTO_MAP",
    "NAMED_SIZES",
    "PIPELINES",
    "MyBertConfig",
    "MyBertEncoderDecoderConfig",
    "MyBertEncoderDecoderModel",
    "MyBertQuestionAnsweringPipeline",
    *_models.__all__,
]
