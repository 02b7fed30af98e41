"""Vectors of whole documents: those of their passages, as an index has them."""

from itertools import accumulate

import numpy as np

from mybert.common.progress import Bar
from mybert.retrieval.collections import Texts, joined
from mybert.retrieval.encoder import Encoder
from mybert.retrieval.passages import PassageCutter
from mybert.retrieval.settings import IndexSettings


class DocumentVectors:
    """The vectors of all passages of documents, cut as `mybert index` cuts them by default.

    Args:
        language: of the sentence splitter.
    """

    def __init__(self, encoder: Encoder, documents: Texts, language: str):
        most = min(IndexSettings.passage_tokens, encoder.room)
        cutter = PassageCutter(encoder.embedder, most, IndexSettings.overlap, language)
        pairs = list(zip(documents.titles, documents.texts, strict=True))
        spans = list(cutter.of_documents(pairs))
        passages = [
            joined(title, text[start:end])
            for (title, text), places in zip(pairs, spans, strict=True)
            for start, end in places
        ]
        with Bar(total=len(passages), desc="encoding", unit="passages", leave=False) as bar:
            self._vectors = encoder.passages(passages, bar.update)
        self._firsts = list(accumulate(map(len, spans[:-1]), initial=0))

    def cosines(self, queries: np.ndarray) -> np.ndarray:
        """(Q, H) vectors of queries → (Q, documents): the cosine of the best passage (Dai and Callan 2019, MaxP)."""
        return np.maximum.reduceat(queries @ self._vectors.T, self._firsts, axis=1)
