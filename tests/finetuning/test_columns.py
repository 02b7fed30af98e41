"""Files of one word per line: which column holds the words and which the tags, comments, sentences, options."""

import functools
import random

import pytest
from new_tasks import task_of

from mybert.common.errors import UserError
from mybert.rows.conll import read_columns
from mybert.tasks.reading import read_split

WORDS = ["Die", "FC", "Bayern", "1", "2", "10\u00a0000", "U.S.", "#tag", "O'Neill", '"', ",", "-", "東京"]
TAGS = ["O", "O", "O", "B-ORG", "I-ORG", "B-LOC"]
task = functools.partial(task_of, "token-classification")


@pytest.mark.parametrize(("name", "content"), [("a.conll", "a\tO\n"), ("a.jsonl", '{"tokens": ["a"], "tags": ["O"]}')])
def test_a_role_that_the_task_does_not_have_is_refused(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match="--columns wrod=1: token-classification has the columns tokens, tags, text"):
        read_split(str(tmp_path / name), task(columns=["wrod=1"]))


def sentences(seed: int, count: int = 30) -> list[tuple[list[str], list[str]]]:
    draw = random.Random(seed)
    lengths = [draw.randint(1, 9) for _ in range(count)]
    return [(draw.choices(WORDS, k=n), draw.choices(TAGS, k=n)) for n in lengths]


def pos(word: str) -> str:
    return "NOUN" if word.isalpha() else "PUNCT"


def conll_u(found):
    for number, (words, _) in enumerate(found, 1):
        yield f"# sent_id = {number}"
        yield f"# text = {' '.join(words)}"
        for i, word in enumerate(words, 1):
            if i % 3 == 1 and i < len(words):
                yield f"{i}-{i + 1}\tboth\t" + "\t".join("_" * 8)
            yield f"{i}\t{word}\tlemma\t{pos(word)}\tX\t_\t{i - 1}\tdep\t_\tSpaceAfter=No"
            if i % 4 == 0:
                yield f"{i}.1\tempty\tlemma\tVERB\tX\t_\t_\t_\t0:dep\t_"
        yield ""


def conll_2012(found):
    yield "#begin document (nw/x/00/x_0000); part 000"
    for words, tags in found:
        rows = [*zip(words, tags, strict=True)]
        for i, (word, tag) in enumerate(rows):
            ends = i + 1 == len(rows) or rows[i + 1][1][0] != "I" or rows[i + 1][1][2:] != tag[2:]
            begins = tag[0] == "B" or (tag[0] == "I" and (i == 0 or rows[i - 1][1][2:] != tag[2:]))
            if tag == "O":
                bracket = "*"
            elif begins:
                bracket = f"({tag[2:]})" if ends else f"({tag[2:]}*"
            else:
                bracket = "*)" if ends else "*"
            yield f"nw/x/00/x_0000  0  {i}  {word}  {pos(word)}  (NP*  -  -  -  Sp#1  {bracket}  (A0*  (V*)  -"
        yield ""
    yield "#end document"


FORMATS = {  # begin of the file and of a sentence, a word, and the end of a sentence
    "GermEval": ("", "#\thttp://example.org/page.html [2010-02-03]\n", "{i}\t{word}\t{tag}\t{inner}\n", "\n"),
    "CoNLL-2003": ("-DOCSTART- -X- -X- O\n\n", "", "{word} {pos} {chunk} {tag}\n", "\n"),
    "MultiCoNER": ("", "# id 5239d808-{n}\tdomain=en\n", "{word} _ _ {tag}\n", "\n"),
    "header": ("Token\tPOS\tNER\n", "", "{word}\t{pos}\t{tag}\n", "\n"),
    "numbered sentences": ("", "", "{n}\t{word}\t{tag}\n", ""),
    "numbered words": ("", "", "{i}\t{word}\t{tag}\n", ""),
    "named sentences": ("", "", "doc.{n} {i} {word} {tag}\n", ""),
    "sentence and word": ("", "", "{n} {zero} {word} {tag}\n", "\n"),
}


def written(form: str, found) -> str:
    """The sentences in one of `FORMATS`."""
    begin, start, line, end = FORMATS[form]
    text = begin
    for n, (words, tags) in enumerate(found, 1):
        text += start.format(n=n)
        for i, (word, tag) in enumerate(zip(words, tags, strict=True), 1):
            inner = "B-LOC" if tag == "I-ORG" and i % 2 else "O"  # inside of an organisation
            chunk = "B-NP" if i % 4 == 1 else "I-NP"
            text += line.format(n=n, i=i, zero=i - 1, word=word, tag=tag, pos=pos(word), inner=inner, chunk=chunk)
        text += end
    return text


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_words_and_tags_of_every_format(tmp_path, form, end):
    expected = [*sentences(len(end)), (["Die"], ["B-ORG"])]
    path = tmp_path / "train.conll"
    path.write_text(written(form, expected).replace("\n", end), encoding="utf-8", newline="")
    rows, lines, note = read_columns(path)
    assert [(row["tokens"], row["tags"]) for row in rows] == expected
    text = path.read_text(encoding="utf-8").split("\n")
    for (words, _), places in zip(expected, lines, strict=True):
        assert all(word in text[place] for word, place in zip(words, places, strict=True))
    assert note


def test_multiword_tokens_and_empty_nodes_of_conll_u_are_left_out(tmp_path):
    expected = sentences(0)
    path = tmp_path / "train.conllu"
    path.write_text("\n".join(conll_u(expected)), encoding="utf-8")
    rows, _, note = read_columns(path)
    assert [(row["tokens"], row["tags"]) for row in rows] == [(words, [*map(pos, words)]) for words, _ in expected]
    assert "word = 2 (form), tag = 4 (upos) of 10" in note
    for given in ("5", "xpos", "XPOS"):
        assert {*read_columns(path, {"tags": given}).rows["tags"][0]} == {"X"}


def test_brackets_of_conll_2012_are_iob2(tmp_path):
    expected = sentences(0)
    path = tmp_path / "x.gold_conll"
    path.write_text("\n".join(conll_2012(expected)), encoding="utf-8")
    rows, _, note = read_columns(path)
    assert "word = 4 (word), tag = 11 (ner)" in note
    for row, (words, tags) in zip(rows, expected, strict=True):
        before = ["O", *tags]
        iob2 = [f"B{t[1:]}" if t[0] == "I" and b[2:] != t[2:] else t for b, t in zip(before, tags, strict=False)]
        assert (row["tokens"], row["tags"]) == (words, iob2)


@pytest.mark.parametrize(
    ("text", "tokens", "tags"),
    [
        ("New York\tB-LOC\n", ["New York"], ["B-LOC"]),
        ("#tag\tO\n#\tO\nRome\tB-LOC\n", ["#tag", "#", "Rome"], ["O", "O", "B-LOC"]),
        ("# sent 1\nRome B-LOC\nis O\n\n# x\n", ["Rome", "is"], ["B-LOC", "O"]),  # a comment of two fields
        ("## sentence 1 ##\nRome B-LOC\n", ["Rome"], ["B-LOC"]),
        ("# = O\nRome B-LOC\n", ["Rome"], ["B-LOC"]),
        ("Rome\tB-LOC\t\nis\tO\t\n", ["Rome", "is"], ["B-LOC", "O"]),
        ("Rome  \t B-LOC\nis O\n", ["Rome", "is"], ["B-LOC", "O"]),
        ("# global.columns = ID FORM UPOS\n1\tRome\tPROPN\n2\tis\tAUX\n", ["Rome", "is"], ["PROPN", "AUX"]),
        ("3 CD O\n- HYPH O\n4 CD O\n", ["3", "-", "4"], ["O", "O", "O"]),
        ("1\tRome\tO\tO\n2\tis\tO\tO\n", ["Rome", "is"], ["O", "O"]),
        ("1 Ann B-NP B-PER\n2 sings B-VP O\n3 well B-ADVP O\n", ["Ann", "sings", "well"], ["B-PER", "O", "O"]),
        ("1 Ann NNP O\n2 sings VBZ O\n", ["Ann", "sings"], ["O", "O"]),
        ("A B-X B-Y\nb I-X O\nc O O\nd B-Y O\n", [*"Abcd"], ["B-X", "I-X", "O", "B-Y"]),  # nested, not numbered
        ("EU NNP B-NP O\nsays VBZ B-VP O\n", ["EU", "says"], ["O", "O"]),  # no entity in the file
    ],
)
def test_words_are_told_from_numbers_comments_and_other_columns(tmp_path, text, tokens, tags):
    path = tmp_path / "a.conll"
    path.write_text(text)
    assert read_columns(path).rows.to_list() == [{"tokens": tokens, "tags": tags}]


@pytest.mark.parametrize("text", ["1\tAnn\n2\tsings\n\n1\tBo\n", "id\tword\n1\tAnn\n2\tsings\n1\tBo\n"])
def test_a_running_number_is_no_word_in_files_without_tags(tmp_path, text):
    path = tmp_path / "a.tsv"
    path.write_text(text)
    assert read_split(str(path), task(), labelled=False).rows["tokens"][:] == [["Ann", "sings"], ["Bo"]]


@pytest.mark.parametrize("name", ["document", "doc_id", "File"])
def test_sentences_that_are_numbered_in_documents_are_not_joined(tmp_path, name):
    lines = [f"{name},sentence,word,tag", "a,1,Ann,B-PER", "a,1,ran,O", "b,1,Bo,B-PER", "b,2,sat,O", "c,2,x,O"]
    (tmp_path / "train.csv").write_text("\n".join(lines))
    assert read_split(str(tmp_path / "train.csv"), task()).rows["tokens"][:] == [
        ["Ann", "ran"],
        ["Bo"],
        ["sat"],
        ["x"],
    ]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_table_may_have_a_word_in_each_row(tmp_path, separator, suffix):
    rows = [
        ["Sentence #", "Word", "POS", "Tag"],
        ["Sentence: 1", "London", "NNP", "B-geo"],
        ["", separator.strip() or ",", "X", "O"],
        ["", '"' if separator != "\t" else "'", "X", "O"],
        ["Sentence: 2", "Iran", "NNP", "B-gpe"],
    ]
    quote = lambda cell: '"' + cell.replace('"', '""') + '"' if cell in (",", ";", '"') else cell  # noqa: E731
    path = tmp_path / f"ner.{suffix}"
    path.write_text("".join(separator.join(quote(c) if separator != "\t" else c for c in row) + "\n" for row in rows))
    split = read_split(str(path), task())
    words = [row[1] for row in rows[1:]]
    assert split.rows.to_list() == [
        {"tokens": words[:3], "tags": ["B-geo", "O", "O"]},
        {"tokens": words[3:], "tags": ["B-gpe"]},
    ]
    assert split.numbers == [1, 4] and "word = 2 (Word), tag = 4 (Tag) of 4" in split.describe_columns()[0]
    for given in (["word=2", "tag=3"], ["word=Word", "tag=POS"], ["tokens=word", "tags=pos"]):
        assert read_split(str(path), task(columns=given)).rows["tags"][:] == [["NNP", "X", "X"], ["NNP"]]


def test_columns_are_chosen_by_number(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("a b c d\ne f g h\n\n")
    split = read_split(str(path), task(columns=["word=2", "tag=3"]))
    assert split.rows.to_list() == [{"tokens": ["b", "f"], "tags": ["c", "g"]}]
    assert split.describe_columns() == [
        f"columns of {path}: word = 2, tag = 3 of 4; --columns word=NUMBER tag=NUMBER chooses others"
    ]
    path.write_text("a b c d\ne f g\n")  # lines may be longer or shorter than the columns that are read
    assert read_columns(path, {"tokens": "2", "tags": "3"}).rows["tags"][0] == ["c", "g"]


@pytest.mark.parametrize("scheme", ["B-X O I-X", "S-X O B-X", "X_B O X_I"])
def test_tags_before_words_are_read_as_tags_and_this_is_said(tmp_path, scheme):
    rows = [list(zip(scheme.split(), words.split(), strict=True)) for words in ("Ann sees Bo", "I and O")]
    (tmp_path / "a.conll").write_text("\n\n".join("\n".join(map(" ".join, row)) for row in rows))
    found = read_columns(tmp_path / "a.conll")
    assert found.rows["tokens"][:] == [["Ann", "sees", "Bo"], ["I", "and", "O"]]
    assert found.rows["tags"][:] == [scheme.split()] * 2 and "word = 2, tag = 1 of 2" in found.note


def test_numbers_of_columns_leave_other_files_alone(write_rows, tmp_path):
    """A checkpoint stores them, and reads JSON, texts and other files afterwards."""
    chosen = task(columns=["word=2", "tag=3"])
    rows = [{"tokens": ["Ann"], "tags": ["B-PER"]}]
    assert read_split(str(write_rows("a.jsonl", rows)), chosen).rows.to_list() == rows
    assert chosen.plain_row("Ann sings") == {"text": "Ann sings"}
    path = tmp_path / "a.conll"
    path.write_text("1 Ann B-PER\n")
    assert read_split(str(path), chosen).rows.to_list() == rows
    path.write_text("Ann B-PER\n")
    named = task(columns=["tokens=form"])  # a file without a header has no names
    assert read_split(str(path), named).rows.to_list() == rows


def test_other_columns_of_tags_are_named(write_rows):
    row = {"tokens": ["Ann"], "pos_tags": ["NNP"], "ner_tags": ["B-PER"]}
    split = read_split(str(path := write_rows("a.jsonl", [row])), task())
    assert split.rows.to_list() == [{"tokens": ["Ann"], "tags": ["B-PER"]}]
    assert split.describe_columns() == [
        f"columns of {path}: tokens = tokens, tags = ner_tags; --columns chooses others, such as pos_tags"
    ]
    chosen = read_split(str(path), task(columns=["tag=pos_tags"]))
    assert chosen.rows.to_list() == [{"tokens": ["Ann"], "tags": ["NNP"]}]


def test_a_file_without_ends_of_sentences_is_told_so(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("Ann B-PER\n" * 1001)
    assert "no blank line ends a sentence, so all 1,001 words are one" in read_columns(path).note
