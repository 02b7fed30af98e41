"""BM25 against bm25s."""

import os
import subprocess
import sys

import bm25s
import numpy as np
import pytest
import Stemmer
from bm25s.stopwords import STOPWORDS_EN

from mybert.retrieval import words
from mybert.retrieval.words import Analyzer, Postings, Words, best_positive, best_rows, guess_language

TEXTS = [
    "The cats sleep in the house, and the dog sleeps too.",
    "A dog runs: dogs are running in the park",
    "",
    "Birds in the rain. Rain, rain, rain!",
    "the and of",
    "Ein Hund läuft mit C und x durch den Park",
    "cat",
]
QUERIES = ["running dogs in the rain", "cat", "dog dog dog cats", "C", "unknown words", "the", ""]


def reference(texts: list[str], query: str) -> np.ndarray:
    options = {
        "stopwords": list(STOPWORDS_EN),
        "stemmer": Stemmer.Stemmer("porter"),
        "token_pattern": r"(?u)\b\w+\b",
        "show_progress": False,
    }
    index = bm25s.BM25(k1=0.9, b=0.4, method="lucene")
    index.index(bm25s.tokenize(texts, return_ids=False, **options), show_progress=False)
    (words,) = bm25s.tokenize([query], return_ids=False, **options)
    known = [word for word in words if word in index.vocab_dict and word]
    return index.get_scores(known) if known else np.zeros(len(texts))


@pytest.mark.parametrize("query", QUERIES)
def test_scores_are_those_of_bm25s(query):
    assert np.allclose(Words.of(TEXTS, "en").scores(query), reference(TEXTS, query), atol=1e-5)


@pytest.mark.parametrize("block", [1, 4, 1000])
def test_parts_and_merged_parts_have_the_scores_of_all_texts_at_once(tmp_path, monkeypatch, block):
    monkeypatch.setattr(words, "_BLOCK", block)
    analyzer = Analyzer("en")
    parts = [Postings.of(TEXTS[start : start + 3], analyzer) for start in range(0, len(TEXTS), 3)]
    kept = [np.arange(len(part.lengths)) for part in parts]
    for some in (parts, [Postings.merged(parts, kept, tmp_path)], [Postings.load(tmp_path)]):
        for query in QUERIES:
            assert np.allclose(Words(analyzer, some).scores(query), reference(TEXTS, query), atol=1e-5)


def test_merging_leaves_out_deleted_texts_and_their_words(tmp_path):
    analyzer, kept = Analyzer("en"), [np.array([0, 3]), np.array([1])]
    parts = [Postings.of(TEXTS[:4], analyzer), Postings.of(TEXTS[4:], analyzer)]
    texts = [TEXTS[0], TEXTS[3], TEXTS[5]]
    merged, whole = Postings.merged(parts, kept, tmp_path), Postings.of(texts, analyzer)
    for one, other in zip(merged, whole, strict=True):
        assert np.array_equal(one, other) and one.dtype == other.dtype
    found = Words(analyzer, [merged])
    for query in QUERIES:
        assert np.allclose(found.scores(query), reference(texts, query), atol=1e-5)


def test_equal_scores_keep_their_order():
    assert best_rows(np.array([1.0, 2.0, 1.0, 2.0, 1.0]), 4).tolist() == [1, 3, 0, 2]
    scores = Words.of(["same text"] * 5, "en").scores("same")
    assert best_positive(scores, 3).tolist() == [0, 1, 2] and len(set(scores.tolist())) == 1


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "The house that we have seen is not for the children of this town"),
        ("de", "Das Haus, das wir gesehen haben, ist nicht für die Kinder dieser Stadt"),
        ("fr", "La maison que nous avons vue n'est pas pour les enfants de cette ville"),
        ("es", "La casa que hemos visto no es para los niños de esta ciudad"),
        ("any", "東京は日本の首都である"),
        ("any", ""),
        ("any", "Dogs run. The dog sees the dog"),  # a Danish stop word, and one English one
    ],
)
def test_the_language_is_that_of_the_stop_words(language, text):
    assert guess_language([text]) == language


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("คอมพิวเตอร์", ["การเรียนรู้ของเครื่องคอมพิวเตอร์", "กรุงเทพเป็นเมืองหลวง", "ปู"]),
        ("ปู", ["ปู", "กรุงเทพเป็นเมืองหลวง", "การเรียนรู้"]),
        ("ກິນ", ["ຂ້ອຍມັກກິນເຂົ້າ", "ນະຄອນຫຼວງວຽງຈັນ", ""]),
        ("ភាសា", ["ខ្ញុំចូលចិត្តភាសាខ្មែរ", "រាជធានីភ្នំពេញ", ""]),
        ("ဘာသာ", ["မြန်မာဘာသာစကား", "ရန်ကုန်မြို့", ""]),
    ],
)
def test_words_of_scripts_without_spaces_are_found_and_marked(query, texts):
    """Marks stay with their letter, so that the highlighted part of a text is the query."""
    assert best_positive(Words.of(texts, "any").scores(query), 3).tolist() == [0]
    assert [texts[0][a:b] for a, b in Analyzer("any").spans(texts[0], query)] == [query]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("the \ufb01rst o\ufb03ce", "first office"),  # ligatures, soft hyphens and separate marks of PDF files
        ("rela\u00adtive humid\u200bity", "relative humidity"),
        ("die Ho\u0308he", "Höhe"),
        ("भाषा", "भाषा"),
    ],
)
def test_words_are_found_however_their_letters_are_written(text, query):
    analyzer = Analyzer("any")
    assert set(analyzer.hashes(query)) <= set(analyzer.hashes(text))
    assert [text[a:b] for a, b in analyzer.spans(text, query)] == text.split()[-len(query.split()) :]


def test_words_of_the_query_are_marked_in_all_their_forms():
    text = "A dog runs: the dogs are running"
    assert [text[a:b] for a, b in Analyzer("en").spans(text, "the running dog")] == ["dog", "runs", "dogs", "running"]
    for language, query in (("any", "日本"), ("de", "Haus")):
        found = Words.of(["北京是中国的首都", "東京は日本の首都, die Häuser der Stadt"], language).scores(query)
        assert best_positive(found, 3).tolist() == [1]


def test_the_lists_of_words_are_read_without_jax(tmp_path):
    """bm25s tries jax where it is installed, and jax then reserves most of a GPU's memory."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise SystemExit('jax was imported')")
    code = "from mybert.retrieval.words import Analyzer; print(len(Analyzer('en').hashes('the cats'))); import jax"
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "1\n" and "jax was imported" in done.stderr  # the last import is the caller's own
