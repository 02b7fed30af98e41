"""Checks of the arguments of models, with messages in place of index errors or device assertions.

Values are checked where `readable` says that reading them is free; shapes are always checked.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from transformers.utils import logging

logger = logging.get_logger(__name__)


def check_inputs(
    config: Any,
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    position_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    cu_seq_lens: Tensor | None,
    readable: Callable[[Tensor], bool],
) -> None:
    """Checks the arguments of `MyBertModel.forward`, and warns if positions restart in a batch that is not packed.

    Raises:
        ValueError: shapes do not fit, the batch is empty, or an id is out of range.
    """
    name, inputs, dimensions, shape = "input_ids", input_ids, 2, "(batch, sequence)"
    if inputs is None:
        name, inputs, dimensions, shape = "inputs_embeds", inputs_embeds, 3, "(batch, sequence, hidden_size)"
    assert inputs is not None
    if inputs.dim() != dimensions:
        raise ValueError(f"{name} has shape {tuple(inputs.shape)}, expected {shape}")
    batch = inputs.shape[:2]
    if 0 in batch:
        raise ValueError(f"{name} has shape {tuple(inputs.shape)}: the batch is empty")
    if cu_seq_lens is not None and (cu_seq_lens.dim() != 1 or len(cu_seq_lens) < 2):
        raise ValueError(f"cu_seq_lens_q has shape {tuple(cu_seq_lens.shape)}, expected (sequences + 1,)")
    shapes = batch, (1, batch[1]), *(() if cu_seq_lens is not None else (batch[1:],))
    for name, x in (("token_type_ids", token_type_ids), ("position_ids", position_ids)):
        if x is not None and x.shape[:2] not in shapes:
            raise ValueError(f"{name} has shape {tuple(x.shape)}, but the batch has shape {tuple(batch)}")
    for name, ids, bound, remedy in (
        ("input_ids", input_ids, "vocab_size", "was the text encoded by this model's own tokenizer?"),
        ("token_type_ids", token_type_ids, "type_vocab_size", "use fewer segments"),
        ("position_ids", position_ids, "max_position_embeddings", "truncate the sequence"),
    ):
        if ids is not None and readable(ids):
            check_ids(name, ids, getattr(config, bound), bound, remedy)
    one_row = cu_seq_lens is None and attention_mask is None and batch[0] == 1
    if one_row and position_ids is not None and readable(position_ids) and (position_ids[..., 1:] == 0).any():
        logger.warning_once(
            "position_ids restart within a row, but all tokens of a row attend to each other; for a packed "
            "batch pass cu_seq_lens_q too, as DataCollatorWithFlattening(return_flash_attn_kwargs=True) does"
        )


def check_ids(name: str, ids: Tensor, bound: int, bound_name: str, remedy: str) -> None:
    """Raises ValueError if an id lies outside [0, bound). The names and the remedy are for the message."""
    if not ids.numel():
        return
    low, high = map(int, ids.aminmax())
    if low < 0 or high >= bound:
        raise ValueError(
            f"{name} holds {low if low < 0 else high}, outside 0 to {bound - 1} ({bound_name}={bound}): {remedy}"
        )


def check_labels(name: str, labels: Tensor, classes: int, classes_name: str, expected: int, readable: bool) -> None:
    """Raises ValueError if the number of labels is not `expected`, or one is neither a class nor -100 (no label)."""
    if labels.numel() != expected:
        raise ValueError(
            f"{name} has shape {tuple(labels.shape)}: {labels.numel()} labels where {expected} are expected"
        )
    if not labels.numel() or not readable:
        return
    wrong = labels[(labels != -100) & ((labels < 0) | (labels >= classes))]
    if wrong.numel():
        raise ValueError(
            f"{name} holds {wrong[0].item()}, which is neither a class, 0 to {classes - 1} ({classes_name}), "
            "nor -100 (no label)"
        )
