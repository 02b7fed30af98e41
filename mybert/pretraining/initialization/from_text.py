"""Initialise a new model from its text: embeddings, masked-language-model head, attention to neighbouring tokens.

Token vectors come from the co-occurrence statistics of the text. Trained BERT has heads that attend to the previous or
the next token (Clark et al. 2019, "What does BERT look at?", section 3.1). A new model needs many steps to find them,
and until then it predicts from word frequencies only. With sinusoidal positions they can be written down: the
sinusoids of position p + d are a rotation of those of p (Vaswani et al. 2017, section 3.5), so a query that rotates
them meets the key of the token at distance d.
"""

import math
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_matrix, csr_matrix
from torch import Tensor

from modeling_mybert import MyBertForPreTraining
from modeling_mybert.attention_mybert import MyBertSelfAttention
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.data.batching import ExampleDataset
from mybert.pretraining.data.counter_based_random import permutation

_MOST_DIMENSIONS = 256
_IDENTITY, _NOISE = 0.7, 0.5
"""Weights of the identity in the transform of the masked-language-model head, and of the random start in what is
replaced."""
_SAMPLED_TOKENS, _BATCH = 4_000_000, 2000
_WINDOW = 4
"""Tokens to each side that count as context, each weighted by 1 / distance."""
_SMOOTHING = 0.75
"""Power of the context frequencies, which lessens the weight of rare contexts."""
_ITERATIONS = 2
_HIGHEST, _LOWEST = 2.5, 0.02
"""Frequencies of the sinusoids, in radians per position."""
_LOWEST_ATTENDED = 0.2
"""Lower frequencies do not tell neighbours apart."""
_GAIN = 16.0
"""Scale of the attention scores, times the square root of the head size."""


def initialize_from_text(model: MyBertForPreTraining, corpus: Corpus, seed: int) -> None:
    """Replaces random values; the scale of the embeddings remains `initializer_range`.

    - Token vectors: the factors of the positive pointwise mutual information of tokens and their neighbours (Levy and
      Goldberg 2014, "Neural word embedding as implicit matrix factorization", with the context smoothing of Levy et
      al. 2015). Special tokens and tokens that the sample lacks keep their random vectors.
    - Position vectors: sinusoids (Vaswani et al. 2017, section 3.5).
    - First layer: each head attends to one of the nearest positions, see `attend_to_neighbours`.
    - Masked-language-model head: its transform is close to the identity, so that hidden states are compared with token
      vectors from the first step; its bias has the logarithms of the token frequencies.

    Args:
        model: a new model, changed in place.
        corpus: its training examples are sampled.
        seed: of the sample and of the factorization.
    """
    special = corpus.tokenizer.all_special_ids
    counts, neighbours = count_neighbours(corpus, seed)
    counts[special] = 0
    scale = model.config.initializer_range
    embeddings = model.bert.embeddings
    with torch.no_grad():
        frequencies = torch.from_numpy((counts + 1) / (counts + 1).sum())
        model.cls.predictions.bias.copy_(frequencies.log())
        transform = model.cls.predictions.transform.dense.weight
        transform.mul_(_NOISE).add_(torch.eye(len(transform)), alpha=_IDENTITY)
        embeddings.position_embeddings.weight.copy_(sinusoids(*embeddings.position_embeddings.weight.shape) * scale)
        layers: Any = model.bert.encoder.layer
        for layer in layers[:1]:
            attend_to_neighbours(layer.attention.self)
        known = torch.from_numpy(np.flatnonzero(counts))
        width = min(_MOST_DIMENSIONS, model.config.hidden_size, len(known) // 2)
        if width:
            vectors = factorize(positive_information(neighbours), width, seed)[known]
            vectors *= scale * width**0.5 / vectors.norm(dim=1, keepdim=True).clamp_min(1e-6)
            embeddings.word_embeddings.weight[known, :width] = vectors


def count_neighbours(corpus: Corpus, seed: int) -> tuple[np.ndarray, csr_matrix]:
    """(V,) how often each token occurs in a sample, and (V, V) sums of 1 / distance of its pairs of tokens at most
    `_WINDOW` apart.
    """
    examples, size = ExampleDataset(corpus.train), len(corpus.tokenizer)
    number = min(len(examples), max(1, round(_SAMPLED_TOKENS / corpus.shape.mean_length)))
    sample = permutation(len(examples), seed, 0)[:number]
    counts, pairs = np.zeros(size, dtype=np.int64), csr_matrix((size, size), dtype=np.float32)
    for start in range(0, number, _BATCH):
        batch = examples.__getitems__([(0, int(index)) for index in sample[start : start + _BATCH]])
        row = np.repeat(np.arange(len(batch.lengths)), batch.lengths)
        ids = batch.input_ids
        counts += np.bincount(ids, minlength=size)
        for distance in range(1, _WINDOW + 1):
            together = row[distance:] == row[:-distance]
            left, right = ids[:-distance][together], ids[distance:][together]
            weights = np.full(len(left), 1 / distance, dtype=np.float32)
            pairs += coo_matrix((weights, (left, right)), shape=(size, size)).tocsr()
    return counts, pairs + pairs.T


def positive_information(pairs: csr_matrix) -> csr_matrix:
    """The positive pointwise mutual information of tokens (rows) and contexts (columns), (V, V) sparse."""
    entries = pairs.tocoo()
    tokens = np.asarray(pairs.sum(axis=1)).ravel()
    contexts = tokens**_SMOOTHING
    expected = tokens[entries.row] * contexts[entries.col] / contexts.sum()
    information = np.log(entries.data / expected)
    positive = information > 0
    places = entries.row[positive], entries.col[positive]
    return csr_matrix((information[positive].astype(np.float32), places), shape=pairs.shape)


def factorize(matrix: csr_matrix, width: int, seed: int) -> Tensor:
    """Centred left factors of the truncated singular value decomposition, each with the root of its value, (V, width).

    The decomposition is randomized (Halko, Martinsson and Tropp 2011).
    """
    from sklearn.utils.extmath import randomized_svd  # takes a second, which other runs need not wait

    left, values, _ = randomized_svd(
        matrix, width, n_iter=_ITERATIONS, power_iteration_normalizer="QR", random_state=seed
    )
    vectors = left * np.sqrt(values)
    return torch.from_numpy(vectors - vectors.mean(axis=0))


def angular_frequencies(hidden_size: int) -> Tensor:
    """Geometric frequencies of the pairs of sine and cosine, in descending order, (hidden_size + 1) // 2."""
    return torch.logspace(math.log10(_HIGHEST), math.log10(_LOWEST), (hidden_size + 1) // 2)


def sinusoids(positions: int, hidden_size: int) -> Tensor:
    """Sines, then cosines, of the positions, (positions, hidden_size), with a mean square of 1."""
    angles = torch.arange(positions)[:, None] * angular_frequencies(hidden_size)
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :hidden_size] * 2**0.5


@torch.no_grad()
def attend_to_neighbours(attention: MyBertSelfAttention) -> None:
    """Changes queries and keys so that head 0 attends to the previous token, head 1 to the next, head 2 to the one
    before the previous, and so on.

    The embeddings must contain `sinusoids`. Half of the random weights stays, so that no two dimensions are alike.
    """
    size, width = attention.head_size, attention.query.in_features
    available = angular_frequencies(width)[: width // 2]
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
