"""Initialise a new model from its text: embeddings, masked-language-model head, attention to neighbouring tokens."""

import numpy as np
import torch

from modeling_mybert import MyBertForPreTraining
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.initialization.cooccurrence import count_neighbours, factorize, positive_information
from mybert.pretraining.initialization.neighbour_attention import attend_to_neighbours, sinusoids

_MOST_DIMENSIONS = 256
_IDENTITY, _NOISE = 0.7, 0.5
"""Weights of the identity and of the random start in the transform of the masked-language-model head."""


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
        for layer in model.bert.encoder.layer[:1]:
            attend_to_neighbours(layer.attention.self)
        known = torch.from_numpy(np.flatnonzero(counts))
        width = min(_MOST_DIMENSIONS, model.config.hidden_size, len(known) // 2)
        if width:
            vectors = factorize(positive_information(neighbours), width, seed)[known]
            vectors *= scale * width**0.5 / vectors.norm(dim=1, keepdim=True).clamp_min(1e-6)
            embeddings.word_embeddings.weight[known, :width] = vectors
