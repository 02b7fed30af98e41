"""Checks of the models' input, with messages in place of index errors or device assertions.

Values are checked where reading them is free: on the CPU, and on other devices in evaluation only, since reading
waits for the device. They are not checked in traced, compiled or exported graphs and under `torch.func`. Shapes are
always checked.
"""

import torch
from torch import Tensor
from transformers import PreTrainedModel


def can_read_without_sync(tensor: Tensor, training: bool) -> bool:
    """Whether the values of `tensor` can be read without slowing training down."""
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]
    if tracing or torch.compiler.is_compiling() or tensor.is_meta:
        return False
    try:
        tensor.data_ptr()
    except RuntimeError:  # inside `torch.func`
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
        model: its configuration has the sizes of the embedding tables.
        input_ids … inputs_embeds: as its `forward` takes them.

    Returns:
        `input_ids` or `inputs_embeds`, whichever is given.

    Raises:
        ValueError: none or both are given, shapes do not fit, the batch is empty, or an id is out of range.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("give exactly one of input_ids and inputs_embeds")
    name, inputs, dimensions, shape = "input_ids", input_ids, 2, "(batch, sequence)"
    if inputs is None:
        name, inputs, dimensions, shape = "inputs_embeds", inputs_embeds, 3, "(batch, sequence, hidden_size)"
    assert inputs is not None
    if inputs.dim() != dimensions:
        raise ValueError(f"{name} has shape {tuple(inputs.shape)}, expected {shape}")
    batch = tuple(inputs.shape[:2])
    if 0 in batch:
        raise ValueError(f"{name} has shape {tuple(inputs.shape)}: the batch is empty")
    check_shape("token_type_ids", token_type_ids, batch, broadcast=True)
    check_shape("position_ids", position_ids, batch, broadcast=True)
    for name, ids, bound, remedy in (
        ("input_ids", input_ids, "vocab_size", "was the text encoded by this model's own tokenizer?"),
        ("token_type_ids", token_type_ids, "type_vocab_size", "use fewer segments"),
        ("position_ids", position_ids, "max_position_embeddings", "truncate the sequence"),
    ):
        check_ids(name, ids, getattr(model.config, bound), bound, model.training, remedy)
    return inputs


def check_ids(name: str, ids: Tensor | None, bound: int, bound_name: str, training: bool, remedy: str) -> None:
    """
    Args:
        name: the argument, for the message.
        ids: integers of any shape, or None.
        bound: they must lie in [0, bound).
        bound_name: the setting that gives `bound`.
        remedy: what the user can do.

    Raises:
        ValueError: an id is out of range.
    """
    if ids is None or not can_read_without_sync(ids, training) or not ids.numel():
        return
    low, high = map(int, ids.aminmax())
    if low < 0 or high >= bound:
        raise ValueError(
            f"{name} holds {low if low < 0 else high}, outside 0 to {bound - 1} ({bound_name}={bound}): {remedy}"
        )


def check_labels(name: str, labels: Tensor, classes: int, classes_name: str, expected: int, training: bool) -> None:
    """
    Args:
        labels: class indices of any shape, -100 for no label.
        classes: number of classes.
        classes_name: the setting that gives `classes`, for the message.
        expected: number of labels that the logits need.

    Raises:
        ValueError: the number of labels is not `expected`, or a label is neither a class nor -100.
    """
    if labels.numel() != expected:
        raise ValueError(
            f"{name} has shape {tuple(labels.shape)}: {labels.numel()} labels where {expected} are expected"
        )
    if not labels.numel() or not can_read_without_sync(labels, training):
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
        broadcast: whether the first dimension may be 1.

    Raises:
        ValueError: `x` has another shape.
    """
    if x is None or x.shape[:2] == batch or (broadcast and x.dim() > 1 and x.shape[:2] == (1, batch[1])):
        return
    raise ValueError(f"{name} has shape {tuple(x.shape)}, but the batch has shape {tuple(batch)}")
