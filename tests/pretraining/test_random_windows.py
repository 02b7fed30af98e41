import numpy as np
import pytest

from mybert.pretraining.data.batching import Examples
from mybert.pretraining.data.counter_based_random import WINDOWS, RandomStreams
from mybert.pretraining.data.scheduled_batches import cut_randomly

CLS, SEP = 1, 2


def make_examples(sizes, epoch=0) -> Examples:
    """Pairs whose A counts up from 100 and B from 200, so that every token tells its place; B of 0 is none."""
    rows = [
        ([CLS, *range(100, 100 + a), SEP, *(range(200, 200 + b)), *([SEP] if b else [])], a + 2, b + 1 if b else 0)
        for a, b in sizes
    ]
    return Examples(
        input_ids=np.concatenate([ids for ids, _, _ in rows]),
        token_type_ids=np.concatenate([[0] * a + [1] * b for _, a, b in rows]),
        lengths=np.array([len(ids) for ids, _, _ in rows]),
        next_sentence_label=np.array([i % 2 for i in range(len(rows))]),
        epochs=np.full(len(rows), epoch),
        indices=np.arange(len(rows)),
    )


def split(values, lengths) -> list[list[int]]:
    return [part.tolist() for part in np.split(values, np.cumsum(lengths)[:-1])]


@pytest.fixture(scope="module")
def sizes():
    rng = np.random.default_rng(0)
    return [(int(a), int(b)) for a, b in zip(rng.integers(1, 60, 300), rng.integers(1, 60, 300), strict=True)]


@pytest.mark.parametrize("length", [8, 16, 32, 64])
def test_a_window_of_a_pair_is_contiguous_and_has_the_end_of_a_the_start_of_b_and_the_label(sizes, length):
    whole = make_examples(sizes)
    cut = cut_randomly(whole, length, RandomStreams(3, WINDOWS))
    assert cut.lengths.tolist() == [min(len(ids), length) for ids in split(whole.input_ids, whole.lengths)]
    assert cut.next_sentence_label is whole.next_sentence_label
    rows = zip(
        sizes,
        split(whole.input_ids, whole.lengths),
        split(cut.input_ids, cut.lengths),
        split(cut.token_type_ids, cut.lengths),
        strict=True,
    )
    sizes_of_a = set()
    for (size_a, size_b), before, ids, types in rows:
        if len(before) <= length:
            assert ids == before
            continue
        end = ids.index(SEP)
        a, b = ids[1:end], ids[end + 1 : -1]
        assert (ids[0], ids[-1]) == (CLS, SEP)
        assert a == list(range(100 + size_a - len(a), 100 + size_a)) and b == list(range(200, 200 + len(b)))
        assert len(a) >= min(2, size_a) and len(b) >= min(2, size_b)
        assert types == [0] * (len(a) + 2) + [1] * (len(b) + 1)
        sizes_of_a.add(len(a))
    assert len(sizes_of_a) >= (length - 3) // 2  # the boundary is anywhere in the window


def test_a_window_depends_on_epoch_and_index_and_not_on_the_batch(sizes):
    whole = cut_randomly(make_examples(sizes), 24, RandomStreams(3, WINDOWS))
    rows = split(whole.input_ids, whole.lengths)
    some = make_examples(sizes)
    ends = np.cumsum(some.lengths)
    last = slice(ends[-2], ends[-1])
    alone = Examples(
        some.input_ids[last], some.token_type_ids[last], some.lengths[-1:], None, some.epochs[-1:], some.indices[-1:]
    )
    assert cut_randomly(alone, 24, RandomStreams(3, WINDOWS)).input_ids.tolist() == rows[-1]
    other = cut_randomly(make_examples(sizes, epoch=1), 24, RandomStreams(3, WINDOWS))
    assert sum(a != b for a, b in zip(rows, split(other.input_ids, other.lengths), strict=True)) > 200


def test_a_single_segment_is_cut_to_the_exact_length():
    cut = cut_randomly(make_examples([(50, 0), (5, 0)]), 20, RandomStreams(0, WINDOWS))
    assert cut.lengths.tolist() == [20, 7]
    assert cut.next_sentence_label.tolist() == [0, 1]
