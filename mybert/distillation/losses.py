"""Losses between a teacher and a student.

Shapes: `T` tokens of all sequences, `N` sequences, `L` longest of them, `H` hidden size, `A` relation heads, `D` size
of a relation head.
"""

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, kl_div, log_softmax, mse_loss, pad

_LEAST = -1e4  # a score whose probability is zero, and finite so that zero times it is zero


def cosine_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean over the tokens of 1 - cosine (Sanh et al. 2019, section 3); both (T, H)."""
    return 1 - cosine_similarity(student.float(), teacher.float(), dim=-1).mean()


def state_loss(student: list[Tensor], teacher: list[Tensor]) -> Tensor:
    """Mean squared error over layers, tokens and dimensions (Jiao et al. 2020, section 3.1); lists of (T, H)."""
    return torch.stack([mse_loss(s.float(), t.float()) for s, t in zip(student, teacher, strict=True)]).mean()


def relation_loss(student: list[Tensor], teacher: list[Tensor], lengths: Tensor, heads: int) -> Tensor:
    """KL(teacher || student) of the self-attention relations: mean over positions, sum over queries, keys, values.

    A relation is softmax(X Xᵀ / √D) for the vectors X of a sequence in a relation head (Wang et al. 2021, section
    3.1). Hidden sizes of student and teacher may differ.

    Args:
        student, teacher: queries, keys and values, (T, H) each.
        lengths: (N,) of the sequences.
    """
    total = torch.zeros((), device=lengths.device)
    for own, other in zip(student, teacher, strict=True):
        relations, real = _relations(own, lengths, heads)
        expected, _ = _relations(other, lengths, heads)
        divergence = kl_div(relations, expected, reduction="none", log_target=True).sum(-1)  # (N, A, L)
        total = total + divergence.transpose(1, 2)[real].mean()
    return total


def _relations(vectors: Tensor, lengths: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """(N, A, L, L) log-probabilities, and (N, L) the real tokens."""
    longest = int(lengths.max())
    real = torch.arange(longest, device=vectors.device) < lengths.to(vectors.device)[:, None]
    sequences = vectors.float().split(lengths.tolist())
    grid = torch.stack([pad(sequence, (0, 0, 0, longest - len(sequence))) for sequence in sequences])
    x = grid.unflatten(-1, (heads, -1)).transpose(1, 2)  # (N, A, L, D)
    scores = x @ x.transpose(-1, -2) / x.shape[-1] ** 0.5
    return log_softmax(scores.masked_fill(~real[:, None, None], _LEAST), -1), real
