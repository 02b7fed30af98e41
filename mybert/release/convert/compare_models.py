"""Do two models say the same? Their outputs on ragged padded batches, where tokens are real."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from modeling_mybert import MyBertConfig, MyBertForMultipleChoice, MyBertPreTrainedModel
from mybert.common.errors import UserError

Inputs = Mapping[str, Tensor]
_SHAPES = ((1, 1), (1, 9), (3, 16), (5, 37), (2, 10**9))  # rows, columns at most: the last is as long as positions go


def ragged_batches(model: MyBertPreTrainedModel, seed: int = 0) -> Iterator[dict[str, Tensor]]:
    """Padded batches of random ids and segments, each row but the first of another length.

    Yields:
        input_ids, attention_mask, token_type_ids: (B, S) int64; (B, C, S) for a model of choices.
    """
    generator = torch.Generator().manual_seed(seed)
    for rows, columns in _SHAPES:
        columns = min(columns, model.config.max_position_embeddings)
        choices = 2 if isinstance(model, MyBertForMultipleChoice) else 1
        batch = _ragged(model.config, rows * choices, columns, generator)
        yield {name: x.view(rows, choices, columns) if choices > 1 else x for name, x in batch.items()}


def _ragged(config: MyBertConfig, rows: int, columns: int, generator: torch.Generator) -> dict[str, Tensor]:
    def random(high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=generator)

    lengths = 1 + random(columns, rows)
    lengths[0] = columns
    mask = (torch.arange(columns) < lengths[:, None]).long()
    first = torch.arange(columns) < random(columns + 1, rows)[:, None]
    segments = torch.where(first, 0, config.type_vocab_size - 1)
    return {
        "input_ids": random(config.vocab_size, rows, columns),
        "attention_mask": mask,
        "token_type_ids": segments * mask,
    }


@torch.no_grad()
def outputs_of(model: torch.nn.Module, inputs: Inputs) -> dict[str, Tensor]:
    """Name and tensor of each output, without losses."""
    return {name: value for name, value in model(**inputs).items() if isinstance(value, Tensor)}


Run = Callable[[Inputs], dict[str, Tensor]]


def largest_differences(expected: Run, found: Run, batches: Iterable[Inputs]) -> dict[str, float]:
    """
    Args:
        expected, found: from inputs to outputs, of the same names.

    Returns:
        For each output the largest difference, in units of the largest number in the expected one if that is above 1.
    """
    largest: dict[str, float] = {}
    for name, one, other in _pairs(expected, found, batches):
        difference = (one - other).abs().max() / one.abs().max().clamp(min=1)
        largest[name] = max(largest.get(name, 0.0), difference.item(), key=lambda x: (x != x, x))  # NaN above all
    return largest


def relative_errors(expected: Run, found: Run, batches: Iterable[Inputs]) -> dict[str, float]:
    """
    Returns:
        For each output the root mean square of the differences, over that of the expected numbers.
    """
    squares: dict[str, list[float]] = {}
    for name, one, other in _pairs(expected, found, batches):
        error, scale = squares.get(name, (0.0, 0.0))
        squares[name] = (error + (one - other).square().sum().item(), scale + one.square().sum().item())
    return {name: math.sqrt(error / scale) for name, (error, scale) in squares.items()}


def _pairs(expected: Run, found: Run, batches: Iterable[Inputs]) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Each output of each batch, where tokens are real."""
    for inputs in batches:
        mask = inputs["attention_mask"].bool()
        one, other = expected(inputs), found(inputs)
        if one.keys() != other.keys():
            raise ValueError(f"outputs {', '.join(one)} expected, {', '.join(other)} found")
        for name, tensor in one.items():
            real = mask if tensor.shape[: mask.dim()] == mask.shape else ...
            yield name, tensor[real], other[name][real]


def refuse_above(bound: float, found: dict[str, float], name: str, what: str) -> None:
    """
    Args:
        found: name and difference of each output.
        name: of the setting that `bound` is.
        what: begins the message.

    Raises:
        UserError: a difference is above `bound`, or is not a number.
    """
    for output, value in found.items():
        if not value <= bound:
            flag = name.replace("_", "-")
            raise UserError(f"{what}: {output} differs by {value:.3g}, above --{flag} {bound:g}; nothing was written")
