"""Collections in the formats of BEIR, TREC and MS MARCO, and their mistakes."""

import json
from pathlib import Path

import pytest
from datasets import Dataset

from mybert.io.documents import read_documents
from mybert.retrieval.collections import Texts, read_judgements, read_texts

EXPECTED = Texts(["d1", "d2"], ["Cats", ""], ["They sleep.", "Dogs run."])
BEIR = '{"_id": "d1", "title": "Cats", "text": "They sleep."}\n{"_id": "d2", "title": "", "text": "Dogs run."}\n'
FORMATS = {
    "corpus.jsonl": BEIR,
    "corpus.json": json.dumps([json.loads(line) for line in BEIR.splitlines()]),
    "docs.csv": "docno,title,text\nd1,Cats,They sleep.\nd2,,Dogs run.\n",
    "docs.tsv": "id\ttitle\ttext\nd1\tCats\tThey sleep.\nd2\t\tDogs run.\n",
    "collection.tsv": "d1\tCats\tThey sleep.\nd2\tDogs run.\n",
    "trec.txt": "<!-- 1 -->\n<DOC>\n<DOCNO> d1 </DOCNO>\n<TITLE>Cats</TITLE>\n<TEXT>\nThey\nsleep.\n</TEXT>\n</DOC>\n"
    "<DOC><DOCNO>d2</DOCNO><TEXT>Dogs run.</TEXT></DOC>",
}
TOPICS = """<top>
<num> Number: q1
<title> sleeping cats

<desc> Description:
What do cats do?
</top>
<top><num>q2</num><title>dogs</title></top>
"""


@pytest.mark.parametrize("name", FORMATS)
def test_documents_are_read_in_every_format(tmp_path, name):
    (tmp_path / name).write_text(FORMATS[name])
    found = read_texts([str(tmp_path / name)], "documents")
    assert found == EXPECTED
    assert found.passages() == ["Cats They sleep.", "Dogs run."]


def test_data_sets_are_collections(tmp_path):
    rows = [json.loads(line) for line in BEIR.splitlines()]
    Dataset.from_list(rows).save_to_disk(str(tmp_path / "corpus"))
    assert read_texts([str(tmp_path / "corpus")], "documents") == EXPECTED
    Dataset.from_list([{"query-id": "q1", "corpus-id": "d2", "score": 2}]).save_to_disk(str(tmp_path / "qrels"))
    assert read_judgements(str(tmp_path / "qrels"), ["q1"], ["d1", "d2"]).grades == {"q1": {"d2": 2}}


def test_text_after_a_sign_in_a_topic_of_trec_is_kept(tmp_path):
    topics = """<top>
<num> 1
<title> Number theory if a < b <desc> Description: x
</top>
<top><num>Number: 2</num><desc>Description: cats & <b>dogs</b> 1 <2</desc><narr>z</narr></top>"""
    (tmp_path / "topics.txt").write_text(topics)
    found = read_texts([str(tmp_path / "topics.txt")], "queries")
    assert found == Texts(["1", "2"], ["", ""], ["Number theory if a < b", "cats & dogs 1 <2"])


def test_columns_of_any_name_and_titles_that_are_numbers_are_read(tmp_path):
    columns = {"id": "part", "title": "year", "text": "body"}
    (tmp_path / "corpus.tsv").write_text("part\tyear\tbody\n1\t1984\tcats\n")
    (tmp_path / "corpus.json").write_text('[{"_id": "same", "part": 2, "year": 1985, "body": "dogs", "text": "x"}]')
    found = read_texts(
        [str(tmp_path / name) for name in ("corpus.tsv", "corpus.json")], "documents", "strict", columns
    )
    assert found == Texts(["1", "2"], ["1984", "1985"], ["cats", "dogs"])


def test_text_after_a_tag_and_a_sign_in_a_document_of_trec_is_kept(tmp_path):
    (tmp_path / "fbis.txt").write_text(
        "<DOC><DOCNO> F1 </DOCNO><HEADLINE><P>A title</P></HEADLINE>\n<!-- 7 --><TEXT>\nLanguage: "
        "<F P=105>English</F>\nCats sleep if a < b, and <B>dogs</B> run.\n</TEXT></DOC>"
    )
    texts = ["Language: English Cats sleep if a < b, and dogs run."]
    assert read_texts([str(tmp_path / "fbis.txt")], "documents") == Texts(["F1"], ["A title"], texts)


def test_a_text_file_is_a_document_with_its_name_as_id_as_in_an_index(tmp_path):
    (tmp_path / "a.txt").write_text("A cat\ta.\n\nIt sleeps.")
    (tmp_path / "b.md").write_text("<p>A cat</p>\n\nIt sleeps.")
    texts = read_texts([str(tmp_path)], "documents")
    assert texts.ids == [document.source for document in read_documents([str(tmp_path)], plain_text="file")]
    assert texts.texts == ["A cat\ta.\n\nIt sleeps.", "<p>A cat</p>\n\nIt sleeps."]


@pytest.mark.parametrize(
    ("name", "content"),
    [("topics.txt", TOPICS), ("queries.tsv", "q1\tsleeping cats\nq2\tdogs\n"),
     ("queries.jsonl", '{"_id": 1, "text": "sleeping cats"}\n{"_id": 2, "text": "dogs"}\n'),
     ("queries.tsv", "query-id\ttext\r\n1\tsleeping cats\r\n2\tdogs\r\n"),
     ("queries.jsonl", '{"_id": 1.0, "text": "sleeping cats"}\n{"_id": 2.0, "text": "dogs"}\n'),
     ("questions.jsonl", '{"id": "q1", "question": "sleeping cats"}\n{"id": "q2", "question": "dogs"}\n')],
)  # fmt: skip
def test_queries_are_read_in_every_format(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    found = read_texts([str(tmp_path / name)], "queries")
    assert found.texts == ["sleeping cats", "dogs"] and found.ids in (["q1", "q2"], ["1", "2"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("qrels.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td2\t1\n"),
        ("qrels.dev.tsv", "q1\td1\t2\nq1\td2\t0\nq2\td2\t1\n"),
        ("qrels.txt", "q1 0 d1 2\nq1 0 d2 -1\nq2 Q0 d2 1\n"),
        ("qrels.trec", "q1 0 d1 2\nq2 0 d2 1\nq1 0 d2 0\n"),
        ("qrels.csv", "query_id,doc_id,score\nq1,d1,2\nq1,d2,0\nq2,d2,1\n"),
        ("qrels.csv", 'query-id,corpus-id,score,note\r\nq1,d1,2,"good, I think"\r\nq1,d2,0,\r\nq2,d2,1,all of it\r\n'),
        ("qrels.csv", '"score";"corpus-id";"query-id"\n2;d1;q1\n0;d2;q1\n1;d2;q2\n'),
        ("qrels.tsv", "\tquery-id\titeration\tscore\tcorpus-id\n0\tq1\t0\t2\td1\n1\tq1\t0\t0\td2\n2\tq2\t0\t1\td2\n"),
        ("qrels.jsonl", '{"query-id": "q1", "corpus-id": "d1", "score": 2}\n{"qid": "q1", "docid": "d2", "rel": 0}\n'
         '{"query_id": "q2", "doc_id": "d2", "label": 1}\n'),
    ],
)  # fmt: skip
def test_judgements_are_read_in_every_format(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    found = read_judgements(str(tmp_path / name), ["q1", "q2"], ["d1", "d2"])
    assert found.grades == {"q1": {"d1": 2, "d2": 0}, "q2": {"d2": 1}}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("qrels.csv", 'query-id,corpus-id,score\nq 1,"d,1",1\nq 1,d 2,2\n'),
        ("qrels.csv", 'q 1,"d,1",1\nq 1,d 2,2\n'),
        ("qrels.tsv", "q 1\td,1\t1\nq 1\td 2\t2\n"),
    ],
)
def test_ids_of_a_table_may_have_spaces_and_commas(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    assert read_judgements(str(tmp_path / name), ["q 1"], ["d,1", "d 2"]).grades == {"q 1": {"d,1": 1, "d 2": 2}}


def test_queries_without_judgements_are_left_out_in_one_line(tmp_path, capsys):
    (tmp_path / "qrels.tsv").write_text("q1\td1\t1\nq2\td1\t0\n")
    found = read_judgements(str(tmp_path / "qrels.tsv"), ["q1", "q2", "q3"], ["d1"])
    assert list(found.grades) == ["q1"]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("left out 2 of 3 queries: ")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("qrels.jsonl", '{"qid": 1.0, "docid": 2.0, "rel": 1.0}\nno JSON\n{"qid": 1, "docid": 2, "rel": null}\n'),
        ("qrels.tsv", "qid\tdocid\trel\n1\t2\t1\n1\t2\n1\t2\t\n"),
        ("qrels.trec", "1 0 2 1\n1 0\n"),
    ],
)
def test_judgements_that_cannot_be_read_are_skipped(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    assert read_judgements(str(tmp_path / name), ["1"], ["2"], errors="skip").grades == {"1": {"2": 1}}


def test_documents_whose_id_is_taken_are_skipped_and_counted(tmp_path, capsys):
    (tmp_path / "corpus.jsonl").write_text(BEIR + BEIR)
    assert read_texts([str(tmp_path / "corpus.jsonl")], "documents", errors="skip") == EXPECTED
    assert "left out of the documents: the id is given twice (2)" in capsys.readouterr().out


def test_judgements_of_unknown_documents_are_skipped_and_counted(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("qrels.tsv").write_text("q1\td1\t1\nq1\td8\t1\nq1\td9\t1\n", encoding="utf-8")
    found = read_judgements("qrels.tsv", ["q1"], ["d1"], errors="skip")
    assert found.grades == {"q1": {"d1": 1}}
    assert "left out of the judgements of qrels.tsv: the document is not in --documents (2)" in capsys.readouterr().out
