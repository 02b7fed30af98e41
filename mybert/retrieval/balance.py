"""How much BM25 counts beside vectors: chosen for a model and a collection, from its documents alone."""

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mybert.common.errors import UserError
from mybert.corpus.text.sentences import sentence_splitter
from mybert.retrieval.ranking import combined
from mybert.retrieval.words import Words, count_words, guess_language

Encode = Callable[[list[str]], np.ndarray]
"""From texts to (texts, H) float32, vectors of length 1."""
DEFAULT = 3.5
"""Of documents that are too few or too short to choose by."""
LARGEST = 10.0
"""Beside vectors that know nothing of the documents but their words."""
_WEIGHTS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, LARGEST)
_ENOUGH = 0.99  # of the best score: the smallest such weight is taken
_SAMPLE, _LEAST = 200, 50  # documents
_LEAST_WORDS = 4  # of a query
_CHARACTERS = 1500  # of a document


def encoders_of(model: Any, batch_size: int = 64) -> tuple[Encode, Encode]:
    """The functions of a `SentenceTransformer` that encode queries and passages, with their prompts."""
    options = {"batch_size": batch_size, "normalize_embeddings": True, "show_progress_bar": False}
    return functools.partial(model.encode_query, **options), functools.partial(model.encode_document, **options)


def start_weight(config: Any) -> float:
    """What `balance` chose for the start model of a retriever on the documents it was trained on; 0 without such."""
    weight = getattr(config, "words_weight", 0.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= LARGEST:
        raise UserError(f"words_weight in config.json: expected a number from 0 to {LARGEST:g}, found {weight!r}")
    return float(weight)


def balance(
    titles: Sequence[str], texts: Sequence[str], queries: Encode, passages: Encode, least: float = 0.0
) -> float:
    """The weight of BM25 in `combined` that finds documents best, by a sentence taken out of them and by their title.

    Args:
        least: the smallest result, `start_weight` of the model: one that has learned these sentences seems better
            than it is.

    Returns:
        The smallest weight that is nearly as good as the best one: real queries repeat fewer words of a document. A
        weight below `DEFAULT` is raised half of the way to it: sentences are nearer to the rest of their document
        than real queries, so the vectors seem better than they are.
    """
    language = guess_language(texts)
    split = sentence_splitter(language)
    draw = random.Random(0)
    places = draw.sample(range(len(texts)), min(len(texts), 5 * _SAMPLE))
    by_sentence, by_title = list[tuple[str, str]](), list[tuple[str, str]]()
    for place in places:
        sentences = [" ".join(one.split()) for one in split(texts[place][:_CHARACTERS])]
        long = [number for number, one in enumerate(sentences) if count_words(one) >= _LEAST_WORDS]
        if len(sentences) >= 3 and long and len(by_sentence) < _SAMPLE:
            taken = draw.choice(long)
            by_sentence.append((sentences[taken], " ".join(sentences[:taken] + sentences[taken + 1 :])))
        if count_words(titles[place]) >= _LEAST_WORDS and len(by_title) < _SAMPLE:
            by_title.append((titles[place], " ".join(sentences)))
    by_title = list(dict(by_title).items())  # a title of several documents says nothing about one
    reciprocal_ranks = [
        _scores(pairs, language, queries, passages) for pairs in (by_sentence, by_title) if len(pairs) >= _LEAST
    ]
    if not reciprocal_ranks:
        return max(DEFAULT, least)
    scores = np.mean(reciprocal_ranks, axis=0)
    chosen = _WEIGHTS[int(np.argmax(scores >= _ENOUGH * scores.max()))]
    return max(chosen, (chosen + DEFAULT) / 2, least)


def _scores(pairs: Sequence[tuple[str, str]], language: str, queries: Encode, passages: Encode) -> list[float]:
    """The mean reciprocal rank of the passage of each query, by weight."""
    asked, texts = (list(side) for side in zip(*pairs, strict=True))
    similar, words = queries(asked) @ passages(texts).T, Words.of(texts, language)
    by_words = [words.scores(query) for query in asked]
    reciprocal_ranks = []
    for weight in _WEIGHTS:
        ranks = []
        for own, pair in enumerate(zip(similar, by_words, strict=True)):
            scores = combined(*pair, weight=weight)
            ranks.append(int((scores >= scores[own]).sum()))  # the last of equal ones
        reciprocal_ranks.append(float(np.mean(1 / np.array(ranks))))
    return reciprocal_ranks
