"""What the model is. Everything here but this file travels with a checkpoint and needs torch and transformers only."""

import transformers
from transformers import pipelines

from modeling_mybert import modeling_mybert as _models
from modeling_mybert.configuration_mybert import AUTO_MAP, NAMED_SIZES, MyBertConfig
from modeling_mybert.encoder_decoder_mybert import MyBertEncoderDecoderConfig, MyBertEncoderDecoderModel
from modeling_mybert.modeling_mybert import *  # noqa: F403 - its __all__ names every model
from modeling_mybert.question_answering_mybert import MyBertQuestionAnsweringPipeline

# exist_ok: code that came along with a checkpoint may have registered itself before this package was imported.
transformers.AutoConfig.register(MyBertConfig.model_type, MyBertConfig, exist_ok=True)
for _auto, _name in AUTO_MAP.items():
    if _auto != "AutoConfig":
        getattr(transformers, _auto).register(MyBertConfig, getattr(_models, _name.split(".")[1]), exist_ok=True)

getattr(pipelines, "REMOVED_TASKS", {}).pop("question-answering", None)  # transformers 5 refuses the name otherwise
pipelines.PIPELINE_REGISTRY.register_pipeline(
    "question-answering",
    MyBertQuestionAnsweringPipeline,
    pt_model=transformers.AutoModelForQuestionAnswering,
    type="text",
)

__all__ = [
    "AUTO_MAP",
    "NAMED_SIZES",
    "MyBertConfig",
    "MyBertEncoderDecoderConfig",
    "MyBertEncoderDecoderModel",
    "MyBertQuestionAnsweringPipeline",
    *_models.__all__,
]
