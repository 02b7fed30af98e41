"""Latent semantic analysis of texts and words."""

import numpy as np
import pytest

from mybert.retrieval.latent_semantics import LatentSemantics
from mybert.retrieval.words import Analyzer

TEXTS = ["a red car", "ship sails", "green tree", "the red car drives fast", "a blue ship sails", "the tree is green"]
DOCUMENTS = [
    "The red car drives fast on the road. A car is red, or the car is blue.",
    "A blue ship sails on the sea, fast as a car.",
    "The tree is green in summer, red in autumn.",
    "Sea and road, summer and autumn: all is blue and green.",
]


def cosines(vectors: np.ndarray) -> np.ndarray:
    return vectors @ vectors.T


def test_the_analysis_is_the_singular_value_decomposition_of_rare_words_in_documents():
    analyzer = Analyzer("en")
    words = sorted({word for text in DOCUMENTS for word in analyzer.hashes(text)})

    def weights(texts: list[str]) -> np.ndarray:
        counts = np.array([[analyzer.hashes(text).count(word) for word in words] for text in texts])
        logs = np.where(counts, 1 + np.log(np.maximum(counts, 1)), 0)
        table = logs * (1 + np.log((1 + len(DOCUMENTS)) / (1 + in_documents)))
        return table / np.linalg.norm(table, axis=1, keepdims=True)

    in_documents = np.array([sum(word in analyzer.hashes(text) for text in DOCUMENTS) for word in words])
    _, _, directions = np.linalg.svd(weights(DOCUMENTS), full_matrices=False)
    expected = weights(TEXTS) @ directions.T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    analysis = LatentSemantics(DOCUMENTS, seed=0)
    assert np.allclose(cosines(analysis.texts(TEXTS)), cosines(expected), atol=1e-5)
    assert np.abs(analysis.texts(["unknown", "the"])).max() == 0


@pytest.mark.filterwarnings("error")
def test_a_single_text_is_analysed_without_a_warning():
    assert np.allclose(LatentSemantics(DOCUMENTS[:1], seed=0).texts(["a red car"]), 1)


def test_the_vectors_of_words_add_up_to_that_of_a_text_without_repeated_words():
    analysis = LatentSemantics(DOCUMENTS, seed=0)
    for text in (*TEXTS, *DOCUMENTS[2:]):
        counts = analysis.count_words([text])
        different = [word for word in counts if analysis.words([word]).any()]
        if max(counts[word] for word in different) == 1:
            total = analysis.words(different).sum(axis=0)
            assert np.allclose(total / np.linalg.norm(total), analysis.texts([text])[0], atol=1e-5)
    assert analysis.count_words(["The Car, the car.", "Auto"]) == {"The": 1, "Car": 1, "the": 1, "car": 1, "Auto": 1}
    assert np.allclose(*analysis.words(["Cars", "car"])) and not analysis.words(["the", "unknown"]).any()
