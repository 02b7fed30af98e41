"""Comparison of the outputs of two models on padded batches, at the real tokens."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from modeling_mybert import MyBertForMultipleChoice, MyBertPreTrainedModel
from mybert.common.errors import UserError

Inputs = Mapping[str, Tensor]
Run = Callable[[Inputs], dict[str, Tensor]]
_SHAPES = ((1, 1), (1, 9), (3, 16), (5, 37), (2, 10**9))  # rows and columns; the last has the length of the model


def ragged_batches(model: MyBertPreTrainedModel) -> Iterator[dict[str, Tensor]]:
    """Padded batches of random token ids and segments; rows have different lengths, the first the full one.

    Their tensors are (B, S) int64; (B, choices, S) for multiple choice.
    """
    config, random = model.config, functools.partial(torch.randint, generator=torch.Generator().manual_seed(0))
    choices = 2 if isinstance(model, MyBertForMultipleChoice) else 1
    for rows, columns in _SHAPES:
        count, columns = rows * choices, min(columns, config.max_position_embeddings)
        lengths = 1 + random(columns, (count, 1))
        lengths[0] = columns
        mask = (torch.arange(columns) < lengths).long()
        first = torch.arange(columns) < random(columns + 1, (count, 1))
        batch = {"input_ids": random(config.vocab_size, (count, columns)), "attention_mask": mask}
        batch["token_type_ids"] = torch.where(first, 0, config.type_vocab_size - 1) * mask
        yield {name: x.view(rows, choices, columns) if choices > 1 else x for name, x in batch.items()}


@torch.no_grad()
def outputs_of(model: torch.nn.Module, inputs: Inputs) -> dict[str, Tensor]:
    """The output tensors of a model by name."""
    return {name: value for name, value in model(**inputs).items() if isinstance(value, Tensor)}


def largest_differences(expected: Run, found: Run, batches: Iterable[Inputs]) -> dict[str, float]:
    """The largest absolute difference of each output, divided by its largest value if that is above 1."""
    largest: dict[str, float] = {}
    for name, one, other in _pairs(expected, found, batches):
        difference = (one - other).abs().max() / one.abs().max().clamp(min=1)
        largest[name] = max(largest.get(name, 0.0), difference.item(), key=lambda x: (x != x, x))  # NaN is largest
    return largest


def relative_errors(expected: Run, found: Run, batches: Iterable[Inputs]) -> dict[str, float]:
    """The root mean square difference of each output, divided by the root mean square of its expected values."""
    squares: dict[str, tuple[float, float]] = {}
    for name, one, other in _pairs(expected, found, batches):
        error, scale = squares.get(name, (0.0, 0.0))
        squares[name] = (error + (one - other).square().sum().item(), scale + one.square().sum().item())
    return {name: math.sqrt(error / scale) for name, (error, scale) in squares.items()}


def _pairs(expected: Run, found: Run, batches: Iterable[Inputs]) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name and both values of each output of each batch, at the real tokens."""
    for inputs in batches:
        mask = inputs["attention_mask"].bool()
        one, other = expected(inputs), found(inputs)
        if one.keys() != other.keys():
            raise ValueError(f"expected the outputs {', '.join(one)}, found {', '.join(other)}")
        for name, tensor in one.items():
            real = mask if tensor.shape[: mask.dim()] == mask.shape else ...
            yield name, tensor[real], other[name][real]


def refuse_above(bound: float, differences: dict[str, float], flag: str) -> None:
    """Raises if a difference is above `bound`, which `flag` sets, or is not a number."""
    for output, value in differences.items():
        if not value <= bound:
            raise UserError(f"{output} differs by {value:.3g}, above {flag} {bound:g}; nothing was written")
