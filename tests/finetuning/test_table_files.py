"""Tables: what stands in .csv and .tsv is text as it is spelt, and labels mean the same in every file."""

import csv
import gzip
import json

import pandas
import pytest
import zstandard
from datasets import Dataset

from modeling_mybert import MyBertConfig
from mybert.common.errors import UserError
from mybert.corpus.text.sources import read_documents
from mybert.finetuning.data.dataset_loading import read_split, read_table
from mybert.finetuning.data.labels import are_fractions, number, sort_labels
from mybert.finetuning.settings import TaskSettings
from mybert.finetuning.tasks.multiple_choice import MultipleChoice
from mybert.finetuning.tasks.text_classification import MULTI, REGRESSION, SINGLE, TextClassification


@pytest.fixture
def write(tmp_path):
    """A function that writes a table and returns its path."""

    def table(name: str, content: str | bytes):
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / name

    return table


def read(path, kind=TextClassification) -> list[dict]:
    return read_split(str(path), kind(TaskSettings(), MyBertConfig())).rows.to_list()


def results(folder) -> dict:
    return json.loads((folder / "results.json").read_text())


def test_what_stands_in_a_table_is_text_as_it_is_spelt(write):
    content = 'text,label\n1984,007\n"a, ""b""",True\n3.50,\nNA,1e3\n'
    rows = [("1984", "007"), ('a, "b"', "True"), ("3.50", ""), ("NA", "1e3")]
    expected = [{"text": text, "label": label} for text, label in rows]
    assert read(write("rows.csv", content)) == expected
    assert read(write("rows.csv.gz", gzip.compress(content.encode()))) == expected
    assert read(write("rows.csv.zst", zstandard.compress(content.encode()))) == expected


def test_every_field_of_a_large_table_is_text_wherever_it_stands(write):
    labels = ["7"] * 10_000 + [""] * 10_000 + ["x"]  # `datasets` reads 10,000 rows at a time
    path = write("rows.csv", "text,label\n" + "".join(f"a,{label}\n" for label in labels))
    assert [row["label"] for row in read(path)] == labels


def test_quotes_in_tsv_are_characters_and_swallow_no_row(write):
    rows = [('"bad start', "1"), ("fine", "0"), ('end" here', "1"), ('"all of it"', "0"), ('a "b" c', "1")]
    path = write("rows.tsv", "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    assert [(row["text"], row["label"]) for row in read(path)] == rows
    oracle = pandas.read_csv(path, sep="\t", dtype=str, quoting=csv.QUOTE_NONE)
    assert list(oracle.itertuples(index=False, name=None)) == rows


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,b,1\n" * 3, "line 2 has 3 fields"),  # pandas takes the first of them for a row's name
        ("a,1,\n" * 3, "line 2 has 3 fields"),
        ('"a\nb",1\n\nc\nd,0\n', "line 5 has 1 fields"),  # and fills this one up
        ("a,1\nc,0,d\n", "line 3 has 3 fields"),
    ],
)
def test_a_row_with_other_fields_than_the_first_line_has_names_is_refused(write, rows, message):
    path = write("rows.csv", f"text,label\n{rows}")
    with pytest.raises(UserError, match=f"rows.csv: {message}, the first line 2 names; correct one"):
        read(path)


def test_two_columns_of_one_name_are_refused(write):
    path = write("rows.csv", "text,,text\na,0,b\n")
    with pytest.raises(UserError, match=r"rows.csv: two columns are called 'text'; rename one"):
        read(path)


def test_a_line_of_spaces_is_not_passed_over(write):
    path = write("rows.csv", "text\na\n  \nb\n\n")  # as pandas does, and then no prediction stands in its line
    with pytest.raises(UserError, match=r"rows.csv: 1 rows are spaces alone; put these between quotes"):
        read_table(str(path), TextClassification(TaskSettings(), MyBertConfig()), "train")
    path = write("quoted.csv", 'text\na\n"  "\nb\n\n')
    table = read_table(str(path), TextClassification(TaskSettings(), MyBertConfig()), "train").rows
    assert table["text"][:] == ["a", "  ", "b"]


def test_a_blank_score_is_named_and_leaves_the_others_a_regression(finetune, write, tmp_path, capsys):
    train = write("train.csv", "text,score\ngood,3.5\nbad,\nfine,1.25\ndull,2\n")
    words = ("--train", train, "--validation", write("dev.csv", "text,score\ngood,3\nbad,1\nfine,2\n"))
    assert finetune("text-classification", *words) == 2
    assert "1 of 4 rows cannot be used: row 2: the label '' is not a number" in capsys.readouterr().err
    assert finetune("text-classification", *words, "--errors", "skip", "--num-train-epochs", 1) == 0
    assert MyBertConfig.from_pretrained(tmp_path / "out").problem_type == "regression"
    found = results(tmp_path / "out")
    assert sum(found["data"]["train"]["balance"].values()) == 3
    assert found["validation"]["constant_baselines"]["mse"] == pytest.approx(2 / 3)  # of 3, 1 and 2, whose mean is 2


def test_a_word_among_scores_is_named_if_they_are_said_to_be_scores(finetune, write, capsys):
    train = write("train.csv", "text,score\ngood,3.5\nbad,N/A\nfine,1.25\n")
    assert finetune("text-classification", "--train", train, "--problem", "regression") == 2
    assert "1 of 3 rows cannot be used: row 2: the label 'N/A' is not a number" in capsys.readouterr().err


def test_labels_of_one_file_are_those_of_another_whatever_else_it_holds(finetune, write, tmp_path):
    train = write("train.csv", "text,label\ngood,True\nbad,False\ndull,Unsure\nfine,True\n")
    test = write("test.csv", "text,label\ngood,True\nbad,False\n")
    words = ("--train", train, "--test", test, "--num-train-epochs", 1)
    assert finetune("text-classification", *words) == 0
    assert results(tmp_path / "out")["data"]["test"]["balance"] == {"True": 1, "False": 1}
    assert MyBertConfig.from_pretrained(tmp_path / "out").id2label == {0: "False", 1: "True", 2: "Unsure"}


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (["3.5", "2"], REGRESSION),
        (["3.5", "", "2"], REGRESSION),
        ([3.5, 2.0], REGRESSION),
        (["1", "2"], SINGLE),
        (["007", "12"], SINGLE),
        (["3.5", "high"], SINGLE),
        (["1.2.3", "1.2.4"], SINGLE),
        (["inf", "0.5"], SINGLE),
        ([1, 2], SINGLE),
        (["1.0", "0.0", "1.0"], SINGLE),  # whole numbers of a table that had a gap
        ([["0.5"], []], MULTI),
    ],
)
def test_labels_say_which_problem_they_are(labels, problem):
    rows = Dataset.from_dict({"text": ["x"] * len(labels), "label": labels})
    task = TextClassification(TaskSettings(), MyBertConfig())
    task.configure(rows.filter(lambda row: row["label"] != ""))
    assert task.config.problem_type == problem


def test_a_few_words_among_numbers_with_fractions_are_asked_about():
    rows = Dataset.from_dict({"text": ["x"] * 41, "label": [f"{i / 10}" for i in range(40)] + ["NaN"]})
    with pytest.raises(
        UserError, match=r"1 of 41 labels are no numbers, such as 'NaN'.*--problem regression or single"
    ):
        TextClassification(TaskSettings(), MyBertConfig()).configure(rows)


def test_what_is_a_number():
    good = {"3.5": 3.5, " -2 ": -2, "1e3": 1000, 7: 7, 0.25: 0.25}
    assert {label: number(label) for label in good} == good
    assert not [
        label for label in ("", "x", "nan", "inf", "1,5", None, True, [1], 10**400) if number(label) is not None
    ]
    assert not are_fractions([]) and not are_fractions(["1", "2"])


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["10", "9", "1"], ["1", "9", "10"]),
        ([10, 9, "1", 1], ["1", "9", "10"]),
        (["12", "-3", "007"], ["-3", "007", "12"]),
        (["10", "9", "x"], ["10", "9", "x"]),
        ([True, False], ["false", "true"]),
        (["9" * 5000, "1"], ["1", "9" * 5000]),
    ],
)
def test_labels_that_are_whole_numbers_lie_in_their_order(labels, names):
    assert sort_labels(labels) == names


def test_choices_of_a_table_may_be_numbers(write):
    path = write("rows.csv", "context,ending0,ending1,label\n2 + 2,4,5,0\n1 + 2,2,3,B\n2,1,2,\n")
    rows = Dataset.from_list(read(path, MultipleChoice))
    task = MultipleChoice(TaskSettings(), MyBertConfig())
    assert rows["choices"][:] == [["4", "5"], ["2", "3"], ["1", "2"]]
    assert [(problem.row, problem.message[:20]) for problem in task.check_rows(rows, True)] == [
        (2, "the label is missing")
    ]
    assert task.references(rows.select(range(2))) == [0, 1]


@pytest.mark.parametrize(("first", "last"), [(2000, 2004), (0, 1e-9), (1e6, 1e6 + 1), (0.1, 0.7)])
def test_parts_of_a_range_of_numbers_have_names_of_their_own(first, last):
    labels = [first + (last - first) * i / 4 for i in range(5)]
    rows = Dataset.from_dict({"text": ["x"] * 5, "label": labels})
    task = TextClassification(TaskSettings(), MyBertConfig())
    task.configure(rows)
    balance = task.label_distribution(rows)
    assert len(balance) == 5 and sum(balance.values()) == 5
    ends = [end for name in balance for end in map(float, name.split(" to "))]
    assert ends == sorted(ends) and len(set(ends)) == 6


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", "text;label\nfine, really;1\n"), ("a.csv", "text\tlabel\n"), ("a.tsv", "text,label\n")],
)
def test_a_table_whose_columns_are_separated_by_something_else_is_refused_by_its_header(write, name, content):
    path = write(name, content)
    with pytest.raises(UserError, match=r"a\.[ct]sv.*line 1.*one column, .*separated by commas in \.csv and by tabs"):
        read(path)
    with pytest.raises(UserError, match=r"line 1.*separated by commas"):
        list(read_documents([str(path)]))


def test_one_column_of_texts_with_semicolons_is_a_table(write):
    assert [d.text for d in read_documents([str(write("a.csv", "text\nfirst; second\n"))])] == ["first; second"]
