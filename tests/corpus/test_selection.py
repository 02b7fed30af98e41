"""Filters, deduplication and near-deduplication."""

import os
import random
import sys

import pytest

from mybert.common.errors import UserError
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text import document_store as documents_module
from mybert.corpus.text.document_store import store_documents
from mybert.corpus.text.near_duplicates import word_sequences
from mybert.corpus.text.selection import load_filter, select_documents
from mybert.io.documents import Document


@pytest.fixture
def select(tmp_path):
    """select(texts, **settings) → (indices kept, counts)."""

    def run(texts, **settings):
        folder = tmp_path / f"stored-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        settings = CorpusSettings(inputs=["x"], tokenizer="t", output="o", **{"num_proc": 1, **settings})
        stored = store_documents((Document(text, "x", 1, {}) for text in texts), folder, settings, {})
        chosen, counts = select_documents(stored, settings)
        assert select_documents(stored, settings)[0].tolist() == chosen.tolist()  # found again
        return chosen.tolist(), counts

    return run


@pytest.fixture
def write_filter(tmp_path, monkeypatch):
    """write_filter(body) → `my_filters:keep`, a module in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(body):
        (tmp_path / "my_filters.py").write_text(f"def keep(text):\n    {body}\n")
        sys.modules.pop("my_filters", None)
        load_filter.cache_clear()
        return "my_filters:keep"

    return write


def jaccard(one, other):
    """Jaccard similarity by windows over a list of words."""

    def windows(text):
        words = text.lower().replace(".", "").split()
        return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}

    one, other = windows(one), windows(other)
    return len(one & other) / len(one | other)


@pytest.fixture(scope="module")
def planted():
    """Documents of 200 random words, some with a copy in which 1 to 20 words differ, and their similarities."""
    rng = random.Random(0)
    texts = []
    for number in range(120):
        words = [f"word{rng.randrange(3000)}" for _ in range(200)]
        texts.append(" ".join(words))
        if number % 2:
            for place in rng.sample(range(200), rng.choice([1, 2, 3, 6, 12, 20])):
                words[place] = f"other{rng.randrange(3000)}"
            texts.append(" ".join(words))
    rng.shuffle(texts)
    similar = {(i, j): jaccard(texts[i], texts[j]) for j in range(len(texts)) for i in range(j)}
    return texts, similar


def test_near_copies_are_those_that_brute_force_finds(planted, select):
    texts, similar = planted
    expected = {later for (_, later), value in similar.items() if value >= 0.8}
    assert 20 < len(expected) < 50 and any(0.4 < value < 0.8 for value in similar.values())
    kept, counts = select(texts, deduplicate_near=0.8)
    assert set(range(len(texts))) - set(kept) == expected
    assert counts["documents_near_duplicate"] == len(expected) and counts["documents"] == len(kept)


def test_no_document_is_lost_below_the_threshold_and_hardly_any_kept_above_it(planted, select):
    texts, similar = planted
    for threshold in (0.5, 0.7, 0.9, 1.0):
        expected = {later for (_, later), value in similar.items() if value >= threshold}
        left_out = set(range(len(texts))) - set(select(texts, deduplicate_near=threshold)[0])
        assert left_out <= expected
        assert len(expected - left_out) <= 1


def test_near_copies_are_the_same_for_any_number_of_processes_and_size_of_tasks(planted, select, monkeypatch):
    texts, _ = planted
    one = select(texts, deduplicate_near=0.7)
    monkeypatch.setattr(documents_module, "CHARACTERS_PER_TASK", 10_000)
    assert select(texts, deduplicate_near=0.7, num_proc=2) == one


def test_a_chain_of_near_copies_leaves_its_first(select):
    words = [f"w{number}" for number in range(200)]
    chain = [" ".join([f"x{n}" for n in range(3 * step)] + words[3 * step :]) for step in range(8)]
    assert jaccard(chain[0], chain[-1]) < 0.9 < jaccard(chain[3], chain[4])
    assert select(chain, deduplicate_near=0.9)[0] == [0]


def test_short_texts_and_texts_without_words_are_compared_whole(select):
    texts = ["One two.", "one, TWO", "one two three", "!!!", "???", "a b c d e", "A b c d e!"]
    assert select(texts, deduplicate_near=0.8)[0] == [0, 2, 3, 4, 5]
    assert [*word_sequences("One two three four five six")] == ["one two three four five", "two three four five six"]


def test_words_that_differ_in_vowel_signs_are_different_words(select):
    texts = ["\u0915\u0940 \u0915\u0939\u093e\u0928\u0940", "\u0915\u093e \u0915\u0939\u093e\u0928\u093e"]  # Hindi
    texts += ["\u0e21\u0e35", "\u0e21\u0e34"]  # Thai
    assert select(texts, deduplicate_near=0.8)[0] == [0, 1, 2, 3]
    assert [*word_sequences("The \u0915\u0940!")] == ["the \u0915\u0940"]


def test_copies_are_left_out_before_near_copies(select):
    kept, counts = select(["a b c d e f", "a b c d e f", "A b c d e f"], deduplicate_near=0.9)
    assert kept == [0] and (counts["documents_duplicate"], counts["documents_near_duplicate"]) == (1, 1)


def test_a_filter_of_the_users_keeps_and_counts(select, write_filter):
    texts = [f"text {number}" for number in range(20)]
    name = write_filter("return not text.endswith('7')")
    for processes in (1, 2):
        kept, counts = select(texts, filter=[name], num_proc=processes)
        assert kept == [number for number in range(20) if number not in (7, 17)]
        assert counts["documents_filtered"] == {name: 2}


def test_the_build_reports_what_a_filter_left_out(build, make_documents, write_jsonl, write_filter, capsys):
    name = write_filter("return 'school' not in text.lower()")
    texts = make_documents(60, sentences=(2, 5), words=(2, 5))
    expected = sum("school" in text.lower() for text in texts)
    assert expected
    *_, manifest = build([write_jsonl(texts)], filter=[name])
    assert manifest["counts"]["documents_filtered"] == {name: expected}
    assert manifest["counts"]["documents"] == 60 - expected
    assert f"removed by {name}" in capsys.readouterr().out


def test_a_process_that_the_system_kills_is_said_with_the_remedy(select, write_filter, monkeypatch):
    monkeypatch.setattr(documents_module, "CHARACTERS_PER_TASK", 5)
    name = write_filter(f"import os\n    return os.getpid() == {os.getpid()} or os.kill(os.getpid(), 9)")
    with pytest.raises(UserError, match=r"a process was killed, .* use a smaller --num-proc"):
        select(["some text"] * 4, filter=[name], num_proc=2)
