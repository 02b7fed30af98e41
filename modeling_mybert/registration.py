"""Registration of MyBERT with transformers: Auto classes, pipelines, and `use_for_bert`.

A MyBERT folder has the model type `bert`, and transformers has one configuration class for each model type. That of
`bert` is replaced by `_BertOrMyBertConfig`, which reads a folder of MyBERT as a `MyBertConfig` and every other one as
a `BertConfig`.

The pipelines truncate long texts to the trained length, the tokenizer's `model_max_length`. transformers' own classes
do not truncate unless told to, and the model then raises or reads positions that it was not trained on. Pass
`truncation=False` to get that; without this package, pass `truncation=True`.
"""

import contextlib
import copyreg
from typing import Any

import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    CONFIG_MAPPING,
    BertConfig,
    BertTokenizer,
    FeatureExtractionPipeline,
    FillMaskPipeline,
    PreTrainedConfig,
    TextClassificationPipeline,
    pipelines,
)

from modeling_mybert import modeling_mybert as models
from modeling_mybert.configuration_mybert import (
    AUTO_MAP,
    OLD_MODEL_TYPE,
    QUESTION_ANSWERING,
    MyBertConfig,
    names_mybert,
)
from modeling_mybert.question_answering_mybert import MyBertQuestionAnsweringPipeline
from modeling_mybert.token_classification_mybert import MyBertTokenClassificationPipeline


def _is_mybert(kwargs: dict[str, Any]) -> bool:
    return type(kwargs.get("model")).__name__.startswith("MyBert")  # also that of a folder's own code


class _Truncating:
    """A pipeline with `truncation=True` by default."""

    def __init__(self, *args: Any, **kwargs: Any):
        if _is_mybert(kwargs) and "truncation" not in (kwargs.get("tokenize_kwargs") or {}):
            kwargs.setdefault("truncation", True)
        super().__init__(*args, **kwargs)


class MyBertTextClassificationPipeline(_Truncating, TextClassificationPipeline): ...


class MyBertFeatureExtractionPipeline(_Truncating, FeatureExtractionPipeline): ...


class MyBertFillMaskPipeline(FillMaskPipeline):
    """`FillMaskPipeline` with `tokenizer_kwargs={"truncation": True}` by default."""

    def __init__(self, *args: Any, **kwargs: Any):
        if _is_mybert(kwargs):
            kwargs["tokenizer_kwargs"] = {"truncation": True, **(kwargs.get("tokenizer_kwargs") or {})}
        super().__init__(*args, **kwargs)


_PIPELINES = {
    "text-classification": MyBertTextClassificationPipeline,
    "feature-extraction": MyBertFeatureExtractionPipeline,
    "fill-mask": MyBertFillMaskPipeline,
    "token-classification": MyBertTokenClassificationPipeline,
}
_uses: list[None] = []  # one for each `use_for_bert` in force; threads may append and pop at once


class _LikeBertConfig(type(BertConfig)):  # type: ignore[misc]
    """The class of a class whose objects are those of BertConfig."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, BertConfig)


class _BertOrMyBertConfig(BertConfig, metaclass=_LikeBertConfig):
    """What the Auto classes read a configuration of model type `bert` with. No object has this class."""

    def __new__(cls, *args: Any, **kwargs: Any) -> PreTrainedConfig:  # type: ignore[misc]
        is_ours = _uses and not args and _is_supported(kwargs)
        return (MyBertConfig if is_ours else BertConfig)(*args, **kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        is_ours = names_mybert(config_dict) or (_uses and _is_supported({**config_dict, **kwargs}))
        return (MyBertConfig if is_ours else BertConfig).from_dict(config_dict, **kwargs)

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        return BertConfig.from_pretrained(*args, **kwargs)


# transformers takes a class of another module for one that replaces all remote code of this model type. Other
# repositories have remote code under `bert`, which has to be loaded.
_BertOrMyBertConfig.__module__ = BertConfig.__module__
_BertOrMyBertConfig.__name__ = BertConfig.__name__  # by which transformers finds the models of a configuration class


def _registered() -> _LikeBertConfig:
    return _BertOrMyBertConfig


copyreg.pickle(_LikeBertConfig, lambda _: (_registered, ()))  # its name is that of another class


def _is_supported(config_dict: dict[str, Any]) -> bool:
    """Whether MyBERT computes what this BERT does: it has no decoder, no relative positions, and values in range."""
    has_code = bool(config_dict.get("auto_map"))
    absolute = config_dict.get("position_embedding_type", "absolute") == "absolute"
    if has_code or not absolute or config_dict.get("is_decoder"):
        return False
    try:
        MyBertConfig.from_dict(config_dict)
    except StrictDataclassError:  # BertConfig takes values that MyBERT refuses, such as pad_token_id -1
        return False
    return True


def use_for_bert() -> contextlib.ExitStack:
    """Makes transformers' Auto classes build MyBERT for every BERT checkpoint, in this process.

    `AutoModel…`, `pipeline`, SentenceTransformer, CrossEncoder, SetFit and scripts with Trainer then run on MyBERT,
    with the same numbers. Checkpoints with a decoder, relative positions or code of their own stay as they are, and so
    do classes that are named (`BertModel.from_pretrained`) and models that are loaded already.

    Returns:
        A context manager that ends the use; so does its method `close`. Without either, the use lasts as long as the
        process.

    Example:
        >>> with use_for_bert():
        ...     model = AutoModel.from_pretrained("bert-base-uncased")  # a MyBertModel
    """
    _uses.append(None)
    end = contextlib.ExitStack()
    end.callback(_uses.pop)
    return end


def register() -> None:
    """Registers configuration, models and pipelines with transformers."""
    # exist_ok: the code of a checkpoint may have registered itself before this package was imported.
    CONFIG_MAPPING.register(OLD_MODEL_TYPE, MyBertConfig, exist_ok=True)
    transformers.AutoConfig.register("bert", _BertOrMyBertConfig, exist_ok=True)
    for auto, name in AUTO_MAP.items():
        if auto != "AutoConfig":
            getattr(transformers, auto).register(MyBertConfig, getattr(models, name.split(".")[1]), exist_ok=True)
    # A tokenizer that does not name its class has that of its model. transformers' generic one gives no segments.
    transformers.AutoTokenizer.register(MyBertConfig, BertTokenizer, exist_ok=True)
    MyBertConfig.pipelines_are_registered = True
    for task, implementation in _PIPELINES.items():
        pipelines.PIPELINE_REGISTRY.supported_tasks[task]["impl"] = implementation
    (task,) = QUESTION_ANSWERING
    getattr(pipelines, "REMOVED_TASKS", {}).pop(task, None)  # transformers 5 refuses the name otherwise
    pipelines.PIPELINE_REGISTRY.register_pipeline(
        task,
        MyBertQuestionAnsweringPipeline,
        pt_model=transformers.AutoModelForQuestionAnswering,
        type="text",
    )
