"""A channel of words: hidden dimensions that carry a linear function of the tokens of a text into its vector.

The encoder becomes wider by whole attention heads. The new dimensions of a token's embedding pass through the residual
connections to the last layer, and mean pooling adds them up; no layer reads or writes them. So the vector of a text is
that of the encoder before, followed by what a ridge regression on its tokens makes of the latent semantic analysis of
its words. Nothing is trained by gradients, and the result is an ordinary BERT. Later trainings leave the new
dimensions as they are (`mybert.training.words_dimensions`).

LayerNorm divides all dimensions by one deviation, that of the old ones: the new ones are too small to matter. Their
sizes at the end differ by token and context (measured on a sample), and the regression takes that into account.

Shapes: `H` hidden size before, `E` new dimensions, `V` vocabulary, `T` texts, `L` tokens of a text.
"""

import copy
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from scipy.linalg import null_space
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline
from torch import Tensor
from transformers import PreTrainedModel

from mybert.common.progress import Bar
from mybert.training.words_dimensions import norms_of, words_dimensions

_DIMENSIONS = 128  # of the channel, at least
_SAMPLE, _DEVIATIONS = 2000, 128  # texts that are encoded, and those by which the deviations are measured
_AT_ONCE, _TOKENISED = 32, 1000  # texts
_CHARACTERS = 16  # of a token, more than any language has on average
_RIDGE = 0.03
_PRIOR = 4  # occurrences that the mean of all tokens counts beside those of one token
_SHARE = 3e-2  # of the channel in the variance of the embeddings
_PROBE = 1e-1  # of the deviation of the embeddings


def can_widen(model: SentenceTransformer) -> bool:
    """Whether the vectors of a model are means of hidden states, which a channel of words can add to."""
    modules = list(model)
    if len(modules) < 2 or not isinstance(modules[1], Pooling) or modules[1].pooling_mode != "mean":
        return False
    return all(isinstance(module, Normalize) for module in modules[2:])


def channel_dimensions(model: PreTrainedModel) -> int:
    """The number of dimensions of the channel that a model has or gets: whole attention heads."""
    head = model.config.hidden_size // model.config.num_attention_heads
    return words_dimensions(model) or -(-_DIMENSIONS // head) * head


class _Text(NamedTuple):
    """A text: its tokens (L,), the length of the old part of its vector, and of each token (L,) how large the channel
    is at the end and what all its dimensions have gained."""

    tokens: np.ndarray
    length: float
    sizes: np.ndarray
    gains: np.ndarray


def add_words_channel(
    model: SentenceTransformer,
    queries: Sequence[str],
    passages: Sequence[str],
    words: Pipeline,
    multiple: float,
    query_prompt: str | None = None,
    passage_prompt: str | None = None,
) -> None:
    """Adds the channel to a model for which `can_widen`.

    Args:
        queries, passages: texts like those that will be asked and searched. Tokens that are not in them add nothing.
        words: of `analyse`.
        multiple: the length of the new part of a vector, as a multiple of the old part.
    """
    old = model[0].model
    hidden = old.config.hidden_size - words_dimensions(old)
    wide = widen(old, channel_dimensions(old)) if hidden == old.config.hidden_size else old
    wide.config.words_dimensions = wide.config.hidden_size - hidden
    model[0].model = wide
    model[1].embedding_dimension = model[1].pooling_output_dimension = wide.config.hidden_size
    was_training = model.training
    model.eval()
    draw = random.Random(0)
    queries, passages = (beginnings(texts, model.max_seq_length) for texts in (queries, passages))
    sides = [(queries, query_prompt), (passages, passage_prompt)]
    sample = [(draw.sample(texts, min(len(texts), _SAMPLE // 2)), prompt) for texts, prompt in sides]
    _keep_sizes(model, hidden, sample)
    encoded = list(_probed(model, hidden, sample))
    tokens = [ids for texts, prompt in sides for ids in _tokens(model, texts, prompt)]
    weights = _token_weights(encoded, tokens, old.config.vocab_size)
    basis = null_space(np.ones((1, wide.config.hidden_size - hidden))).T  # what LayerNorm adds to all alike is apart
    targets = words.transform([*queries, *passages])[:, : len(basis)]
    targets = targets @ basis[: targets.shape[1]]
    norms = np.maximum(np.linalg.norm(targets, axis=1), 1e-6)
    targets *= (multiple * _lengths(encoded, tokens) / norms)[:, None]
    used = np.flatnonzero(np.asarray(weights.sum(axis=0))[0])
    ridge = Ridge(_RIDGE, fit_intercept=False, solver="sparse_cg", max_iter=100).fit(weights[:, used], targets)
    gain = np.concatenate([text.gains for text in encoded]).mean()
    _write(wide, hidden, used, torch.from_numpy(ridge.coef_.T.astype(np.float32)), float(gain))
    if ridge.coef_.any():  # otherwise no text has a known word, and what LayerNorm adds would be all that grows
        _set_length(model, hidden, sample, multiple)
    model.train(was_training)


def beginnings(texts: Sequence[str], tokens: int) -> list[str]:
    """The texts, without what is surely after their first tokens: to read a whole book takes seconds."""
    return [text[: tokens * _CHARACTERS] for text in texts]


def widen(old: PreTrainedModel, more: int) -> PreTrainedModel:
    """A BERT with more hidden dimensions, whole heads of 0, that computes nearly the same in the others.

    Nearly: the mean over the dimensions of a residual connection is 0 but for what differs among the weights of a
    LayerNorm. All other means are removed here, which LayerNorm would do.
    """
    config, hidden = copy.deepcopy(old.config), old.config.hidden_size
    config.num_attention_heads += more * config.num_attention_heads // hidden
    config.hidden_size += more
    wide, given = type(old)(config).eval(), old.state_dict()
    shrunk = (hidden / config.hidden_size) ** 0.5  # the deviation of H values among as many zeros
    changed = {}
    for name, new in wide.state_dict().items():
        value = torch.zeros_like(new)
        value[tuple(map(slice, given[name].shape))] = given[name]
        if name.endswith("LayerNorm.weight"):
            value *= shrunk
        elif name.endswith("embeddings.weight"):
            value[:, :hidden] -= value[:, :hidden].mean(dim=1, keepdim=True)
        elif name.endswith("output.dense.weight"):
            value[:hidden] -= value[:hidden].mean(dim=0)
        changed[name] = value
    before = given["embeddings.LayerNorm.bias"]
    for layer in range(config.num_hidden_layers):
        for part in (f"encoder.layer.{layer}.attention.output", f"encoder.layer.{layer}.output"):
            bias = changed[f"{part}.dense.bias"][:hidden]
            bias -= bias.mean() + before.mean()
            before = given[f"{part}.LayerNorm.bias"]
    wide.load_state_dict(changed)
    return wide.to(old.device)


Side = tuple[list[str], str | None]
"""Texts and their prompt."""


@torch.no_grad()
def _keep_sizes(model: SentenceTransformer, hidden: int, sample: Sequence[Side]) -> None:
    """Sets the new weights of each LayerNorm so that the channel keeps its share of the variance at the next one."""
    norms = norms_of(model[0].model)
    model[0].model.embeddings.word_embeddings.weight[:, hidden:] = 0
    norms[-1].bias[hidden:] = 0
    deviations: list[list[Tensor]] = [[] for _ in norms]
    hooks = [
        norm.register_forward_pre_hook(lambda _, given, own=own: own.append(given[0].float().std(dim=-1).flatten()))
        for norm, own in zip(norms, deviations, strict=True)
    ]
    for texts, prompt in sample:
        for features in _features(model, texts[: _DEVIATIONS // 2], prompt):
            model[0](features)
    medians = [torch.cat(own).median() for own in deviations]
    for hook, norm, following in zip(hooks, norms, [*medians[1:], medians[-1]], strict=True):
        hook.remove()
        norm.weight[hidden:] = following


@torch.no_grad()
def _probed(model: SentenceTransformer, hidden: int, sample: Sequence[Side]) -> Iterator[_Text]:
    """Encodes texts, with a constant in the channel of every token that shows how large it is at the end."""
    table = model[0].model.embeddings.word_embeddings.weight
    probe = _PROBE * float(table[:, :hidden].std())
    table[:, hidden], table[:, hidden + 1] = probe, -probe
    total = sum(len(texts) for texts, _ in sample)
    with Bar(total=total, desc="measuring", unit="texts", leave=False) as bar:
        for texts, prompt in sample:
            for features in _features(model, texts, prompt):
                states = model[0](features)
                kept = states["attention_mask"].bool()
                kept[:, : _unpooled(model, prompt)] = False
                for ids, row, mask in zip(states["input_ids"], states["token_embeddings"].float(), kept, strict=True):
                    length = float(row[mask, :hidden].mean(dim=0).norm())
                    one, other = row[mask, hidden : hidden + 2].cpu().numpy().T
                    yield _Text(ids[mask].cpu().numpy(), length, (one - other) / (2 * probe), (one + other) / 2)
                bar.update(len(kept))
    table[:, hidden:] = 0


def _features(model: SentenceTransformer, texts: Sequence[str], prompt: str | None) -> Iterator[dict[str, Tensor]]:
    ordered = sorted(texts, key=len)
    for start in range(0, len(ordered), _AT_ONCE):
        features = model.preprocess(ordered[start : start + _AT_ONCE], prompt=prompt)
        yield {name: x.to(model.device) if isinstance(x, Tensor) else x for name, x in features.items()}


def _tokens(model: SentenceTransformer, texts: Sequence[str], prompt: str | None) -> list[np.ndarray]:
    """The tokens of each text that its vector is the mean of."""
    most, skipped = model.max_seq_length, _unpooled(model, prompt)
    ids = []
    for start in range(0, len(texts), _TOKENISED):
        given = [(prompt or "") + text for text in texts[start : start + _TOKENISED]]
        encoded = model.tokenizer(given, truncation=True, max_length=most, verbose=False)["input_ids"]
        ids += [np.array(of_text[skipped:]) for of_text in encoded]
    return ids


def _unpooled(model: SentenceTransformer, prompt: str | None) -> int:
    """The number of tokens at the start of a text, [CLS] and its prompt, that pooling leaves out."""
    return 0 if model[1].include_prompt or not prompt else len(model.tokenizer(prompt)["input_ids"]) - 1


def _lengths(encoded: Sequence[_Text], tokens: Sequence[np.ndarray]) -> np.ndarray:
    """(T,) about the length of the old part of the vectors of texts, by the logarithm of their number of tokens."""
    known = np.log([len(text.tokens) for text in encoded])
    line = np.polynomial.Polynomial.fit(
        known, np.log([text.length for text in encoded]), int(known.min() < known.max())
    )
    return np.exp(line(np.clip(np.log([len(ids) for ids in tokens]), known.min(), known.max())))


def _token_weights(encoded: Sequence[_Text], tokens: Sequence[np.ndarray], vocabulary: int) -> sparse.csr_matrix:
    """(T, V) how much each token adds to the channel of a text: the mean size of its occurrences in the sample."""
    ids, sizes = (np.concatenate([getattr(text, name) for text in encoded]) for name in ("tokens", "sizes"))
    counts = np.bincount(ids, minlength=vocabulary)
    sums = np.bincount(ids, weights=sizes, minlength=vocabulary)
    size = (sums + _PRIOR * sizes.mean()) / (counts + _PRIOR)
    rows = np.repeat(np.arange(len(tokens)), [len(text) for text in tokens])
    columns = np.concatenate(tokens)
    values = size[columns] / np.repeat([len(text) for text in tokens], [len(text) for text in tokens])
    return sparse.csr_matrix((values, (rows, columns)), shape=(len(tokens), vocabulary))


@torch.no_grad()
def _write(model: PreTrainedModel, hidden: int, tokens: np.ndarray, channel: Tensor, gain: float) -> None:
    """Writes what tokens say, made small at the first layer and large again by the last LayerNorm."""
    table, norms = model.embeddings.word_embeddings.weight, norms_of(model)
    size = channel.square().sum(dim=1).mean().clamp(min=1e-12)  # 0 if no text has a known word
    small = (_SHARE * table[:, :hidden].square().sum(dim=1).mean() / size).sqrt().cpu()
    table[torch.from_numpy(tokens), hidden:] = (channel * small).to(table.device)
    norms[-1].weight[hidden:] /= small
    norms[-1].bias[hidden:] = -gain / small


@torch.no_grad()
def _set_length(model: SentenceTransformer, hidden: int, sample: Sequence[Side], multiple: float) -> None:
    """Makes the new part of vectors as long as asked; differences among the occurrences of a token make it longer."""
    ratios = []
    for texts, prompt in sample:
        for features in _features(model, texts[: _DEVIATIONS // 2], prompt):
            vectors = model[1](model[0](features))["sentence_embedding"].float()
            ratios.append(vectors[:, hidden:].norm(dim=-1) / vectors[:, :hidden].norm(dim=-1))
    factor = multiple / torch.cat(ratios).mean().clamp(min=1e-6)
    last = norms_of(model[0].model)[-1]
    last.weight[hidden:] *= factor
    last.bias[hidden:] *= factor
