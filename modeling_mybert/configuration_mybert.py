"""Configuration of MyBERT: typed and validated settings, BERT's published sizes, and the classes in a checkpoint."""

import contextlib
import copy
import re
import shutil
from collections.abc import Collection
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.utils.hub import cached_file

# Layers, hidden size, heads: Devlin et al. 2019, section 3 (base, large), and Turc et al. 2019, table 1 (the rest).
NAMED_SIZES: dict[str, dict[str, int]] = {
    name: {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
    }
    for name, (layers, hidden, heads) in {
        "tiny": (2, 128, 2),
        "mini": (4, 256, 4),
        "small": (4, 512, 8),
        "medium": (8, 512, 8),
        "base": (12, 768, 12),
        "large": (24, 1024, 16),
    }.items()
}

# The `auto_map` of every checkpoint, whichever head was saved. All entries name one module, so that transformers loads
# all files from one folder and saving finds them there. The tokenizer has no entry: it travels as data.
AUTO_MAP: dict[str, str] = {
    "AutoConfig": "modeling_mybert.MyBertConfig",
    "AutoModel": "modeling_mybert.MyBertModel",
    "AutoModelForPreTraining": "modeling_mybert.MyBertForPreTraining",
    "AutoModelForMaskedLM": "modeling_mybert.MyBertForMaskedLM",
    "AutoModelForNextSentencePrediction": "modeling_mybert.MyBertForNextSentencePrediction",
    "AutoModelForSequenceClassification": "modeling_mybert.MyBertForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_mybert.MyBertForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_mybert.MyBertForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_mybert.MyBertForMultipleChoice",
    "AutoModelForTextEncoding": "modeling_mybert.MyBertModel",
    "AutoModelForCausalLM": "modeling_mybert.MyBertLMHeadModel",
}

# transformers 5 has no question-answering pipeline, so that checkpoints bring one. Other tasks have no entry:
# transformers would refuse its own pipeline for them without remote code.
QUESTION_ANSWERING = {
    "question-answering": {
        "impl": "question_answering_mybert.MyBertQuestionAnsweringPipeline",
        "pt": ["AutoModelForQuestionAnswering"],
        "type": "text",
    }
}
# Modules that travel only with the head whose pipeline they are; all others travel with every checkpoint.
MODULES_OF_HEADS = {
    "ForQuestionAnswering": ("question_answering_mybert", "answer_decoding_mybert"),
    "ForTokenClassification": ("token_classification_mybert", "words_mybert", "entities_mybert"),
}
OLD_MODEL_TYPE = "mybert"
"""The model type of configurations that BERT cannot express, and of all checkpoints before version 0.2."""


def names_mybert(config_dict: dict[str, Any]) -> bool:
    """Whether a config.json names the classes of MyBERT in its `auto_map`."""
    auto_map = config_dict.get("auto_map")
    named = auto_map.get("AutoConfig") if isinstance(auto_map, dict) else None
    return isinstance(named, str) and named.split("--")[-1] == AUTO_MAP["AutoConfig"]


@strict
class MyBertConfig(PreTrainedConfig):
    """Architecture settings of MyBERT, with BERT's names and defaults (`transformers.BertConfig`).

    `to_dict` and config.json describe a BERT: model type `bert`, the names of transformers' classes in
    `architectures`, and those of MyBERT in `auto_map`. int8 weights are no BERT; their model type is `mybert`.

    Args:
        hidden_size: width `H` of the hidden states; a multiple of the heads `A`, `num_attention_heads`.
        classifier_dropout: dropout before a task head; None: `hidden_dropout_prob`.
        tie_word_embeddings: share the word embedding with the vocabulary projection, as in BERT.
        is_decoder, add_cross_attention, use_cache, bos_token_id, eos_token_id: of transformers' BertLMHeadModel.
        int8_outliers: features inside each feed-forward layer that stay in float32 while the weights are int8
            (`mybert quantize`); None: the weights are not int8.
        vocab_size, pad_token_id, …: see `transformers.BertConfig`. Dropout lies in [0, 1).

    Raises:
        huggingface_hub.errors.StrictDataclassError: a field, named in the message, has the wrong type or range.

    Example:
        >>> MyBertConfig.from_size("mini", vocab_size=8192).hidden_size
        256
    """

    model_type = "bert"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "mlm_loss", "nsp_loss"]  # by Trainer
    pipelines_are_registered: ClassVar[bool] = False  # True in the installed package, which needs no remote code

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = True
    is_decoder: bool = False
    add_cross_attention: bool = False
    use_cache: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    int8_outliers: int | None = None

    @classmethod
    def from_size(cls, size: str, **settings: Any) -> "MyBertConfig":
        """The configuration of a published size (`tiny`, `mini`, `small`, `medium`, `base`, `large`)."""
        if size not in NAMED_SIZES:
            raise ValueError(f"size {size!r} is not one of {', '.join(NAMED_SIZES)}")
        return cls(**{**NAMED_SIZES[size], **settings})

    def validate_ranges(self) -> None:
        """Check ranges; `@strict` calls this at construction and before saving."""
        for name, kind in MyBertConfig.__annotations__.items():
            if kind is int and getattr(self, name) < 1:  # every size; ids may also be None
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {value}")
        for name in ("initializer_range", "layer_norm_eps"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.hidden_act not in ACT2FN:
            raise ValueError(f"hidden_act must be one of {', '.join(sorted(ACT2FN))}, got {self.hidden_act!r}")
        if self.int8_outliers is not None and not 0 <= self.int8_outliers <= self.intermediate_size:
            raise ValueError(f"int8_outliers must lie in [0, {self.intermediate_size}], got {self.int8_outliers}")
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(f"pad_token_id must lie in [0, {self.vocab_size}), got {self.pad_token_id}")

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As in transformers; BERT's configuration is read as a MyBERT one, since all its fields are the same.

        Raises:
            ValueError: the checkpoint is neither a BERT nor a MyBERT.
        """
        values, kwargs = super().get_config_dict(*args, **kwargs)
        model_type = values.get("model_type", cls.model_type)
        if model_type not in (cls.model_type, OLD_MODEL_TYPE):
            raise ValueError(f"model_type must be {cls.model_type!r}, the checkpoint has {model_type!r}")
        values["model_type"] = cls.model_type
        return values, kwargs

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> "MyBertConfig":
        """As in transformers; names of labels are text, a single architecture is a list, and the installed package
        leaves out the pipeline that it has registered.

        Raises:
            ValueError: the model uses relative positions.
        """
        values = dict(config_dict)
        positions = values.pop("position_embedding_type", None)
        if positions not in (None, "absolute"):
            raise ValueError(f"position_embedding_type must be 'absolute', the checkpoint has {positions!r}")
        if "custom_pipelines" in values:
            values["custom_pipelines"] = _without_ours(values["custom_pipelines"], cls.pipelines_are_registered)
        if isinstance(names := values.get("id2label"), dict):  # transformers 5.17 refuses numbers as names
            values["id2label"] = {index: str(name) for index, name in names.items()}
        if isinstance(architecture := values.get("architectures"), str):  # likewise
            values["architectures"] = [architecture]
        return super().from_dict(values, **kwargs)

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoConfig") -> None:
        """No operation: `save_pretrained` writes the whole `auto_map` itself."""

    def save_pretrained(self, save_directory: str | PathLike[str], push_to_hub: bool = False, **kwargs: Any) -> None:
        """As in transformers, with the whole `auto_map` and the code that it names beside the configuration.

        transformers alone would list the saved class only, and every other Auto class would fail on the folder.
        """
        folder = Path(save_directory).resolve()
        code = self.code()
        available = {auto: name for auto, name in AUTO_MAP.items() if name.split(".")[0] in code}
        self.auto_map = {**(getattr(self, "auto_map", None) or {}), **available}
        self._set_custom_pipelines(code)
        super().save_pretrained(save_directory, **({} if push_to_hub else kwargs))
        for path in code.values():
            if path.parent != folder:
                shutil.copyfile(path, folder / path.name)
        if push_to_hub:  # here, since transformers would push before the code is there
            self.push_to_hub(**{"repo_id": folder.name, **kwargs})

    def code(self) -> dict[str, Path]:
        """The modules that travel with this checkpoint, by name.

        Code of a folder or repository runs from a copy of the model's modules; those of the head are found there.
        """
        here = Path(__file__).resolve().parent
        modules = {path.stem: path for path in here.glob("*_mybert.py")}
        for head, names in MODULES_OF_HEADS.items():
            is_saved = head in str((self.architectures or ())[:1])
            paths = {name: modules.pop(name, None) or (is_saved and self._original(here, name)) for name in names}
            modules |= {name: path for name, path in paths.items() if is_saved and path}
        return modules

    def _original(self, here: Path, name: str) -> Path | None:
        """A module of the folder from which this was loaded, or of the repository, whose commit `here` is named by."""
        path: Path | str | None = Path(self.name_or_path or here, f"{name}.py")
        with contextlib.suppress(OSError, ValueError):  # the repository is gone
            if re.fullmatch("[0-9a-f]{40}", here.name):
                path = cached_file(str(self.name_or_path), f"{name}.py", revision=here.name)
        return Path(path) if path and Path(path).is_file() else None

    def _set_custom_pipelines(self, code: Collection[str]) -> None:
        """Name the pipeline of question answering, which `pipeline` then finds in the folder."""
        pipelines = _without_ours(getattr(self, "custom_pipelines", None) or {})
        if "question_answering_mybert" in code:
            pipelines |= copy.deepcopy(QUESTION_ANSWERING)
        self.__dict__.pop("custom_pipelines", None)
        if pipelines:
            self.custom_pipelines = pipelines

    def to_dict(self) -> dict[str, Any]:
        """The values of config.json, those of a BERT. `pipeline` replaces the names of Auto classes by the classes,
        here they are names."""
        values = super().to_dict()
        for task in (values.get("custom_pipelines") or {}).values():
            task["pt"] = [name if isinstance(name, str) else name.__name__ for name in task.get("pt", ())]
        if self.int8_outliers is not None:
            return {**values, "model_type": OLD_MODEL_TYPE}
        del values["int8_outliers"]
        values["position_embedding_type"] = "absolute"  # transformers 5 leaves it out; other programs require it
        values["architectures"] = [name.removeprefix("My") for name in self.architectures or ()] or None
        return values


def _without_ours(pipelines: dict[str, dict[str, Any]], registered: bool = True) -> dict[str, dict[str, Any]]:
    """The pipelines of a checkpoint except those that earlier versions named, and ours if it is `registered`."""
    return {
        task: entry
        for task, entry in pipelines.items()
        if not re.fullmatch(r"(pipelines|question_answering)_mybert\.MyBert\w+", entry.get("impl", "").split("--")[-1])
        or (not registered and task in QUESTION_ANSWERING)
    }


__all__ = ["AUTO_MAP", "NAMED_SIZES", "QUESTION_ANSWERING", "MyBertConfig"]
