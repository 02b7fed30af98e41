"""A teacher of vectors for texts that nobody has judged: the start model and latent semantic analysis together.

Shapes: `B` pairs of a batch.
"""

import functools
import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from scipy.linalg import orthogonal_procrustes
from sentence_transformers import SentenceTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize
from transformers.modeling_layers import GradientCheckpointingLayer

from mybert.common.errors import UserError
from mybert.common.progress import Bar
from mybert.retrieval.balance import Encode
from mybert.retrieval.pairs import Pair
from mybert.retrieval.words import Analyzer, guess_language, split_words

UNKNOWN = 8.0
"""Weight of BM25 from which the words alone teach."""
_EXCERPT = (6, 48)  # words
_WHOLE = 0.1  # share of the passages
_DIMENSIONS = 256  # of latent semantic analysis
_MOST_TEXTS = 50_000  # that are analysed
_AT_ONCE = 1024  # texts that are encoded between two updates of the progress bar


def encoders(model: SentenceTransformer) -> tuple[Encode, Encode]:
    """The functions that encode queries and passages, with their prompts."""
    options = {"batch_size": 64, "normalize_embeddings": True, "show_progress_bar": False}
    return functools.partial(model.encode_query, **options), functools.partial(model.encode_document, **options)


def analyse(texts: Sequence[str], seed: int) -> Pipeline:
    """Latent semantic analysis of the words of texts (Deerwester et al. 1990).

    Its `transform` gives vectors of length 1, which are near for texts of words that occur together. A text without
    known words has zeros. Of more than 50,000 texts, a sample is analysed, which `seed` draws.

    Raises:
        UserError: the texts have too few words.
    """
    if len(texts) > _MOST_TEXTS:
        texts = random.Random(seed).sample(texts, _MOST_TEXTS)
    words = TfidfVectorizer(analyzer=Analyzer(guess_language(texts)).hashes, sublinear_tf=True, dtype=np.float32)
    try:
        weights = words.fit_transform(texts)
        with np.errstate(invalid="ignore"):  # its share of the variance is 0 / 0 for a single text; nothing reads it
            decomposition = TruncatedSVD(min(_DIMENSIONS, *weights.shape), random_state=0).fit(weights)
    except ValueError as error:
        raise UserError("--documents have hardly a word but stop words; name longer documents") from error
    return make_pipeline(words, decomposition, Normalizer(copy=False))


def excerpts(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """The pairs with a random excerpt in place of most passages.

    Each word has a larger share in the vector of a short text, so that the student needs fewer tokens to learn what
    the words contribute. A tenth of the passages stay whole.
    """
    draw = random.Random(seed)
    return [
        pair if draw.random() < _WHOLE else pair._replace(positive=_excerpt(pair.positive, draw)) for pair in pairs
    ]


def _excerpt(text: str, draw: random.Random) -> str:
    words = split_words(text)
    size = min(draw.randint(*_EXCERPT), len(words))
    start = draw.randint(0, len(words) - size)
    return "".join(words[start : start + size]).strip()


class Teacher:
    """Vectors of the queries and passages of pairs: those of the start model, joined with those of their words.

    Principal components keep the cosines of the joined vectors in the size of the model, and an orthogonal rotation
    brings them near to the vectors of the start model, so that it changes no more than it has to.

    Args:
        model: the start model. Its vectors are computed here, before it is trained.
        words: of `analyse`.
        weight: of BM25 beside the start model; see `balance`. Vectors of words are multiplied by weight / `UNKNOWN`,
            at most 1, and those of the start model by the rest.
        sizes: of vectors.
    """

    def __init__(
        self, model: SentenceTransformer, pairs: Sequence[Pair], words: Pipeline, weight: float, sizes: Sequence[int]
    ):
        queries, passages = ([getattr(pair, side) for pair in pairs] for side in ("query", "positive"))
        print(f"the start model encodes {2 * len(pairs):,} texts, for the targets of the training", flush=True)
        with Bar(total=2 * len(pairs), desc="encoding", unit="texts", leave=False) as bar:
            encoded = [
                _encoded(encode, texts, bar)
                for encode, texts in zip(encoders(model), (queries, passages), strict=True)
            ]
        start = np.concatenate(encoded)
        share = min(weight / UNKNOWN, 1.0)
        joined = np.hstack([(1 - share) * start, share * words.transform([*queries, *passages])])
        _, components = np.linalg.eigh(joined.T @ joined)  # ascending
        kept = joined @ components[:, ::-1][:, : start.shape[1]]
        # Rotations of the numbers that each size adds, so that a vector cut to a size is the one of that size.
        parts = [_rotated(kept[:, begin:end], start[:, begin:end]) for begin, end in pairwise([0, *sorted(sizes)])]
        self._vectors = torch.from_numpy(np.hstack(parts).astype(np.float32))
        self._pairs = len(pairs)

    def targets(self, rows: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """The vectors (B, size) of the queries and of the passages of some pairs, by their places (B,)."""
        places = torch.stack([rows.cpu(), self._pairs + rows.cpu()])
        queries, passages = normalize(self._vectors[places, :size], dim=-1).to(rows.device)
        return queries, passages


def _encoded(encode: Encode, texts: Sequence[str], bar: Bar) -> np.ndarray:
    parts = []
    for start in range(0, len(texts), _AT_ONCE):
        parts.append(encode(texts[start : start + _AT_ONCE]))
        bar.update(len(parts[-1]))
    return np.concatenate(parts)


def _rotated(vectors: np.ndarray, towards: np.ndarray) -> np.ndarray:
    rotation, _ = orthogonal_procrustes(vectors, towards)
    return vectors @ rotation


class TaughtLoss(nn.Module):
    """1 minus the cosine of the vectors of the student and of the teacher. Labels are the places of the pairs.

    There is no dropout, which would only add noise to vectors whose targets are exact.
    """

    def __init__(self, model: SentenceTransformer, teacher: Teacher):
        super().__init__()
        self.model, self.teacher = model, teacher

    def forward(self, sentence_features: Sequence[dict[str, Tensor]], labels: Tensor) -> Tensor:
        _without_dropout(self.model)
        vectors = [self.model(features)["sentence_embedding"] for features in sentence_features]
        targets = self.teacher.targets(labels, vectors[0].shape[1])
        losses = [1 - cosine_similarity(*both) for both in zip(vectors, targets, strict=True)]
        return torch.stack(losses).mean()


def _without_dropout(model: nn.Module) -> None:
    """Switches a model to inference until Trainer's next step. Layers still recompute with --gradient-checkpointing,
    which they do only in training; dropout is in the modules below them."""
    model.eval()
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = True
