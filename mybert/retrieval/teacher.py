"""A teacher for pairs that nobody has judged: the start model and BM25 together."""

import functools
from collections.abc import Sequence

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.util import cos_sim
from torch import Tensor
from torch.nn.functional import cross_entropy

from mybert.retrieval.balance import Encode
from mybert.retrieval.pairs import Pair
from mybert.retrieval.ranking import words_unit
from mybert.retrieval.words import Words

_SHARPNESS = 2.0  # logits of a teacher per standard deviation of its cosines: those of all-MiniLM-L6-v2
_SAMPLE = 500  # queries that show this deviation
_UNKNOWN = 8.0  # weight of BM25 from which the start model counts as one that does not know the texts


def known(weight: float) -> float:
    """How well the start model knows the texts, from 0 to 1, by the weight of BM25 that `balance` chose."""
    return max(0.0, 1 - weight / _UNKNOWN)


def encoders(model: SentenceTransformer) -> tuple[Encode, Encode]:
    """The functions that encode queries and passages, with their prompts."""
    options = {"batch_size": 64, "normalize_embeddings": True, "show_progress_bar": False}
    return functools.partial(model.encode_query, **options), functools.partial(model.encode_document, **options)


class Teacher:
    """Scores the passages of a batch for its queries: `combined` scores of the start model and BM25.

    The less the start model knows the texts, the more the passage of a pair itself counts as the answer: a teacher
    that only compares words teaches little.

    Args:
        model: the start model. Its vectors are computed here, before it is trained.
        pairs: each with the same number of negatives.
        weight: of BM25; see `balance`.
    """

    def __init__(self, model: SentenceTransformer, pairs: Sequence[Pair], weight: float):
        texts = list(dict.fromkeys(text for pair in pairs for text in (pair.positive, *pair.negatives)))
        place = {text: number for number, text in enumerate(texts)}
        self._queries = [pair.query for pair in pairs]
        self._places = np.array([[place[text] for text in (pair.positive, *pair.negatives)] for pair in pairs])
        self._words, self._weight = Words.of(texts), weight
        queries, passages = encoders(model)
        self._query_vectors, self._vectors = queries(self._queries), passages(texts)
        self._spread = float((self._query_vectors[:_SAMPLE] @ self._vectors[:_SAMPLE].T).std())

    def loss(self, vectors: Sequence[Tensor], rows: Tensor) -> Tensor:
        """Cross-entropy between the teacher's and the student's distributions over the passages of a batch.

        Args:
            vectors: of the queries, of their positives, of their first negatives, and so on.
            rows: (B,) places of the pairs.
        """
        student = _SHARPNESS / max(self._spread, 0.01) * cos_sim(vectors[0], torch.cat(list(vectors[1:])))
        teacher = (_SHARPNESS * torch.from_numpy(self._scores(rows.tolist())).to(student)).softmax(1)
        own = torch.eye(*teacher.shape).to(teacher)  # the first passages are the positives
        return cross_entropy(student, torch.lerp(own, teacher, known(self._weight)))

    def _scores(self, rows: Sequence[int]) -> np.ndarray:
        """(B, passages): the order of passages is that of `loss`."""
        places = self._places[rows].T.ravel()
        cosines = self._query_vectors[rows] @ self._vectors[places].T
        by_words = [self._words.scores(self._queries[row]) for row in rows]
        in_units = np.array([scores[places] / words_unit(scores) for scores in by_words])
        return cosines / max(self._spread, 0.01) + self._weight * in_units


class TaughtLoss(MultipleNegativesRankingLoss):
    """The loss of a teacher. Labels are the places of the pairs."""

    def __init__(self, model: SentenceTransformer, teacher: Teacher):
        super().__init__(model)
        self.teacher = teacher

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor) -> Tensor:
        return self.teacher.loss(embeddings, labels)


class CachedTaughtLoss(CachedMultipleNegativesRankingLoss):
    """`TaughtLoss` with cached gradients."""

    def __init__(self, model: SentenceTransformer, teacher: Teacher, mini_batch_size: int):
        super().__init__(model, mini_batch_size=mini_batch_size)
        self.teacher = teacher

    def forward(self, sentence_features, labels: Tensor) -> Tensor:
        self._rows = labels  # sentence-transformers 5.4 does not hand them on
        return super().forward(sentence_features, labels)

    def calculate_loss(self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False):
        loss = self.teacher.loss([torch.cat(vectors) for vectors in reps], self._rows)
        if with_backward:
            loss.backward()
        return loss.detach() if with_backward else loss
