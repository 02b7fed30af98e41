"""The vectors that mined pairs are trained towards."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from mybert.common.errors import UserError
from mybert.retrieval.pairs import Pair
from mybert.retrieval.teacher import UNKNOWN, TaughtLoss, Teacher, analyse, excerpts
from mybert.retrieval.words import Analyzer

PAIRS = [
    Pair("a red car", "the red car drives fast"),
    Pair("ship sails", "a blue ship sails"),
    Pair("green tree", "the tree is green"),
]
TEXTS = [*(pair.query for pair in PAIRS), *(pair.positive for pair in PAIRS)]
DOCUMENTS = [
    "The red car drives fast on the road. A car is red, or the car is blue.",
    "A blue ship sails on the sea, fast as a car.",
    "The tree is green in summer, red in autumn.",
    "Sea and road, summer and autumn: all is blue and green.",
]


@pytest.fixture
def model(tiny_bert) -> SentenceTransformer:
    return SentenceTransformer(str(tiny_bert), device="cpu").eval()


def cosines(vectors: np.ndarray) -> np.ndarray:
    return vectors @ vectors.T


def targets(teacher: Teacher, size: int = 32) -> np.ndarray:
    return torch.cat(teacher.targets(torch.arange(len(PAIRS)), size)).numpy()


@pytest.mark.parametrize("is_chinese", [False, True])
def test_most_passages_are_cut_to_excerpts_of_6_to_48_words(is_chinese):
    """Chinese has no spaces, and its characters count as words."""
    words = [f"w{number}" for number in range(59)] + ["字"]
    words = [chr(0x4E00 + number) for number in range(60)] if is_chinese else words
    long, short = ("" if is_chinese else " ").join(words), "two  words"
    pairs = [Pair("query", long, kind="span", source=number) for number in range(400)]
    cut = excerpts(pairs, seed=1)
    assert cut == excerpts(pairs, seed=1) != excerpts(pairs, seed=2)
    assert [pair._replace(positive="") for pair in cut] == [pair._replace(positive="") for pair in pairs]
    lengths = []
    for pair in cut:
        part = list(pair.positive) if is_chinese else pair.positive.split()
        start = words.index(part[0])
        assert part == words[start : start + len(part)]
        lengths.append(len(part))
    assert set(lengths) == {*range(6, 49), 60}
    assert 20 < lengths.count(60) < 60
    assert {pair.positive for pair in excerpts([Pair("query", short)] * 50, seed=0)} <= {short, "two words"}


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
    analysis = analyse(DOCUMENTS, seed=0)
    assert np.allclose(cosines(analysis.transform(TEXTS)), cosines(expected), atol=1e-5)
    assert np.abs(analysis.transform(["unknown", "the"])).max() == 0
    with pytest.raises(UserError, match="hardly a word but stop words"):
        analyse(["it is the", "he was a"], seed=0)


@pytest.mark.filterwarnings("error")
def test_a_single_text_is_analysed_without_a_warning():
    assert np.allclose(analyse(DOCUMENTS[:1], seed=0).transform(["a red car"]), 1)


@pytest.mark.parametrize("weight", [0.0, 2.0, UNKNOWN, 12.0])
def test_the_vectors_have_the_cosines_of_start_model_and_words_joined(model, weight):
    start, words = model.encode(TEXTS, normalize_embeddings=True), analyse(DOCUMENTS, seed=0)
    share = min(weight / UNKNOWN, 1)
    joined = np.hstack([(1 - share) * start, share * words.transform(TEXTS)])
    joined /= np.linalg.norm(joined, axis=1, keepdims=True)
    vectors = targets(Teacher(model, PAIRS, words, weight, [32]))
    assert np.allclose(cosines(vectors), cosines(joined), atol=1e-4), "six texts fit into 32 dimensions"
    if not weight:
        assert np.allclose(vectors, start, atol=1e-4), "nothing has to change"


def test_vectors_without_rotation_are_farther_from_the_start_model(model):
    words = analyse(DOCUMENTS, seed=0)
    start = model.encode(TEXTS, normalize_embeddings=True)
    near = targets(Teacher(model, PAIRS, words, 2.0, [32]))
    for seed in range(20):
        rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(32, 32)))
        assert (near * start).sum() > (near @ rotation * start).sum()


def test_a_vector_of_the_teacher_cut_to_a_smaller_size_is_that_of_this_size(model):
    words = analyse(DOCUMENTS, seed=0)
    teacher = Teacher(model, PAIRS, words, 3.0, [32, 8])
    whole, cut = targets(teacher), targets(teacher, 8)
    assert np.allclose(whole[:, :8] / np.linalg.norm(whole[:, :8], axis=1, keepdims=True), cut, atol=1e-5)
    assert np.allclose(cosines(whole), cosines(targets(Teacher(model, PAIRS, words, 3.0, [32]))), atol=1e-4)


class Truncated(torch.nn.Module):
    def __init__(self, model: SentenceTransformer, size: int):
        super().__init__()
        self.model, self.size = model, size

    def forward(self, features: dict) -> dict:
        return {"sentence_embedding": self.model(features)["sentence_embedding"][:, : self.size]}


@pytest.mark.parametrize("size", [32, 8])
def test_the_loss_is_the_distance_from_these_vectors(model, size):
    teacher, rows = Teacher(model, PAIRS, analyse(DOCUMENTS, seed=0), 3.0, [32, 8]), torch.tensor([2, 0])
    student = SentenceTransformer(modules=list(model), truncate_dim=size, device="cpu")
    texts = [[PAIRS[row].query for row in rows], [PAIRS[row].positive for row in rows]]
    loss = TaughtLoss(Truncated(model, size).train(), teacher)
    vectors = [student.encode(some, normalize_embeddings=True) for some in texts]
    wanted = [vector.numpy() for vector in teacher.targets(rows, size)]
    expected = 1 - np.mean([(one * other).sum(1).mean() for one, other in zip(vectors, wanted, strict=True)])
    found = loss([model.preprocess(some) for some in texts], rows)
    assert found.item() == pytest.approx(expected, abs=1e-5)


def test_texts_are_encoded_in_parts_after_a_line_that_says_so(model, monkeypatch, capsys):
    words = analyse(DOCUMENTS, seed=0)
    whole = targets(Teacher(model, PAIRS, words, 3.0, [32]))
    monkeypatch.setattr("mybert.retrieval.teacher._AT_ONCE", 2)
    assert np.allclose(whole, targets(Teacher(model, PAIRS, words, 3.0, [32])), atol=1e-5)
    assert f"the start model encodes {2 * len(PAIRS)} texts" in capsys.readouterr().out


def test_the_loss_has_no_dropout_and_still_recomputes_with_gradient_checkpointing(model):
    loss = TaughtLoss(model, Teacher(model, PAIRS, analyse(DOCUMENTS, seed=0), 3.0, [32]))
    texts = [list(side) for side in zip(*(pair[:2] for pair in PAIRS), strict=True)]
    losses, gradients, recomputed = [], [], []
    for checkpoints in (False, True):
        if checkpoints:
            model[0].auto_model.gradient_checkpointing_enable()
            layer = model[0].auto_model.encoder.layer[0]
            layer.attention.register_forward_hook(lambda *_: recomputed.append(1))
        model.train().zero_grad()
        losses.append(loss([model.preprocess(side) for side in texts], torch.arange(3)))
        losses[-1].backward()
        gradients.append(torch.cat([value.grad.ravel() for value in model.parameters() if value.grad is not None]))
    assert len(recomputed) == 4, "of two columns, each forward and backward"
    assert torch.allclose(*losses, rtol=1e-5) and torch.allclose(*gradients, atol=1e-5)
