"""Word counts equal those of the library on whole texts."""

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from concurrent.futures.process import BrokenProcessPool

import pytest
from forked import exit_status
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenization import SPECIAL_TOKENS, MyBertTokenizer, count_words, word_counting
from tokenization.new_words import count_uses
from tokenization.processes import map_unordered

UNCASED = MyBertTokenizer(SPECIAL_TOKENS).backend_tokenizer
CASED = MyBertTokenizer(SPECIAL_TOKENS, do_lower_case=False).backend_tokenizer
TEXTS = ["Hello, hello\tWorld\n", "don't  STOP", "中文 déjà\xa0vu", "a\x1cb a\x0bb \u2003x", "", "ΑΣ ΑΣ Σ"] * 3


def brute_force(texts, backend) -> Counter:
    counts = Counter()
    for text in texts:
        split = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))
        counts.update(word for word, _ in split)
    return counts


@settings(max_examples=300)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
@example(["tan\x1cker", "a\x85b\x0bc \u2003x\tx"])
def test_any_texts_are_counted_as_by_the_library(texts):
    expected = [brute_force(texts, UNCASED), brute_force(texts, CASED)]
    assert count_words(texts, [UNCASED, CASED]) == expected
    assert {word: use.count for word, use in count_uses(texts, UNCASED).items()} == expected[0]


def test_further_tokenizers_count_words_of_strings_beyond_ascii_only():
    first, second = count_words(TEXTS, [UNCASED], beyond_ascii=[CASED])
    assert first == brute_force(TEXTS, UNCASED)
    assert second == brute_force(["中文 déjà\xa0vu \u2003x ΑΣ ΑΣ Σ"] * 3, CASED)


@pytest.mark.parametrize("num_proc", [1, 2, 3])
def test_processes_order_and_batches_change_nothing(monkeypatch, num_proc):
    expected = count_words(TEXTS, [UNCASED])
    assert expected[0]["hello"] == 6
    for name in ("_BATCH_CHARACTERS", "_SLICE_CHUNKS", "_MOST_CHUNKS"):
        monkeypatch.setattr(word_counting, name, 3)
    shuffled = random.Random(num_proc).sample(TEXTS, len(TEXTS))
    assert count_words(iter(shuffled), [UNCASED], num_proc=num_proc) == expected


def test_an_error_while_reading_comes_through_the_processes():
    def broken():
        yield "hello"
        raise ValueError("line 7")

    for num_proc in (1, 2):
        with pytest.raises(ValueError, match="line 7"):
            count_words(broken(), [UNCASED], num_proc=num_proc)


def test_a_killed_process_ends_the_count_and_leaves_no_other_behind():
    """As the system does when memory runs out."""

    def texts():
        while time.monotonic() < deadline:
            yield "hello " * 1000
            children = [process for process in multiprocessing.active_children() if process not in others]
            if children and not ours:
                ours.extend(children)
                os.kill(children[0].pid, signal.SIGKILL)

    others, ours, deadline = multiprocessing.active_children(), [], time.monotonic() + 60
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_counting, "_BATCH_CHARACTERS", 1000)
        with pytest.raises(BrokenProcessPool):
            count_words(texts(), [UNCASED], num_proc=3)
    assert len(ours) > 1 and not any(process.is_alive() for process in ours)


def fail_while_results_are_sent() -> None:
    def jobs(seconds):
        yield from [20_000_000] * 2
        time.sleep(seconds)
        raise ValueError

    for number in range(4):
        with pytest.raises(ValueError):
            list(map_unordered(bytes, jobs(number / 25), 2))


def test_an_error_ends_the_processes_even_while_they_send_results():
    assert exit_status(fail_while_results_are_sent) == 0


def test_sigterm_ends_a_process_whatever_its_parent_does_at_sigterm():
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        assert list(map_unordered(signal.getsignal, [signal.SIGTERM], 2)) == [(0, signal.SIG_DFL)]
    finally:
        signal.signal(signal.SIGTERM, before)
