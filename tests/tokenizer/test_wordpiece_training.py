"""The trained vocabulary: exact size, complete, deterministic, equal to a brute-force implementation."""

import runpy
import string
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenization import SPECIAL_TOKENS, MyBertTokenizer, train_wordpiece, vocabulary_report
from tokenization.wordpiece_training import least_vocab_size

WORDS = Counter({"low": 5, "lower": 2, "newest": 6, "widest": 3, "low-": 1, "été": 4, "中": 9, "ababab": 2, "aaaa": 3})


def brute_force(word_counts, vocab_size, min_frequency):
    """Merged pieces, recounting every pair of every word at each step."""
    words = {tuple([w[0]] + [f"##{c}" for c in w[1:]]): n for w, n in word_counts.items()}
    made = []
    while len(made) < vocab_size:
        pairs = Counter()
        for word, n in words.items():
            for pair in pairwise(word):
                pairs[pair] += n
        pairs = {pair: n for pair, n in pairs.items() if n >= min_frequency}
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        piece = best[0] + best[1][2:]
        joined = {}
        for word, n in words.items():
            new, at = [], 0
            while at < len(word):
                here = word[at : at + 2] == best
                new.append(piece if here else word[at])
                at += 1 + here
            joined[tuple(new)] = n
        words = joined
        if piece not in made:
            made.append(piece)
    return made


def merged(word_counts, vocab_size, **options):
    vocabulary = train_wordpiece(word_counts, vocab_size, **options)
    return [p for p in vocabulary if len(p.removeprefix("##")) > 1 and not p.startswith("[") and p != "##"]


@settings(max_examples=150)
@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 6), max_size=12),
    st.integers(0, 25),
    st.integers(1, 4),
)
def test_merges_are_those_of_counting_anew(word_counts, number, min_frequency):
    made = merged(word_counts, least_vocab_size(True) + number, min_frequency=min_frequency)
    assert made == brute_force(word_counts, number, min_frequency)


TRAIN = """
from tokenization import *

def train(step, num_proc):
    texts = ["the cat sat, the Katze saß", "a hat that sat", "中文 über déjà", "banana bandana"] * 5
    counts, = count_words(texts[::step], [MyBertTokenizer(SPECIAL_TOKENS).backend_tokenizer], num_proc=num_proc)
    return train_wordpiece(counts, 200)

if __name__ == "__main__":
    print(train(-1, 2))
"""


def test_hash_seed_order_and_processes_change_nothing(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAIN, encoding="utf-8")
    pieces = runpy.run_path(script)["train"](1, 1)
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{pieces}\n" and "##an" in pieces


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_special_tokens_come_first_and_ascii_is_always_there(do_lower_case):
    vocabulary = train_wordpiece(WORDS, 250, do_lower_case=do_lower_case)
    letters = string.ascii_lowercase if do_lower_case else string.ascii_letters
    assert vocabulary[:5] == list(SPECIAL_TOKENS)
    for character in letters + string.digits + string.punctuation:
        assert {character, f"##{character}"} <= set(vocabulary)
    assert ("A" in vocabulary) is not do_lower_case
    tokenizer = MyBertTokenizer(vocabulary, do_lower_case=do_lower_case)
    assert "[UNK]" not in tokenizer.tokenize("Zebra-7_x#!")


@pytest.mark.parametrize("vocab_size", [141, 142, 150, 180, 500])
def test_the_size_is_exact(vocab_size):
    vocabulary = train_wordpiece(WORDS, vocab_size, min_frequency=1)
    assert len(vocabulary) == len(set(vocabulary)) == vocab_size


def test_places_that_no_merge_fills_are_unused_and_padding_comes_on_top():
    vocabulary = train_wordpiece({"ab": 3}, 150, pad_to_multiple_of=64)
    assert len(vocabulary) == 192
    assert vocabulary[141:144] == ["ab", "[unused0]", "[unused1]"]


def test_an_alphabet_larger_than_the_size_leaves_room_for_words():
    words = {chr(0x4E00 + i): 10 for i in range(2000)} | {"hello": 100, "été": 99}
    vocabulary = train_wordpiece(words, 241)
    assert len(vocabulary) == 241
    assert sum(ord(piece[-1]) >= 0x4E00 for piece in vocabulary) == 48
    assert {"é", "##é", "hello"} <= set(vocabulary)
    assert chr(0x4E00) in vocabulary  # equally frequent characters are taken in code point order
    assert chr(0x4E00 + 1000) not in vocabulary


def test_rare_characters_beyond_the_coverage_get_no_piece():
    words = {"é": 9_000, "中": 990, "語": 10}
    assert "語" in train_wordpiece(words, 300, character_coverage=1.0)
    vocabulary = train_wordpiece(words, 300, character_coverage=0.999)
    assert "中" in vocabulary
    assert "語" not in vocabulary


def test_every_merged_piece_stands_in_a_word_that_can_be_encoded():
    words = WORDS | {"x" * 101: 1000, "xx語": 1}
    made = merged(words, 400, character_coverage=0.95, min_frequency=1)
    assert "low" in made
    for piece in made:
        assert any(word.startswith(piece) or piece[2:] in word[1:] for word in WORDS)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"vocab_size": 140}, "at least 141"),
        ({"vocab_size": 192, "do_lower_case": False}, "at least 193"),
    ],
)
def test_a_size_without_room_for_ascii_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        train_wordpiece(WORDS, **options)


def test_the_report_weighs_words_by_their_occurrences(pieces):
    backend = MyBertTokenizer(pieces).backend_tokenizer
    report = vocabulary_report({"hello": 6, "worlds": 2, "日": 1, "ha": 1}, backend)
    assert report["words"] == 10
    assert report["distinct words"] == 4
    assert report["unknown rate"] == 0.2
    assert report["tokens per word"] == 1.2
    assert report["words kept whole"] == 0.6
    assert report["character coverage"] == (30 + 12 + 0 + 1) / (30 + 12 + 1 + 2)
