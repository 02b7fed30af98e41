import datasets
import numpy as np
import pytest

from mybert.corpus.statistics import _marks_removed, shared_spans
from tokenization import SPECIAL_TOKENS, MyBertTokenizer

CLS, SEP, SPAN = 2, 3, 20


def rows(segments):
    return datasets.Dataset.from_dict({"input_ids": [[CLS, *segment, SEP] for segment in segments]})


@pytest.mark.parametrize("copies", [0, 1, 2, 7])
@pytest.mark.parametrize("seed", range(4))
def test_shared_spans_are_those_of_brute_force(seed, copies):
    """One copy has one hash: half of them are 2**63 or more, which numpy 2.0 subtracts wrongly."""
    random = np.random.default_rng(seed)
    held_out = random.integers(5, 1000, (7, 24)).tolist()
    training = random.integers(5, 1000, (9, 40)).tolist()
    for segment, kept in zip(training, held_out[:copies], strict=False):
        segment[3 : 3 + len(kept)] = kept
    middles = [segment[2 : 2 + SPAN] for segment in held_out]
    stored = [i for row in training for i in (CLS, *row, SEP)]
    expected = sum(any(stored[i : i + SPAN] == middle for i in range(len(stored))) for middle in middles)
    found = shared_spans(rows(training), rows(held_out))
    assert expected == copies
    assert found == {"tokens": SPAN, "spans": 7, "found": expected, "training_tokens": len(stored)}


def test_marks_that_a_tokenizer_removes_are_measured():
    uncased, keeping = MyBertTokenizer(SPECIAL_TOKENS), MyBertTokenizer(SPECIAL_TOKENS, strip_accents=False)
    found = _marks_removed(["schon schön", "the word"], uncased)
    assert found == {"removed_marks": 1 / len("schonscho\u0308ntheword"), "equal_words": [("schon", "schön")]}
    assert _marks_removed(["schön"], keeping) == {}
