"""Sinusoidal positions, and attention heads that start by attending to a neighbouring token.

Trained BERT has heads that attend to the previous or the next token (Clark et al. 2019, "What does BERT look at?",
section 3.1). A new model needs many steps to find them, and until then it predicts from word frequencies only. With
sinusoidal positions they can be written down: the sinusoids of position p + d are a rotation of those of p (Vaswani et
al. 2017, section 3.5), so a query that rotates them meets the key of the token at distance d.
"""

import math

import torch
from torch import Tensor

from modeling_mybert.attention_mybert import MyBertSelfAttention

_HIGHEST, _LOWEST = 2.5, 0.02
"""Frequencies of the sinusoids, in radians per position."""
_LOWEST_ATTENDED = 0.2
"""Lower frequencies do not tell neighbours apart."""
_GAIN, _NOISE = 16.0, 0.5
"""Scale of the attention scores, times the square root of the head size; weight of the random start."""


def frequencies(hidden_size: int) -> Tensor:
    """Geometric frequencies of the pairs of sine and cosine, in descending order, (hidden_size + 1) // 2."""
    return torch.logspace(math.log10(_HIGHEST), math.log10(_LOWEST), (hidden_size + 1) // 2)


def sinusoids(positions: int, hidden_size: int) -> Tensor:
    """Sines, then cosines, of the positions, (positions, hidden_size), with a mean square of 1."""
    angles = torch.arange(positions)[:, None] * frequencies(hidden_size)
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :hidden_size] * 2**0.5


@torch.no_grad()
def attend_to_neighbours(attention: MyBertSelfAttention) -> None:
    """Changes queries and keys so that head 0 attends to the previous token, head 1 to the next, head 2 to the one
    before the previous, and so on.

    The embeddings must contain `sinusoids`. Half of the random weights stays, so that no two dimensions are alike.
    """
    size, width = attention.head_size, attention.query.in_features
    available = frequencies(width)[: width // 2]
    pairs = min(size // 2, len(available))
    attended = max(pairs, int((available >= _LOWEST_ATTENDED).sum()))
    chosen = torch.linspace(0, attended - 1, pairs).round().long()
    sines, cosines = chosen, chosen + (width + 1) // 2
    first, second = torch.arange(pairs), torch.arange(pairs) + pairs
    for head in range(attention.query.out_features // size):
        distance = (head // 2 + 1) * (-1 if head % 2 == 0 else 1)
        turn = distance * available[chosen]
        key, query = torch.zeros(size, width), torch.zeros(size, width)
        key[first, sines] = key[second, cosines] = 1
        query[first, sines], query[first, cosines] = turn.cos(), turn.sin()  # sin(f (p + d))
        query[second, cosines], query[second, sines] = turn.cos(), -turn.sin()  # cos(f (p + d))
        rows = slice(head * size, (head + 1) * size)
        for weight, pattern in ((attention.query.weight, query), (attention.key.weight, key)):
            weight[rows] = weight[rows] * _NOISE + pattern * (_GAIN / size**0.5) ** 0.5
