"""Tables (.csv, .tsv, .xlsx) and the kinds of their labels."""

import gzip
import importlib.util
import json
from unittest import mock

import pandas
import pytest
from datasets import Dataset

from modeling_mybert import MyBertConfig
from mybert.common.errors import UserError
from mybert.finetuning.data.dataset_loading import load_table, read_split
from mybert.finetuning.data.labels import MULTI, REGRESSION, SINGLE, find_problem, number, sort_labels
from mybert.finetuning.tasks.multiple_choice import MultipleChoice
from mybert.finetuning.tasks.text_classification import TextClassification
from mybert.io.documents import read_documents
from mybert.io.files import zstd

TASK = TextClassification(TextClassification.Options.of(), MyBertConfig())


@pytest.fixture
def write(tmp_path):
    """A function that writes a table and returns its path."""

    def table(name: str, content: str | bytes):
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / name

    return table


def read(path, kind=TextClassification) -> list[dict]:
    return read_split(str(path), kind(kind.Options.of(), MyBertConfig())).rows.to_list()


def results(folder) -> dict:
    return json.loads((folder / "results.json").read_text())


def test_values_of_a_table_are_text_as_written(write):
    content = 'text,label\n1984,007\n"a, ""b""",True\n3.50,\nNA,1e3\n'
    rows = [("1984", "007"), ('a, "b"', "True"), ("3.50", ""), ("NA", "1e3")]
    expected = [{"text": text, "label": label} for text, label in rows]
    assert read(write("rows.csv", content)) == expected
    assert read(write("rows.csv.gz", gzip.compress(content.encode()))) == expected
    assert read(write("rows.csv.zst", zstd.compress(content.encode()))) == expected


def test_values_of_a_large_table_are_text(write):
    labels = ["7"] * 10_000 + [""] * 10_000 + ["x"]  # `datasets` reads 10,000 rows at a time
    path = write("rows.csv", "text,label\n" + "".join(f"a,{label}\n" for label in labels))
    assert [row["label"] for row in read(path)] == labels


@pytest.mark.parametrize(("name", "delimiter"), [("rows.csv", ","), ("rows.tsv", "\t")])
def test_quotes_are_read_as_pandas_writes_them(tmp_path, name, delimiter):
    rows = [('"bad start', "1"), ("fine", "0"), ('end" here', "1"), ('"all of it"', "0"), ('a "b"\tc,\nd', "1")]
    frame = pandas.DataFrame(rows, columns=["text", "label"])
    frame.to_csv(tmp_path / name, sep=delimiter, index=False)
    assert [(row["text"], row["label"]) for row in read(tmp_path / name)] == rows


def test_a_quote_that_is_not_closed_is_refused_in_tsv_too(write):
    path = write("rows.tsv", 'text\tlabel\nfine\t1\n"bad start\t1\nfine\t0\n')
    with pytest.raises(UserError, match=r"rows.tsv.* line 3: .*quote is not closed"):
        read(path)
    path = write("rows.tsv", 'text\tlabel\nfine\t1\n"good" film\t1\nfine\t0\n')
    with pytest.raises(UserError, match=r'rows.tsv.* line 3: .*expected after .*"a ""b"" c"'):
        read(path)


@pytest.mark.parametrize(
    ("rows", "place", "found"),
    [
        ("a,b,1\n" * 3, "line 2", 3),  # pandas reads the first of them as the name of a row
        ("a,1,\n" * 3, "line 2", 3),
        ('"a\nb",1\n\nc\nd,0\n', "line 5", 1),  # pandas fills this one up
        ("a,1\nc,0,d\n", "line 3", 3),
    ],
)
def test_a_row_with_other_fields_than_the_header_is_refused(write, rows, place, found):
    path = write("rows.csv", f"text,label\n{rows}")
    with pytest.raises(UserError, match=f"rows.csv, {place}: wrong number of columns .{found}, the header has 2"):
        read(path)


def test_two_columns_of_one_name_are_refused(write):
    path = write("rows.csv", "text,,text\na,0,b\n")
    with pytest.raises(UserError, match=r"rows.csv: two columns are called 'text'"):
        read(path)


def test_a_line_of_spaces_is_a_row_and_a_blank_line_is_not(write):
    path = write("rows.csv", 'text\na\n  \n"  "\nb\n\n')
    table = load_table(str(path), TASK, "train")
    assert table.rows["text"][:] == ["a", "  ", "  ", "b"] and table.numbers == [1, 2, 3, 4] and table.unit == "line"


@pytest.mark.parametrize("header", ["a fine film,1", "0,1", "This is a review.,good"])
def test_a_file_without_a_header_is_warned_about_and_refused_with_a_remedy(write, caplog, header):
    path = write("rows.csv", f"{header}\na dull film,0\n")
    remedy = "name them by --columns text=COLUMN label=COLUMN, or add a line of names if the file has none"
    with pytest.raises(UserError, match=f"no column for 'text'.*no column for 'label'.*{remedy}"):
        read(path)
    assert "rows.csv: the first line is read as the names" in caplog.text


def test_excel_files_are_read_or_the_message_says_how(tmp_path):
    frame = pandas.DataFrame({"text": ["a", "b"], "label": [1, 0], "day": pandas.to_datetime(["2020-01-01"] * 2)})
    if importlib.util.find_spec("openpyxl"):
        frame.to_excel(tmp_path / "rows.xlsx", index=False)
        assert read(tmp_path / "rows.xlsx") == [{"text": "a", "label": "1"}, {"text": "b", "label": "0"}]
        frame.set_axis(["text", "text", "label"], axis=1).to_excel(tmp_path / "twice.xlsx", index=False)
        with pytest.raises(UserError, match=r"twice.xlsx: two columns are called 'text'; rename one"):
            read(tmp_path / "twice.xlsx")
        frame.head(0).to_excel(tmp_path / "none.xlsx", index=False)
        with pytest.raises(UserError, match=r"none.xlsx holds no rows"):
            read(tmp_path / "none.xlsx")
        pandas.DataFrame().to_excel(tmp_path / "empty.xlsx", index=False)
        with pytest.raises(UserError, match=r"empty.xlsx holds no rows"):
            read(tmp_path / "empty.xlsx")
    (tmp_path / "broken.xlsx").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"broken.xlsx.*\.csv"):
        read(tmp_path / "broken.xlsx")


def test_without_openpyxl_the_message_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "rows.xlsx").write_bytes(b"PK")
    monkeypatch.setattr(pandas, "ExcelFile", mock.Mock(side_effect=ImportError("openpyxl")))
    with pytest.raises(UserError, match=r"rows.xlsx needs openpyxl: pip install 'mybert\[xlsx\]', or save the sheet"):
        read(tmp_path / "rows.xlsx")


def test_a_blank_score_is_named_and_the_others_are_a_regression(finetune, write, tmp_path, capsys):
    train = write("train.csv", "text,score\ngood,3.5\nbad,\nfine,1.25\ndull,2\n")
    words = ("--train", train, "--validation", write("dev.csv", "text,score\ngood,3\nbad,1\nfine,2\n"))
    assert finetune("text-classification", *words) == 2
    assert "1 of 4 lines cannot be used: line 3: the label is missing" in capsys.readouterr().err
    assert finetune("text-classification", *words, "--errors", "skip", "--num-train-epochs", 1) == 0
    assert MyBertConfig.from_pretrained(tmp_path / "out").problem_type == "regression"
    found = results(tmp_path / "out")
    assert sum(found["data"]["train"]["balance"].values()) == 3
    assert found["validation"]["constant_baselines"]["mse"] == pytest.approx(2 / 3)  # of 3, 1 and 2, whose mean is 2


def test_a_word_among_scores_is_named_with_problem_regression(finetune, write, capsys):
    train = write("train.csv", "text,score\ngood,3.5\nbad,N/A\nfine,1.25\n")
    assert finetune("text-classification", "--train", train, "--problem", "regression") == 2
    assert "1 of 3 lines cannot be used: line 3: the label 'N/A' is not a number" in capsys.readouterr().err
    train = write("comma.csv", 'text,score\ngood,3.5\nbad,"2,5"\nfine,1.25\n')
    assert finetune("text-classification", "--train", train, "--problem", "regression") == 2
    assert "line 3: the label '2,5' is not a number (write 2.5)" in capsys.readouterr().err


def test_labels_do_not_depend_on_the_other_labels_of_a_file(finetune, write, tmp_path):
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
        ([3.5, 2.0, None, float("nan")], REGRESSION),
        (["1", "2"], SINGLE),
        (["007", "12"], SINGLE),
        (["3.5", "high"], SINGLE),
        (["1.2.3", "1.2.4"], SINGLE),
        (["inf", "0.5"], SINGLE),
        ([1, 2], SINGLE),
        (["1.0", "0.0", "1.0"], SINGLE),
        ([1.0, 0.0, None], SINGLE),
        ([["0.5"], []], MULTI),
        ([f"{i / 10}" for i in range(40)] + ["NaN"], REGRESSION),  # whose row is named then
    ],
)
def test_labels_define_the_problem(labels, problem):
    assert find_problem(labels).name == problem


def test_labels_with_decimal_commas_are_words_with_a_hint():
    assert find_problem(["3,5", "2,25", "-"]).reason == "because the labels are words (for numbers, write 3.5)"
    for labels in (["1,000", "2,500"], ["a,5", "b"], ["grain,wheat"]):
        assert find_problem(labels).reason == "because the labels are words"


@pytest.mark.parametrize("labels", [[1.5] + [1, 2] * 20, ["1.5"] + ["1", "2"] * 20])
def test_a_few_fractions_among_whole_numbers_are_refused_with_the_choices(labels):
    with pytest.raises(UserError, match=r"1 of 41 labels .*1\.5.*--problem regression or --problem single-label"):
        find_problem(labels)
    assert find_problem(labels, "regression").name == REGRESSION
    assert find_problem(labels, "single-label").name == SINGLE


def test_what_is_a_number():
    good = {"3.5": 3.5, " -2 ": -2, "1e3": 1000, 7: 7, 0.25: 0.25}
    assert {label: number(label) for label in good} == good
    assert not [
        label for label in ("", "x", "nan", "inf", "1,5", None, True, [1], 10**400) if number(label) is not None
    ]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["10", "9", "1"], ["1", "9", "10"]),
        ([10, 9, "1", 1], ["1", "9", "10"]),
        (["12", "-3", "007"], ["-3", "007", "12"]),
        (["10", "9", "x"], ["10", "9", "x"]),
        ([True, False], ["False", "True"]),
        ([1.0, "0.0", 2], ["0", "1", "2"]),
        (["9" * 5000, "1"], ["1", "9" * 5000]),
    ],
)
def test_whole_numbers_are_sorted_by_value(labels, names):
    assert sort_labels(labels) == names


def test_choices_of_a_table_may_be_numbers(write):
    path = write("rows.csv", "context,ending0,ending1,label\n2 + 2,4,5,0\n1 + 2,2,3,B\n2,1,2,\n")
    rows = Dataset.from_list(read(path, MultipleChoice))
    task = MultipleChoice(MultipleChoice.Options.of(), MyBertConfig())
    assert rows["choices"][:] == [["4", "5"], ["2", "3"], ["1", "2"]]
    assert [(problem.row, problem.message[:20]) for problem in task.check_rows(rows, True)] == [
        (2, "the label is missing")
    ]
    assert task.references(rows.select(range(2))) == [0, 1]


@pytest.mark.parametrize(("first", "last"), [(2000, 2004), (0, 1e-9), (1e6, 1e6 + 1), (0.1, 0.7)])
def test_parts_of_a_range_of_numbers_have_distinct_names(first, last):
    labels = [first + (last - first) * i / 4 for i in range(5)]
    rows = Dataset.from_dict({"text": ["x"] * 5, "label": labels})
    task = TextClassification(TextClassification.Options.of({"problem": "regression"}), MyBertConfig()).fitted(rows)
    balance = task.label_distribution(rows)
    assert len(balance) == 5 and sum(balance.values()) == 5
    ends = [end for name in balance for end in map(float, name.split(" to "))]
    assert ends == sorted(ends) and len(set(ends)) == 6


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'text;label\n"fine; really, yes";1\n'),
        ("a.csv", '\ufeff\n"text"|label\n"fine; really, yes"|1\n'),
        ("a.csv", "text\tlabel\nfine; really, yes\t1\n"),
        ("a.tsv", 'text,label\n"fine; really, yes",1\n'),
    ],
)
def test_the_delimiter_of_a_table_is_that_of_its_header(write, name, content):
    path = write(name, content)
    assert read(path) == [{"text": "fine; really, yes", "label": "1"}]
    assert [document.text for document in read_documents([str(path)])] == ["fine; really, yes"]


def test_one_column_of_texts_with_semicolons_is_a_table(write):
    assert [d.text for d in read_documents([str(write("a.csv", "text\nfirst; second\n"))])] == ["first; second"]
