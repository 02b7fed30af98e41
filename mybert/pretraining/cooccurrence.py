"""Initialise embeddings and MLM head of a new model from co-occurrence statistics of its text."""

import numpy as np
import torch
from scipy.sparse import coo_matrix, csr_matrix

from modeling_mybert import MyBertForPreTraining
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.data.batching import ExampleDataset
from mybert.pretraining.data.counter_based_random import permutation

_SAMPLED_TOKENS, _BATCH = 4_000_000, 2000
_WINDOW = 4
"""Tokens to each side that count as context, each weighted by 1 / distance."""
_SMOOTHING = 0.75
"""Power of the context frequencies, which lessens the weight of rare contexts."""
_MOST_DIMENSIONS, _ITERATIONS = 256, 2
_SINUSOID_BASE = 10_000.0
_IDENTITY, _NOISE = 0.7, 0.5
"""Weights of the identity and of the random start in the transform of the MLM head."""


def initialize_from_text(model: MyBertForPreTraining, corpus: Corpus, seed: int) -> None:
    """Replaces the random values of the embeddings and the MLM head; their scale remains `initializer_range`.

    - Token vectors: the factors of the positive pointwise mutual information of tokens and their neighbours (Levy and
      Goldberg 2014, "Neural word embedding as implicit matrix factorization", with the context smoothing of Levy et
      al. 2015). Special tokens and tokens that the sample lacks keep their random vectors.
    - Position vectors: sinusoids (Vaswani et al. 2017, section 3.5).
    - MLM head: its transform is close to the identity, so that hidden states are compared with token vectors from the
      first step; its bias has the logarithms of the token frequencies.

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
        known = torch.from_numpy(np.flatnonzero(counts))
        width = min(_MOST_DIMENSIONS, model.config.hidden_size, len(known) // 2)
        if width:
            vectors = factorize(positive_information(neighbours), width, seed)[known]
            vectors *= scale * width**0.5 / vectors.norm(dim=1, keepdim=True).clamp_min(1e-6)
            embeddings.word_embeddings.weight[known, :width] = vectors


def count_neighbours(corpus: Corpus, seed: int) -> tuple[np.ndarray, csr_matrix]:
    """
    Returns:
        (V,) how often each token occurs in the sample, and the (V, V) symmetric sums of 1 / distance of its pairs of
        tokens at most `_WINDOW` apart.
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


def positive_information(pairs: csr_matrix) -> torch.Tensor:
    """The positive pointwise mutual information of tokens (rows) and contexts (columns), (V, V) sparse."""
    entries = pairs.tocoo()
    tokens = np.asarray(pairs.sum(axis=1)).ravel()
    contexts = tokens**_SMOOTHING
    expected = tokens[entries.row] * contexts[entries.col] / contexts.sum()
    information = np.log(entries.data / expected)
    positive = information > 0
    places = np.stack([entries.row[positive], entries.col[positive]]).astype(np.int64)
    return torch.sparse_coo_tensor(
        torch.from_numpy(places), torch.from_numpy(information[positive]).float(), pairs.shape, check_invariants=False
    ).coalesce()


def factorize(matrix: torch.Tensor, width: int, seed: int) -> torch.Tensor:
    """Centred left factors of the truncated singular value decomposition, each with the root of its value, (V, width).

    The decomposition is randomized (Halko, Martinsson and Tropp 2011).
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        left, values, _ = torch.svd_lowrank(matrix, width, niter=_ITERATIONS)
    vectors = left * values.sqrt()
    return vectors - vectors.mean(dim=0)


def sinusoids(positions: int, width: int) -> torch.Tensor:
    """Sines and cosines of the positions at geometric frequencies, (positions, width), with a mean square of 1."""
    frequencies = _SINUSOID_BASE ** (-torch.arange((width + 1) // 2) / (width / 2))
    angles = torch.arange(positions)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width] * 2**0.5
