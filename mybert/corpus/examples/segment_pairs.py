"""Tokenized documents to segment pairs, as ranges of tokens.

The sentences of a block are concatenated in one array of tokens. A segment is a range of this array.
"""

import random
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from mybert.common.errors import UserError

ONE_DOCUMENT = (
    "a random next segment must come from another document, but the inputs hold only one distinct document, or so "
    "many duplicates of it that others are rare; add documents, remove duplicates by --deduplicate, split it by "
    "--split-documents N, or use --negatives same-document or --no-nsp"
)


class Pair(NamedTuple):
    """Two segments as ranges of the flat token array.

    Attributes:
        a, a_end: segment A is `tokens[a:a_end]`.
        b, b_end: segment B likewise; empty in an example without pairs.
        is_random: B does not follow A in the text.
        is_short: the target length was shorter and random.
        cut: number of tokens removed by truncation.
    """

    a: int
    a_end: int
    b: int
    b_end: int
    is_random: bool
    is_short: bool
    cut: int


@dataclass(frozen=True)
class TokenisedDocuments:
    """Sentence and document boundaries of a block.

    Attributes:
        offsets: (sentences + 1,) first token of each sentence, then the end; no sentence is empty.
        bounds: (documents + 1,) first sentence of each document, then the end; no document is empty.
        identities: (documents,) equal for documents with equal text.
    """

    offsets: list[int]
    bounds: list[int]
    identities: list[int]

    def reach(self, start: int, tokens: int, last: int) -> int:
        """The end of the fewest sentences from `start` (at least one) with `tokens` in total, at most `last`."""
        return bisect_left(self.offsets, self.offsets[start] + tokens, start + 1, last)


def segment_pairs(
    documents: TokenisedDocuments,
    rng: random.Random,
    *,
    max_tokens: int,
    short_seq_prob: float,
    same_document: bool = False,
) -> list[Pair]:
    """Segment pairs of BERT's pretraining data (Devlin et al. 2019, section 3.1; `create_pretraining_data.py`).

    A document is divided into chunks of whole sentences that fill the target length. A chunk is split at a random
    sentence into A and the rest. With probability 0.5 the rest is B, otherwise B is a random segment and the rest is
    used again. A random B never comes from a document with the same text as A's; the reference stops checking after
    ten tries.

    Args:
        max_tokens: maximum tokens of A and B together.
        short_seq_prob: probability that a document has a shorter, random target length.
        same_document: take a random B from another place in A's document. If the document is too short, B is the
            continuation; a chunk without a continuation gives no pair.
    """
    if not same_document and len(set(documents.identities)) < 2:
        raise UserError(ONE_DOCUMENT)
    negative = _elsewhere_in_document if same_document else _in_another_document
    pairs = []
    for document in range(len(documents.identities)):
        target = max_tokens
        if is_short := rng.random() < short_seq_prob:
            target = _between(2, max_tokens, rng)
        start, last = documents.bounds[document], documents.bounds[document + 1]
        while start < last:
            end = documents.reach(start, target, last)
            middle = _between(start + 1, end - 1, rng) if end - start > 1 else end
            b = (middle, end)
            is_random = middle == end or rng.random() < 0.5
            if is_random:
                wanted = target - (documents.offsets[middle] - documents.offsets[start])
                b = negative(documents, document, start, middle, wanted, rng) or b
                is_random = b != (middle, end)
            if b[0] < b[1]:
                pairs.append(_truncated(documents.offsets, (start, middle), b, is_random, is_short, max_tokens, rng))
            start = middle if is_random else end
    return pairs


def full_sentences(
    documents: TokenisedDocuments, rng: random.Random, *, max_tokens: int, short_seq_prob: float
) -> list[Pair]:
    """Single segments with as many whole sentences of a document as fit; longer sentences are split."""
    pairs = []
    for first, last in pairwise(documents.bounds):
        target = max_tokens
        if is_short := rng.random() < short_seq_prob:
            target = _between(2, max_tokens, rng)
        start, end = documents.offsets[first], documents.offsets[last]
        sentence = first
        while start < end:
            fitting = bisect_left(documents.offsets, start + target + 1, sentence, last + 1) - 1
            stop = documents.offsets[fitting] if documents.offsets[fitting] > start else start + target
            pairs.append(Pair(start, stop, stop, stop, False, is_short, 0))
            start, sentence = stop, fitting
    return pairs


def _in_another_document(
    documents: TokenisedDocuments, document: int, start: int, middle: int, wanted: int, rng: random.Random
) -> tuple[int, int]:
    identities, bounds = documents.identities, documents.bounds
    other = document
    while identities[other] == identities[document]:
        other = _between(0, len(identities) - 1, rng)
    first = _between(bounds[other], bounds[other + 1] - 1, rng)
    return first, documents.reach(first, wanted, bounds[other + 1])


def _elsewhere_in_document(
    documents: TokenisedDocuments, document: int, start: int, middle: int, wanted: int, rng: random.Random
) -> tuple[int, int] | None:
    """Sentences before A, or after A but not directly after it; None if there are none."""
    low, high = documents.bounds[document], documents.bounds[document + 1]
    before, after = start - low, max(0, high - (middle + 1))
    if not before + after:
        return None
    place = _between(0, before + after - 1, rng)
    if place < before:
        return low + place, documents.reach(low + place, wanted, start)
    first = middle + 1 + place - before
    return first, documents.reach(first, wanted, high)


def _truncated(
    offsets: list[int],
    segment_a: tuple[int, int],
    segment_b: tuple[int, int],
    is_random: bool,
    is_short: bool,
    max_tokens: int,
    rng: random.Random,
) -> Pair:
    """Removes tokens from the longer segment (B if equal), each from the front or back at random."""
    a, a_end = offsets[segment_a[0]], offsets[segment_a[1]]
    b, b_end = offsets[segment_b[0]], offsets[segment_b[1]]
    cut = max(0, a_end - a + b_end - b - max_tokens)
    if cut:
        surplus = (a_end - a) - (b_end - b)
        from_longer = min(cut, abs(surplus))
        from_each = cut - from_longer
        cut_a = from_each // 2 + (from_longer if surplus > 0 else 0)
        front_a, front_b = _heads(cut_a, rng), _heads(cut - cut_a, rng)
        a, a_end = a + front_a, a_end - (cut_a - front_a)
        b, b_end = b + front_b, b_end - (cut - cut_a - front_b)
    return Pair(a, a_end, b, b_end, is_random, is_short, cut)


def _between(low: int, high: int, rng: random.Random) -> int:
    """As `rng.randint`, several times as fast; the bias is below 2**-30 for these ranges."""
    return low + int(rng.random() * (high - low + 1))


def _heads(tosses: int, rng: random.Random) -> int:
    return rng.getrandbits(tosses).bit_count() if tosses else 0
