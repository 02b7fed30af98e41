"""Hard negatives: passages that BM25 or the model rank high for a query and that do not answer it."""

import functools
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from sentence_transformers import SentenceTransformer

from mybert.common.errors import UserError, short
from mybert.common.quantities import counted
from mybert.retrieval.balance import encoders_of
from mybert.retrieval.pairs import Pair, Pairs
from mybert.retrieval.words import Words, best_rows
from mybert.rows.similar_rows import plain_text

_RETRIEVED = 100  # passages of BM25, and of the model
_FALSE = 0.95  # share of the positive's scores from which a passage is taken for another answer
_EQUAL = 0.95  # cosine from which a passage is taken for the positive
_PART = 0.9  # share of the words of a passage


def add_negatives(
    pairs: Pairs,
    passages: Sequence[str],
    count: int,
    seed: int,
    model: SentenceTransformer | None,
    among: int,
) -> Pairs:
    """Pairs with at most `count` different negatives each: those of the rows, then hard ones, then random passages.

    A passage is left out if it belongs to the query, is nearly the positive, or has `_FALSE` of the positive's score
    by BM25 and by the model, or more: it may be an answer that nobody has judged (Moreira et al. 2024).

    Args:
        passages: among which negatives are found, beside those of the pairs; at most two for each pair are read.
        model: finds passages too; None: BM25 alone.
        among: hard ones are drawn from this number of passages, the best ones of BM25 and of the model in turn.
    """
    if not count or not pairs.pairs:
        return pairs
    draw = random.Random(seed)
    others = draw.sample(passages, min(len(passages), 2 * len(pairs.pairs)))
    texts = list(dict.fromkeys([*pairs.passages(), *others]))
    searcher = _Searcher(texts, [pair.query for pair in pairs.pairs], model)
    relevant, with_negatives = pairs.relevant(), []

    @functools.lru_cache(1)  # queries with many answers are asked about the same passages for each
    def words_of_answers(query: str) -> list[set[str]]:
        return [_words_of(text) for text in relevant[query]]

    @functools.lru_cache(1 << 14)
    def answers(query: str, text: str) -> bool:
        """Whether nearly all words of a text are in an answer, as those of a part of a document are."""
        words = _words_of(text)
        return any(len(words & others) >= _PART * len(words) for others in words_of_answers(query))

    for number, pair in enumerate(pairs.pairs):
        candidates = (texts[place] for place in searcher.candidates(number, pair))
        hard = list(islice((text for text in candidates if not answers(pair.query, text)), among))
        if len(hard) > count:
            hard = draw.sample(hard, count)
        chosen = dict.fromkeys([*pair.negatives, *hard])
        for text in [draw.choice(texts) for _ in range(10 * count)]:
            if len(chosen) < count and not answers(pair.query, text):
                chosen[text] = None
        if not chosen:
            raise UserError(
                f"query {short(pair.query, 60)}: all other passages are nearly the one that answers it, so none can "
                "be a negative; give other passages, or negatives of its own"
            )
        with_negatives.append(pair._replace(negatives=tuple(chosen)[:count]))
    return replace(pairs, pairs=with_negatives)


def print_unused(pairs: Sequence[Pair], used: int) -> None:
    """Says so if rows have more negatives than are used of each."""
    most = max((len(pair.negatives) for pair in pairs), default=0)
    if most > used:
        given = counted(most, "negative")
        print(f"rows have up to {given}; {used} of each are used, all with --hard-negatives {most}")


def _words_of(text: str) -> set[str]:
    return set(plain_text(text).split())


class _Searcher:
    def __init__(self, texts: Sequence[str], queries: Sequence[str], model: SentenceTransformer | None):
        self._texts, self._place = texts, {text: place for place, text in enumerate(texts)}
        self._words = Words.of(texts)
        self._vectors = None
        if model is not None:
            encode_queries, encode_passages = encoders_of(model)
            self._vectors, self._queries = encode_passages(list(texts)), encode_queries(list(queries))

    def candidates(self, number: int, pair: Pair) -> list[int]:
        """Places of the passages that may be negatives, best first: BM25's and the model's in turn."""
        positive = self._place[pair.positive]
        scores = self._words.scores(pair.query)
        by_words = [int(place) for place in best_rows(scores, _RETRIEVED) if scores[place] > 0]
        likely = scores >= _FALSE * scores[positive]
        if self._vectors is None:
            return [place for place in by_words if place != positive and not likely[place]]
        near = self._vectors @ self._queries[number]
        by_model = best_rows(near, _RETRIEVED).tolist()
        turns = [place for both in zip(by_words, by_model, strict=False) for place in both]
        turns = list(dict.fromkeys([*turns, *by_words, *by_model]))
        likely &= near >= _FALSE * near[positive]
        equal = self._vectors[turns] @ self._vectors[positive] >= _EQUAL
        return [
            place
            for place, same in zip(turns, equal.tolist(), strict=True)
            if place != positive and not same and not likely[place]
        ]
