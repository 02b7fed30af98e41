"""A channel of words: hidden dimensions that carry a linear function of the tokens of a text into its vector.

The encoder becomes wider; see `mybert.retrieval.widening`. The new dimensions of a token's embedding reach the last
layer, and the pooling averages them. So the vector of a text is that of the encoder before, followed by what its
tokens say of the latent semantic analysis of its words. Nothing is trained by gradients.

Each word of the documents has a vector in the analysis. A ridge regression divides it among the tokens of the word,
and a second one on texts adds what is missing then. Both know how the first LayerNorm scales each token. The later
ones scale it by its context. Nothing corrects that, since it finds texts better than equal scales do.

Shapes: `H` hidden size before, `E` new dimensions, `V` vocabulary, `T` texts.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.linalg import null_space
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling
from sklearn.linear_model import Ridge
from torch import Tensor, nn

from mybert.retrieval import widening
from mybert.retrieval.latent_semantics import LatentSemantics
from mybert.training.words_dimensions import norms_of, words_dimensions

_DIMENSIONS = 128  # of the channel, at least
_SAMPLE = 64  # queries, and as many passages, by which sizes are measured
_AT_ONCE, _TOKENISED = 32, 1000  # texts
_CHARACTERS = 16  # of a token, more than any language has on average
_OF_WORDS, _OF_TEXTS = 0.1, 0.1  # penalties of the regressions
_POOLINGS = ("mean", "cls")


def can_have_words(model: SentenceTransformer) -> bool:
    """Whether the vectors of a model are hidden states that a channel of words can add to."""
    modules = list(model)
    if len(modules) < 2 or not isinstance(modules[1], Pooling) or modules[1].pooling_mode not in _POOLINGS:
        return False
    ends = all(isinstance(module, Normalize) for module in modules[2:])
    return ends and widening.can_widen(_encoder(model).model)


def _encoder(model: SentenceTransformer) -> Any:
    """The module with the BERT."""
    return model[0]


def beginnings(texts: Sequence[str], tokens: int) -> list[str]:
    """The texts, without what is surely after their first tokens: to read a whole book takes seconds."""
    return [text[: tokens * _CHARACTERS] for text in texts]


def planned_dimensions(model: SentenceTransformer) -> tuple[int, int]:
    """The number of hidden dimensions beside the channel, and that of the channel."""
    bert = _encoder(model).model
    added = words_dimensions(bert)
    return bert.config.hidden_size - added, added or widening.whole_heads(bert.config, _DIMENSIONS)


Side = tuple[list[str], str | None]
"""Texts and their prompt."""


def add_words_channel(
    model: SentenceTransformer,
    queries: Sequence[str],
    passages: Sequence[str],
    words: LatentSemantics,
    multiple: float,
    query_prompt: str | None = None,
    passage_prompt: str | None = None,
) -> None:
    """Adds the channel to a model that `can_have_words`, or replaces the one that it has.

    Args:
        queries, passages: texts like those that will be asked and searched. Tokens that are not in them add nothing.
        words: the analysis of the documents.
        multiple: the length of the new part of the vector of a passage, as a multiple of the old part.
    """
    old, (hidden, _) = _encoder(model).model, planned_dimensions(model)
    wide = widening.widen(old, _DIMENSIONS) if hidden == old.config.hidden_size else old
    model[0].model = wide
    model[1].embedding_dimension = model[1].pooling_output_dimension = wide.config.hidden_size
    was_training = model.training
    model.eval()
    draw = random.Random(0)
    queries, passages = (beginnings(texts, _encoder(model).max_seq_length) for texts in (queries, passages))
    sides = [(queries, query_prompt), (passages, passage_prompt)]
    sample = [(draw.sample(texts, min(len(texts), _SAMPLE)), prompt) for texts, prompt in sides]
    tokens = [ids for texts, prompt in sides for ids in _tokens(model, texts, prompt)]
    basis = null_space(np.ones((1, wide.config.hidden_size - hidden))).T  # LayerNorm subtracts means
    rows = _rows(model, hidden, [*queries, *passages], tokens, words, len(basis))
    channel = torch.from_numpy((rows @ basis[: rows.shape[1]]).astype(np.float32))
    _keep_sizes(model, hidden, sample)
    widening.write(wide, hidden, channel)
    if model[1].pooling_mode == "cls":
        widening.average_into_cls(wide, hidden)
    if channel.any():
        _set_length(model, hidden, sample[1], multiple)
    else:
        print("the documents add no words to the vectors: the model's vocabulary has no token of them")
    model.train(was_training)


def _rows(
    model: SentenceTransformer,
    hidden: int,
    texts: Sequence[str],
    tokens: Sequence[Sequence[int]],
    words: LatentSemantics,
    most: int,
) -> np.ndarray:
    """(V, dimensions of the analysis, at most `most`) what tokens say."""
    sizes = widening.sizes_of_tokens(_encoder(model).model, hidden, _encoder(model).max_seq_length)
    sizes[[token for token in model.tokenizer.all_special_ids if token < len(sizes)]] = 0  # they are in every text
    counts = words.count_words(texts)
    different = list(counts)
    pieces = model.tokenizer(different, add_special_tokens=False, verbose=False)["input_ids"]
    frequent = sparse.diags(np.array([counts[word] for word in different]) ** 0.25)
    rows = _regression(frequent @ _sums(pieces, sizes), frequent @ words.words(different)[:, :most], _OF_WORDS)
    means = sparse.diags([1 / max(len(ids), 1) for ids in tokens]) @ _sums(tokens, sizes)
    rows /= max(np.linalg.norm(means @ rows, axis=1).mean(), 1e-6)  # as long as those of texts, on average
    return rows + _regression(means, words.texts(texts)[:, :most] - means @ rows, _OF_TEXTS)


def _sums(tokens: Sequence[Sequence[int]], sizes: np.ndarray) -> sparse.csr_matrix:
    """(rows, V) the sum of the sizes of each token in each row of tokens."""
    columns = np.concatenate([np.asarray(ids, dtype=int) for ids in tokens])
    rows = np.repeat(np.arange(len(tokens)), [len(ids) for ids in tokens])
    return sparse.csr_matrix((sizes[columns], (rows, columns)), (len(tokens), len(sizes)))


def _regression(inputs: sparse.csr_matrix, outputs: np.ndarray, penalty: float) -> np.ndarray:
    """(V, columns of the outputs) coefficients of the tokens; 0 for those that no row of the inputs has."""
    coefficients = np.zeros((inputs.shape[1], outputs.shape[1]))
    used = np.flatnonzero(np.asarray(abs(inputs).sum(axis=0))[0])
    if len(used):
        ridge = Ridge(penalty, fit_intercept=False, solver="sparse_cg", max_iter=100).fit(inputs[:, used], outputs)
        coefficients[used] = ridge.coef_.T
    return coefficients


def _tokens(model: SentenceTransformer, texts: Sequence[str], prompt: str | None) -> list[list[int]]:
    """The tokens of each text that its vector is the mean of: pooling may leave out [CLS] and the prompt."""
    most, pools_all = model.max_seq_length, model[1].include_prompt or not prompt
    skipped = 0 if pools_all else len(model.tokenizer(prompt)["input_ids"]) - 1
    ids = []
    for start in range(0, len(texts), _TOKENISED):
        given = [(prompt or "") + text for text in texts[start : start + _TOKENISED]]
        encoded = model.tokenizer(given, truncation=True, max_length=most, verbose=False)["input_ids"]
        ids += [of_text[skipped:] for of_text in encoded]
    return ids


def _features(model: SentenceTransformer, texts: Sequence[str], prompt: str | None) -> Iterator[dict[str, Tensor]]:
    ordered = sorted(texts, key=len)
    for start in range(0, len(ordered), _AT_ONCE):
        features = model.preprocess(ordered[start : start + _AT_ONCE], prompt=prompt)
        yield {name: x.to(model.device) if isinstance(x, Tensor) else x for name, x in features.items()}


@torch.no_grad()
def _keep_sizes(model: SentenceTransformer, hidden: int, sample: Sequence[Side]) -> None:
    """Sets the new weights of each LayerNorm so that the channel keeps its share of the variance at the next one."""
    norms = norms_of(_encoder(model).model)
    _encoder(model).model.embeddings.word_embeddings.weight[:, hidden:] = 0
    deviations: list[list[Tensor]] = [[] for _ in norms]
    hooks = [
        norm.register_forward_pre_hook(lambda _, given, own=own: own.append(given[0].float().std(dim=-1).flatten()))
        for norm, own in zip(norms, deviations, strict=True)
    ]
    for texts, prompt in sample:
        for features in _features(model, texts, prompt):
            model[0](features)
    medians = [torch.cat(own).median() for own in deviations]
    for hook, norm, following in zip(hooks, norms, [*medians[1:], medians[-1]], strict=True):
        hook.remove()
        norm.weight[hidden:] = following


@torch.no_grad()
def _set_length(model: SentenceTransformer, hidden: int, passages: Side, multiple: float) -> None:
    """Makes the new part of vectors of passages as long as asked, on average. Mined queries have rarer words."""
    ratios = []
    for features in _features(model, *passages):
        vectors = model[1](model[0](features))["sentence_embedding"].float()
        ratios.append(vectors[:, hidden:].norm(dim=-1) / vectors[:, :hidden].norm(dim=-1))
    last = norms_of(_encoder(model).model)[-1]
    last.weight[hidden:] *= multiple / torch.cat(ratios).mean().clamp(min=1e-6)


@torch.no_grad()
def order_dimensions(model: SentenceTransformer, texts: Sequence[str]) -> None:
    """Adds a layer that rotates vectors to their principal components: cut vectors then keep most of their cosines."""
    vectors = model.encode_document(texts, normalize_embeddings=True, show_progress_bar=False)
    _, components = np.linalg.eigh(vectors.T @ vectors)  # ascending
    size = len(components)
    rotation = Dense(size, size, bias=False, activation_function=nn.Identity())
    rotation.linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(components.T[::-1])))
    model.insert(2, rotation.to(model.device))
