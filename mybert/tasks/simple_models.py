"""Predictions of simple models that learn from the same rows in seconds, to compare a fine-tuned model with."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import Ridge

from mybert.common.progress import Bar

_ROWS = 50_000  # learned from at most, evenly spaced
_COLUMNS = 2**20  # a vocabulary would take three times as long

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
    words = HashingVectorizer(
        ngram_range=(1, 2), token_pattern=_WORD, n_features=_COLUMNS, alternate_sign=False, norm=None
    )
    rows = [*texts, *others]
    with Bar(total=len(rows) * len(rows[0]), desc="bag of words", unit="texts", leave=False) as bar:
        counts = [words.transform(_shown(column, bar)) for column in zip(*rows, strict=True)]
    learned = sparse.vstack([column[: len(texts)] for column in counts], format="csr")
    known = np.union1d(0, learned.indices)  # never none
    weights = TfidfTransformer(sublinear_tf=True).fit(learned[:, known])
    parts = [weights.transform(column[:, known]) for column in counts]
    if len(parts) == 2:  # also what they share, where they differ, and their cosine similarity
        first, second = parts
        shared = first.multiply(second)
        parts += [shared, abs(first - second), sparse.csr_matrix(shared.sum(1))]
    vectors = sparse.hstack(parts, format="csr")
    model = Ridge(solver="sparse_cg", tol=1e-3).fit(vectors[: len(texts)], targets)
    return model.predict(vectors[len(texts) :]).reshape(len(others), -1)


def _shown(texts: Iterable[str], bar: Bar) -> Iterator[str]:
    for text in texts:
        yield text
        bar.update()


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
