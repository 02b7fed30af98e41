"""Every architecture setting of MyBERT, typed and validated, and BERT's published sizes by name."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

if TYPE_CHECKING:  # transformers reads this line too, and so keeps the whole code beside a configuration that it loads
    from .modeling_mybert import MyBertModel  # noqa: F401

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

# What a checkpoint tells the Auto classes, whichever head was saved. The tokenizer has no entry: it travels as data.
AUTO_MAP: dict[str, str] = {
    "AutoConfig": "configuration_mybert.MyBertConfig",
    "AutoModel": "modeling_mybert.MyBertModel",
    "AutoModelForPreTraining": "modeling_mybert.MyBertForPreTraining",
    "AutoModelForMaskedLM": "modeling_mybert.MyBertForMaskedLM",
    "AutoModelForNextSentencePrediction": "modeling_mybert.MyBertForNextSentencePrediction",
    "AutoModelForSequenceClassification": "modeling_mybert.MyBertForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_mybert.MyBertForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_mybert.MyBertForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_mybert.MyBertForMultipleChoice",
    "AutoModelForCausalLM": "modeling_mybert.MyBertLMHeadModel",
}


@strict
class MyBertConfig(PreTrainedConfig):
    """The settings of a MyBERT encoder, with BERT's names and defaults (`transformers.BertConfig`).

    Args:
        vocab_size: rows of the word embedding and of the vocabulary projection.
        hidden_size: width `H` of every token's vector; a multiple of `num_attention_heads`.
        num_hidden_layers: how many encoder layers.
        num_attention_heads: heads `A` of each attention.
        intermediate_size: width of the feed-forward layer.
        hidden_act: its activation, a key of `transformers.activations.ACT2FN`.
        hidden_dropout_prob: dropout after embeddings, attention and feed-forward, in [0, 1).
        attention_probs_dropout_prob: dropout on the attention probabilities, in [0, 1).
        max_position_embeddings: the longest sequence, in tokens.
        type_vocab_size: how many segment ids there are.
        initializer_range: standard deviation of the truncated normal that weights start from.
        layer_norm_eps: added to the variance in layer norms.
        pad_token_id: id of [PAD].
        classifier_dropout: dropout before a task head; None means `hidden_dropout_prob`.
        tie_word_embeddings: the vocabulary projection shares the word embedding, as in BERT.
        is_decoder: the weights are those of a causal model (`MyBertLMHeadModel`).
        add_cross_attention: the causal model has layers that attend to an encoder.
        use_cache: the causal model returns its keys and values, to go on from.
        bos_token_id, eos_token_id: what generation begins and ends with.

    Raises:
        huggingface_hub.errors.StrictDataclassError: a field has the wrong type or is out of range; it is named.

    Example:
        >>> MyBertConfig.from_size("mini", vocab_size=8192).hidden_size
        256
    """

    model_type = "mybert"

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

    @classmethod
    def from_size(cls, size: str, **settings) -> "MyBertConfig":
        """The configuration of a published size (`tiny`, `mini`, `small`, `medium`, `base`, `large`).

        Raises:
            ValueError: no such size.
        """
        if size not in NAMED_SIZES:
            raise ValueError(f"size {size!r} is not one of {', '.join(NAMED_SIZES)}")
        return cls(**{**NAMED_SIZES[size], **settings})

    def validate_ranges(self):
        """Called by `@strict` at construction and before saving."""
        for name in (
            *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
            *("max_position_embeddings", "type_vocab_size"),
        ):
            if getattr(self, name) < 1:
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
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(f"pad_token_id must lie in [0, {self.vocab_size}), got {self.pad_token_id}")

    @classmethod
    def get_config_dict(cls, *args, **kwargs) -> tuple[dict[str, Any], dict[str, Any]]:
        """As in transformers; a BERT checkpoint's configuration is read as ours, since all its fields are.

        Raises:
            ValueError: the checkpoint is neither a BERT nor a MyBERT, whatever its tensors are called; or it uses
                relative positions, which MyBERT does not have.
        """
        values, kwargs = super().get_config_dict(*args, **kwargs)
        found = values.get("model_type", cls.model_type)
        if found not in ("bert", cls.model_type):
            raise ValueError(f"model_type must be 'bert' or {cls.model_type!r}, the checkpoint has {found!r}")
        if found == "bert":
            positions = values.pop("position_embedding_type", "absolute")
            if positions != "absolute":
                raise ValueError(f"position_embedding_type must be 'absolute', the checkpoint has {positions!r}")
            values["model_type"] = cls.model_type
        return values, kwargs

    def save_pretrained(self, save_directory, push_to_hub: bool = False, **kwargs):
        """As in transformers, with the whole `auto_map` and the code it names beside the configuration.

        transformers alone would list the saved class only, and every other Auto class would fail on the folder.
        """
        folder = Path(save_directory).resolve()
        code = {path.stem: path for path in Path(__file__).resolve().parent.glob("*_mybert.py")}
        here = {auto: name for auto, name in AUTO_MAP.items() if name.split(".")[0] in code}
        self.auto_map = {**(getattr(self, "auto_map", None) or {}), **here}
        self._name_pipelines()
        super().save_pretrained(save_directory, **({} if push_to_hub else kwargs))
        for path in code.values():
            if path.parent != folder:
                shutil.copyfile(path, folder / path.name)
        if push_to_hub:  # only now: transformers would push before the code is there
            self.push_to_hub(**{"repo_id": folder.name, **kwargs})

    def _name_pipelines(self):
        """Tells `pipeline` of question answering where there is a head for it, and only there."""
        # Not at the top of the file, since it loads transformers' pipelines; that it stands here lets the code travel.
        from .question_answering_mybert import CUSTOM_PIPELINES

        others = getattr(self, "custom_pipelines", None) or {}
        found = {task: others[task] for task in others if task not in CUSTOM_PIPELINES}
        if self.architectures == ["MyBertForQuestionAnswering"]:
            found |= {task: dict(info) for task, info in CUSTOM_PIPELINES.items()}
        if found:
            self.custom_pipelines = found
        else:
            self.__dict__.pop("custom_pipelines", None)

    def to_dict(self) -> dict[str, Any]:
        """As in transformers; where `pipeline` has put classes in place of names, the names."""
        values = super().to_dict()
        for task in (values.get("custom_pipelines") or {}).values():
            task["pt"] = [name if isinstance(name, str) else name.__name__ for name in task.get("pt", ())]
        return values


__all__ = ["AUTO_MAP", "NAMED_SIZES", "MyBertConfig"]
