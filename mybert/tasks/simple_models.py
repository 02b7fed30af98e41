"""Predictions of simple models that learn from the same rows in seconds, to compare a fine-tuned model with."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge

_ROWS = 50_000  # learned from at most, evenly spaced: some ten seconds

_NO_SPACES = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_PUNCTUATION = r"\s!-/:-@\[-`{-~\u2000-\u206f\u3000-\u303f\uff00-\uff0f"
_WORD = f"[{_NO_SPACES}]|[^{_NO_SPACES}{_PUNCTUATION}]+"
"""What stands between spaces or punctuation, with its combining marks; in scripts without spaces, a character."""


def bag_of_words(texts: Sequence[Sequence[str]], targets: np.ndarray, others: Sequence[Sequence[str]]) -> np.ndarray:
    """Ridge regression on TF-IDF of single words and pairs of words: as accurate as logistic regression, and faster.

    Args:
        texts: (rows) of one text or a pair of texts.
        targets: (rows, outputs), 0 and 1 for labels.
        others: (others) of texts to predict.

    Returns:
        (others, outputs).
    """
    chosen = np.unique(np.linspace(0, len(texts) - 1, min(len(texts), _ROWS)).astype(int))
    texts, targets = [texts[row] for row in chosen], np.asarray(targets, dtype=float)[chosen]
    vectors = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), token_pattern=_WORD, max_features=200_000)
    try:
        vectors.fit(text for row in texts for text in row)
    except ValueError:  # no text has a word
        return np.tile(targets.mean(0), (len(others), 1))
    model = Ridge(solver="sparse_cg", tol=1e-3).fit(_features(vectors, texts), targets)
    return model.predict(_features(vectors, others)).reshape(len(others), -1)


def _features(vectors: TfidfVectorizer, rows: Sequence[Sequence[str]]) -> sparse.csr_matrix:
    """Of one text its vector; of a pair both vectors, what they share and where they differ."""
    parts = [vectors.transform(list(texts)) for texts in zip(*rows, strict=True)]
    if len(parts) == 2:
        first, second = parts
        parts += [first.multiply(second), abs(first - second)]
        parts.append(sparse.csr_matrix(first.multiply(second).sum(1)))  # their cosine similarity
    return sparse.hstack(parts, format="csr")


def most_frequent_tags(
    sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[str]], others: Sequence[Sequence[str]]
) -> list[list[str]]:
    """The most frequent tag of each word in the training rows; of an unknown word, the most frequent tag."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for words, its_tags in zip(sentences, tags, strict=True):
        for word, tag in zip(words, its_tags, strict=True):
            counts[word][tag] += 1
    (default, _), *_ = sum(counts.values(), Counter()).most_common(1)
    known = {word: tag_counts.most_common(1)[0][0] for word, tag_counts in counts.items()}
    return [[known.get(word, default) for word in words] for words in others]
