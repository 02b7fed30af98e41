"""Token vectors from the co-occurrence statistics of a text."""

import numpy as np
import torch
from scipy.sparse import coo_matrix, csr_matrix

from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.data.batching import ExampleDataset
from mybert.pretraining.data.counter_based_random import permutation

_SAMPLED_TOKENS, _BATCH = 4_000_000, 2000
_WINDOW = 4
"""Tokens to each side that count as context, each weighted by 1 / distance."""
_SMOOTHING = 0.75
"""Power of the context frequencies, which lessens the weight of rare contexts."""
_ITERATIONS = 2


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
