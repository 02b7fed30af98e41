"""Segment pairs compared with an independent, token-by-token implementation of the published algorithm."""

import random
from itertools import chain

import numpy as np
import pytest

from mybert.corpus.examples.segment_pairs import TokenisedDocuments, full_sentences, segment_pairs


def published_pairs(documents, rng, max_tokens, short_seq_prob):
    """Devlin et al. (2019), appendix A.2, with lists of tokens: [(a, b, is_random, is_short, length)]."""
    found = []
    for index, document in enumerate(documents):
        short = rng.random() < short_seq_prob
        target = rng.randint(2, max_tokens) if short else max_tokens
        chunk, size, position = [], 0, 0
        while position < len(document):
            chunk.append(document[position])
            size += len(document[position])
            if position == len(document) - 1 or size >= target:
                cut = 1 if len(chunk) == 1 else rng.randint(1, len(chunk) - 1)
                a = list(chain(*chunk[:cut]))
                b = []
                is_random = len(chunk) == 1 or rng.random() < 0.5
                if is_random:
                    others = [other for other in range(len(documents)) if other != index]
                    other = documents[rng.choice(others)]
                    for sentence in other[rng.randrange(len(other)) :]:
                        b = b + sentence
                        if len(b) >= target - len(a):
                            break
                    position -= len(chunk) - cut
                else:
                    b = list(chain(*chunk[cut:]))
                length = len(a) + len(b)
                while len(a) + len(b) > max_tokens:
                    longer = a if len(a) > len(b) else b
                    del longer[0 if rng.random() < 0.5 else -1]
                found.append((a, b, is_random, short, length))
                chunk, size = [], 0
            position += 1
    return found


def make_documents(count, seed):
    """Documents of sentences of tokens; every token is a different number, so that it identifies its position."""
    rng = random.Random(seed)
    numbers = iter(range(10**9))
    shapes = [[rng.randint(1, 40) for _ in range(rng.choice([1, 2, 5, 20, 60]))] for _ in range(count)]
    return [[[next(numbers) for _ in range(length)] for length in shape] for shape in shapes]


def flat(documents, identities=None):
    lengths = [len(sentence) for document in documents for sentence in document]
    offsets = [0, *np.cumsum(lengths).tolist()]
    bounds = [0, *np.cumsum([len(document) for document in documents]).tolist()]
    return TokenisedDocuments(offsets, bounds, identities or list(range(len(documents))))


def document_of(documents):
    return {token: n for n, document in enumerate(documents) for sentence in document for token in sentence}


@pytest.mark.parametrize("max_tokens", [29, 125])
def test_statistics_are_those_of_the_published_algorithm(max_tokens):
    documents = make_documents(400, seed=1)
    ours, theirs = [], []
    for repetition in range(4):
        options = {"max_tokens": max_tokens, "short_seq_prob": 0.1}
        ours += segment_pairs(flat(documents), random.Random(repetition), **options)
        theirs += published_pairs(documents, random.Random(1000 + repetition), max_tokens, 0.1)
    mine = np.array([(p.a_end - p.a, p.b_end - p.b, p.is_random, p.is_short, p.cut > 0, p.cut) for p in ours], float)
    published = np.array(
        [(len(a), len(b), r, s, n > max_tokens, max(0, n - max_tokens)) for a, b, r, s, n in theirs], float
    )

    def columns(table):
        share_b = table[:, 1] / (table[:, 0] + table[:, 1])
        return {
            "length": table[:, 0] + table[:, 1],
            "share of B": share_b,
            "random": table[:, 2],
            "short": table[:, 3],
            "truncated": table[:, 4],
            "tokens cut": table[:, 5],
            "full": table[:, 0] + table[:, 1] == max_tokens,
        }

    assert abs(len(mine) / len(published) - 1) < 0.05
    for name, values in columns(mine).items():
        expected = columns(published)[name]
        error = np.sqrt(values.var() / len(values) + expected.var() / len(expected)) + 1e-12
        # Examples of one document share its target length, so their shares vary more than independent ones would.
        tolerance = 4 * error * (3 if name == "short" else 1.5)
        assert abs(values.mean() - expected.mean()) < tolerance, name
    for q in (5, 25, 50, 75, 95):
        difference = np.percentile(columns(mine)["length"], q) - np.percentile(columns(published)["length"], q)
        assert abs(difference) <= 0.06 * max_tokens


@pytest.mark.parametrize("max_tokens", [5, 61])
def test_a_pair_holds_the_continuation_or_another_document_and_never_too_much(max_tokens):
    documents = make_documents(60, seed=2)
    home = document_of(documents)
    tokens = [token for document in documents for sentence in document for token in sentence]
    pairs = segment_pairs(flat(documents), random.Random(3), max_tokens=max_tokens, short_seq_prob=0.3)
    assert {p.is_random for p in pairs} == {True, False}
    for pair in pairs:
        a, b = tokens[pair.a : pair.a_end], tokens[pair.b : pair.b_end]
        assert a and b and len(a) + len(b) <= max_tokens
        assert pair.cut == 0 or len(a) + len(b) == max_tokens
        assert len({home[token] for token in a}) == len({home[token] for token in b}) == 1
        assert (home[a[0]] != home[b[0]]) == pair.is_random
        if not pair.is_random:
            assert b[0] > a[-1]
            assert pair.cut or b[0] == a[-1] + 1


def test_every_sentence_is_in_some_first_segment_or_true_continuation():
    documents = make_documents(50, seed=4)
    covered = set()
    for p in segment_pairs(flat(documents), random.Random(5), max_tokens=10**6, short_seq_prob=0):
        covered.update(range(p.a, p.a_end), () if p.is_random else range(p.b, p.b_end))
    assert covered == set(range(flat(documents).offsets[-1]))


@pytest.mark.parametrize("limit", [3, 5, 9])
def test_truncation_takes_from_the_longer_segment_as_one_token_at_a_time_does(limit):
    for a in range(1, limit):
        for b in range(1, 14):
            documents = flat([[[0] * a, [0] * b], [[0]]])
            firsts = [
                segment_pairs(documents, random.Random(seed), max_tokens=limit, short_seq_prob=0)[0]
                for seed in range(20)
            ]
            continuations = [pair for pair in firsts if not pair.is_random]
            assert continuations
            expected = [a, b]
            while sum(expected) > limit:
                expected[0 if expected[0] > expected[1] else 1] -= 1
            for pair in continuations:
                assert [pair.a_end - pair.a, pair.b_end - pair.b] == expected
                assert pair.cut == max(0, a + b - limit)


def test_a_random_segment_never_comes_from_a_document_of_equal_text():
    documents = [[[0, 1], [2]], [[3]], [[4, 5, 6]]]
    identities = [7, 7, 9]
    for seed in range(50):
        for p in segment_pairs(flat(documents, identities), random.Random(seed), max_tokens=8, short_seq_prob=0):
            if p.is_random:
                assert (p.a >= 4) != (p.b >= 4)


def test_negatives_of_the_same_document_come_from_another_place_of_it():
    documents = make_documents(80, seed=6)
    home = document_of(documents)
    tokenised = flat(documents)
    pairs = segment_pairs(tokenised, random.Random(1), max_tokens=40, short_seq_prob=0.1, same_document=True)
    assert 0.3 < np.mean([p.is_random for p in pairs]) < 0.8
    for pair in pairs:
        assert home[pair.a] == home[pair.b]
        assert pair.b >= pair.a_end or pair.b_end <= pair.a
        if pair.is_random and not pair.cut:
            assert pair.b != pair.a_end


def test_a_document_of_one_sentence_has_no_negative_in_itself_and_is_left_out():
    pairs = segment_pairs(flat([[[0, 1]]]), random.Random(1), max_tokens=8, short_seq_prob=0, same_document=True)
    assert pairs == []


@pytest.mark.parametrize("short_seq_prob", [0, 0.5])
def test_full_sentences_hold_each_token_once_and_break_between_sentences_where_they_fit(short_seq_prob):
    documents = make_documents(60, seed=8)
    tokenised = flat(documents)
    spans = full_sentences(tokenised, random.Random(2), max_tokens=30, short_seq_prob=short_seq_prob)
    covered = [token for span in spans for token in range(span.a, span.a_end)]
    assert covered == list(range(tokenised.offsets[-1]))
    assert all(0 < span.a_end - span.a <= 30 for span in spans)
    home = document_of(documents)
    assert all(home[span.a] == home[span.a_end - 1] for span in spans)
    if not short_seq_prob:
        ends = set(tokenised.offsets)
        assert any(span.a_end not in ends for span in spans)
        assert all(span.a_end in ends or span.a_end - span.a == 30 for span in spans)


def test_two_tokens_are_the_least_that_a_short_target_asks_for():
    documents = flat([[[0]] * 50, [[0]] * 50])
    pairs = segment_pairs(documents, random.Random(0), max_tokens=20, short_seq_prob=1)
    assert all(pair.is_short for pair in pairs)
    assert min(p.a_end - p.a + p.b_end - p.b for p in pairs) >= 2
