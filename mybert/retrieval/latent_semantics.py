"""Latent semantic analysis of documents: vectors that are near for texts and words that occur together."""

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.preprocessing import normalize

from mybert.common.errors import UserError
from mybert.retrieval.words import Analyzer, all_words, guess_language

_DIMENSIONS = 256
_MOST_TEXTS = 50_000  # that are analysed


class LatentSemantics:
    """Latent semantic analysis of the words of texts (Deerwester et al. 1990).

    Args:
        texts: of more than 50,000, a sample is analysed.
        seed: draws the sample.

    Raises:
        UserError: the texts have hardly a word but stop words.
    """

    def __init__(self, texts: Sequence[str], seed: int):
        if len(texts) > _MOST_TEXTS:
            texts = random.Random(seed).sample(texts, _MOST_TEXTS)
        self._analyzer = Analyzer(guess_language(texts))
        self._weights = TfidfVectorizer(analyzer=self._analyzer.hashes, sublinear_tf=True, dtype=np.float32)
        try:
            weights = self._weights.fit_transform(texts)
            with np.errstate(invalid="ignore"):  # its share of the variance is 0 / 0 for a single text; it is not read
                self._analysis = TruncatedSVD(min(_DIMENSIONS, *weights.shape), random_state=0).fit(weights)
        except ValueError as error:
            raise UserError("--documents have hardly a word but stop words; name longer documents") from error

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, dimensions) vectors of length 1; 0 for texts without known words."""
        return normalize(self._analysis.transform(self._weights.transform(texts)), copy=False)

    def count_words(self, texts: Sequence[str]) -> Counter[str]:
        """How often texts have each word, as it is written."""
        return Counter(word for text in texts for word in all_words(text))

    def words(self, words: Sequence[str]) -> np.ndarray:
        """(words, dimensions) what one occurrence of a word adds to the vector of a text before it has length 1."""
        counts = CountVectorizer.transform(self._weights, words)
        return counts.multiply(self._weights.idf_).tocsr() @ self._analysis.components_.T
