"""Export to transformers' own BERT: the same tensors under the same names."""

from collections.abc import Collection
from pathlib import Path

import transformers

from modeling_mybert import MyBertForQuestionAnswering, MyBertModel, MyBertPreTrainedModel
from mybert.common.devices import quiet_loading
from mybert.common.errors import UserError
from mybert.release.convert.compare_models import largest_differences, outputs_of, ragged_batches

_MYBERT_ONLY = ("auto_map", "custom_pipelines", "model_type", "architectures", "transformers_version")


def write_bert(model: MyBertPreTrainedModel, folder: Path) -> dict[str, float]:
    """Saves `model` as transformers' class of the same head; returns the largest difference of each output."""
    cls, arguments = bert_class(model)
    bert, report = cls.from_pretrained(
        None,
        config=bert_config(model),
        state_dict=model.state_dict(),
        dtype=model.dtype,
        output_loading_info=True,
        **arguments,
    )
    _check_keys(cls, report)
    bert.save_pretrained(folder)
    return differences_from_bert(model, str(folder))


def bert_config(model: MyBertPreTrainedModel) -> transformers.BertConfig:
    """The configuration of the same model in transformers, with labels and task settings, without remote code."""
    values = {name: value for name, value in model.config.to_dict().items() if name not in _MYBERT_ONLY}
    config = transformers.BertConfig(**values, architectures=[type(model).__name__.removeprefix("My")])
    config.position_embedding_type = "absolute"  # transformers 5 leaves it out; other programs require it
    if isinstance(model, MyBertForQuestionAnswering):
        config.num_labels = 2  # start and end; BERT sizes its head by this number
    return config


def bert_class(model: MyBertPreTrainedModel) -> tuple[type[transformers.PreTrainedModel], dict]:
    """transformers' class of the same head, and the arguments to create it."""
    name = type(model).__name__.removeprefix("My")
    cls = getattr(transformers, name, None)
    if cls is None:
        raise UserError(f"transformers has no {name}, so {type(model).__name__} cannot be exported to BERT")
    without_pooler = isinstance(model, MyBertModel) and model.pooler is None
    return cls, {"add_pooling_layer": False} if without_pooler else {}


def differences_from_bert(
    model: MyBertPreTrainedModel, folder: str, left_out: Collection[str] = ()
) -> dict[str, float]:
    """The largest differences from the outputs of transformers' class, loaded from `folder`, in float32.

    `left_out` are weights in `folder` that neither model has.
    """
    cls, arguments = bert_class(model)
    with quiet_loading():
        bert, report = cls.from_pretrained(folder, dtype="float32", output_loading_info=True, **arguments)
    _check_keys(cls, report, left_out)
    ours, theirs = model.float().eval(), bert.eval()
    return largest_differences(
        lambda inputs: outputs_of(theirs, inputs), lambda inputs: outputs_of(ours, inputs), ragged_batches(model)
    )


def _check_keys(cls: type, report: dict, left_out: Collection[str] = ()) -> None:
    missing = sorted(report["missing_keys"])
    unexpected = sorted(key for key in report["unexpected_keys"] - set(left_out) if not key.endswith("position_ids"))
    if missing or unexpected:
        raise UserError(f"{cls.__name__}: missing weights {missing or 'none'}, unexpected {unexpected or 'none'}")
