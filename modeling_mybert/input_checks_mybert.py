"""What the models say to wrong input, in place of an index error deep inside or an assertion on the device.

Values are read where that is free: on the CPU, and elsewhere in evaluation only, since reading them would cost
training a synchronisation. Nothing is read while a graph is traced, compiled or exported. Shapes are always checked.
"""

import torch
from torch import Tensor
from transformers import PreTrainedModel


def may_read(tensor: Tensor, training: bool) -> bool:
    """Whether looking at the values of `tensor` costs nothing that matters."""
    if torch.jit.is_tracing() or torch.compiler.is_compiling() or tensor.is_meta:
        return False
    return tensor.device.type == "cpu" or not training


def check_inputs(
    model: PreTrainedModel,
    input_ids: Tensor | None,
    token_type_ids: Tensor | None,
    position_ids: Tensor | None,
    inputs_embeds: Tensor | None,
) -> Tensor:
    """
    Args:
        model: its configuration says how large the tables are.
        input_ids … inputs_embeds: as its `forward` takes them.

    Returns:
        `input_ids` or `inputs_embeds`, whichever is given.

    Raises:
        ValueError: none or both are, shapes do not fit, the batch is empty, or an id lies outside its table.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("give exactly one of input_ids and inputs_embeds")
    name, inputs, dimensions, shape = "input_ids", input_ids, 2, "(batch, sequence)"
    if input_ids is None:
        name, inputs, dimensions, shape = "inputs_embeds", inputs_embeds, 3, "(batch, sequence, hidden_size)"
    if inputs.dim() != dimensions:
        raise ValueError(f"{name} has shape {tuple(inputs.shape)}, expected {shape}")
    batch = tuple(inputs.shape[:2])
    if 0 in batch:
        raise ValueError(f"{name} has shape {tuple(inputs.shape)}: the batch is empty")
    check_shape("token_type_ids", token_type_ids, batch, broadcast=True)
    check_shape("position_ids", position_ids, batch, broadcast=True)
    for name, ids, bound, remedy in (
        ("input_ids", input_ids, "vocab_size", "was the text encoded by this model's own tokenizer?"),
        ("token_type_ids", token_type_ids, "type_vocab_size", "the model knows no more segments"),
        ("position_ids", position_ids, "max_position_embeddings", "truncate the sequence"),
    ):
        check_ids(name, ids, getattr(model.config, bound), bound, model.training, remedy)
    return inputs


def check_ids(name: str, ids: Tensor | None, bound: int, bound_name: str, training: bool, remedy: str) -> None:
    """
    Args:
        name: the argument, for the message.
        ids: integers of any shape; None is not looked at.
        bound: they must lie in [0, bound).
        bound_name: the setting that `bound` comes from.
        remedy: what to do about it.

    Raises:
        ValueError: an id lies outside.
    """
    if ids is None or not may_read(ids, training) or not ids.numel():
        return
    low, high = map(int, ids.aminmax())
    if low < 0 or high >= bound:
        raise ValueError(
            f"{name} holds {low if low < 0 else high}, outside 0 to {bound - 1} ({bound_name}={bound}): {remedy}"
        )


def check_labels(name: str, labels: Tensor, classes: int, classes_name: str, expected: int, training: bool) -> None:
    """
    Args:
        labels: class indices of any shape, or -100 where there is none.
        classes: how many classes there are.
        classes_name: what says so, for the message.
        expected: how many labels the logits call for.

    Raises:
        ValueError: there are more or fewer labels than `expected`, or one is neither a class nor -100.
    """
    if labels.numel() != expected:
        raise ValueError(
            f"{name} has shape {tuple(labels.shape)}: {labels.numel()} labels where {expected} are expected"
        )
    if not labels.numel() or not may_read(labels, training):
        return
    wrong = labels[(labels != -100) & ((labels < 0) | (labels >= classes))]
    if wrong.numel():
        raise ValueError(
            f"{name} holds {wrong[0].item()}, which is neither a class, 0 to {classes - 1} ({classes_name}), "
            "nor -100 (no label)"
        )


def check_shape(name: str, x: Tensor | None, batch: tuple[int, ...], broadcast: bool = False) -> None:
    """
    Args:
        batch: the first two dimensions that `x` must have.
        broadcast: a first dimension of 1 will do as well.

    Raises:
        ValueError: it has others.
    """
    if x is None or x.shape[:2] == batch or (broadcast and x.dim() > 1 and x.shape[:2] == (1, batch[1])):
        return
    raise ValueError(f"{name} has shape {tuple(x.shape)}, but the batch has shape {tuple(batch)}")
