"""Rows of queries and passages in the forms that other programs write."""

import pytest
from json_files import write_lines

from mybert.retrieval.collections import read_texts
from mybert.retrieval.pairs import Pair, ScoredPair, judged_pairs, read_pairs


@pytest.fixture
def read(tmp_path):
    def read(rows: list[dict], columns=None, errors="strict"):
        file = tmp_path / "rows.jsonl"
        write_lines(file, rows)
        return read_pairs([str(file)], columns or {}, errors)

    return read


FORMS = {
    "pairs": [{"anchor": "q", "positive": "p"}],
    "triplets": [{"anchor": "q", "positive": "p", "negative": "n"}],
    "numbered negatives": [{"query": "q", "positive": "p", "negative_1": "n", "negative_2": "m"}],
    "lists": [{"query": "q", "pos": ["p"], "neg": ["n", "m"]}],
    "passages": [
        {"query": "q", "positive_passages": [{"docid": "1", "title": "", "text": "p"}],
         "negative_passages": [{"docid": "2", "title": "", "text": "n"}]}
    ],
    "binary": [{"query": "q", "passage": "p", "label": 1}, {"query": "q", "passage": "n", "label": 0}],
    "capitals": [{"Query": "q", "Positive": "p", "Negative_1": "n"}],
    "texts of numbers": [{"query": "q", "answer": "p", "score": "2"}, {"query": "q", "answer": "n", "score": "0"}],
    "squad": [{"id": "1", "question": "q", "context": "p", "answers": {"text": ["x"], "answer_start": [0]}}],
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_usual_forms_give_the_query_its_positive_and_its_negatives(read, form):
    negatives = {"pairs": (), "squad": (), "numbered negatives": ("n", "m"), "lists": ("n", "m")}.get(form, ("n",))
    assert read(FORMS[form]).pairs == [Pair("q", "p", negatives)]


def test_grades_are_kept_and_zero_makes_negatives(read):
    found = read([{"query": "q", "document": d, "score": s} for d, s in (("a", 2), ("b", 1), ("c", 0))])
    assert [(pair.positive, pair.negatives) for pair in found.pairs] == [("a", ("c",)), ("b", ("c",))]
    assert found.relevant() == {"q": {"a": 2, "b": 1}}


def test_an_answer_of_another_row_is_no_negative(read):
    rows = [{"query": "q", "positive": "a", "negative": "b"}, {"query": "q", "positive": "b", "negative": "c"}]
    assert read(rows).pairs == [Pair("q", "a", ("c",)), Pair("q", "b", ("c",))]
    graded = [{"query": "q", "document": d, "score": s} for d, s in (("a", 1), ("a", 0), ("b", 0))]
    assert read(graded).pairs == [Pair("q", "a", ("b",))]


def test_scores_with_a_fraction_stay_scores(read):
    rows = [{"sentence1": "a", "sentence2": "b", "score": 0.5}, {"sentence1": "c", "sentence2": "d", "score": 1}]
    found = read(rows)
    assert found.scored == [ScoredPair("a", "b", 0.5), ScoredPair("c", "d", 1.0)]
    assert not found.pairs
    scored = [{"query": "q", "passage": p, "score": s, "negatives": ["n", "b"]} for p, s in (("a", 0.5), ("b", -0.25))]
    of_query = [ScoredPair("q", "a", 0.5), ScoredPair("q", "b", -0.25), ScoredPair("q", "n", -0.25)]
    assert read(scored).scored == of_query, "a negative has the lowest score"


def test_columns_name_what_has_no_usual_name(read):
    found = read([{"ask": "q", "reply": "p", "bad": "n"}], {"query": "ask", "positive": "reply", "negatives": "bad"})
    assert found.pairs == [Pair("q", "p", ("n",))]


def test_skipped_rows_are_counted(read, capsys):
    found = read([{"query": ["q", "r"], "positive": "p"}, {"query": ["q"], "positive": ""}], errors="skip")
    assert (len(found.pairs), found.left_out) == (2, 1)
    assert capsys.readouterr().out.endswith("rows.jsonl: 'positive' has no text (1)\n")


def test_the_queries_of_a_share_are_held_out_with_all_their_rows(read):
    pairs = read([{"query": f"q{number % 50}", "positive": f"p{number}"} for number in range(100)])
    train, held_out = pairs.split(0.3, 40, seed=1)
    assert len(train.pairs) + len(held_out.pairs) == 100
    assert [
        len(pairs.split(*given, seed=1)[1].relevant()) for given in ((0.3, 40), (0.3, 4), (0.001, 9), (0.0, 9))
    ] == [15, 4, 1, 0]
    assert not set(train.relevant()) & set(held_out.relevant())
    again, _ = pairs.split(0.3, 40, seed=1)
    assert again == train


def test_a_collection_of_beir_gives_pairs_with_grades(tmp_path):
    lines = {
        "corpus.jsonl": '{"_id": "1", "title": "A", "text": "b"}\n{"_id": "2", "title": "", "text": "c"}\n',
        "queries.jsonl": '{"_id": "x", "text": "q"}\n{"_id": "y", "text": "unjudged"}\n',
        "qrels.tsv": "query-id\tcorpus-id\tscore\nx\t1\t2\nx\t2\t0\n",
    }
    for name, text in lines.items():
        (tmp_path / name).write_text(text)
    corpus, *others = (str(tmp_path / name) for name in lines)
    found = judged_pairs(read_texts([corpus], "documents"), *others)
    assert found.pairs == [Pair("q", "A b", ("c",))]
    assert found.relevant() == {"q": {"A b": 2}}
