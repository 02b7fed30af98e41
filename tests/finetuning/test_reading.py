"""Reading of files: tables, broken and compressed files, saved data sets, the Hub."""

import gzip
import json
import os
from unittest import mock

import datasets
import pandas
import pytest
from datasets import Dataset, DatasetDict
from tiny_models import LABELLED

from modeling_mybert import MyBertConfig
from mybert.artifacts.manifest import fingerprint, identity
from mybert.common.errors import UserError
from mybert.embedding.search import _arriving
from mybert.finetuning.run_data import load_data, new_task
from mybert.finetuning.settings import FinetuneSettings
from mybert.io.documents import read_documents
from mybert.io.files import zstd
from mybert.tasks.lines import read_lines
from mybert.tasks.reading import load_table, read_split
from mybert.tasks.text_classification import TextClassification
from mybert.tasks.token_classification import TokenClassification

TASK = TextClassification(TextClassification.Options.of(), MyBertConfig())
LINES = "".join(json.dumps({"text": f"word {i}", "label": "ab"[i % 2]}) + "\n" for i in range(2000)).encode()


@pytest.fixture
def write(tmp_path):
    """A function that writes a table and returns its path."""

    def table(name: str, content: str | bytes):
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / name

    return table


def read(path, kind=TextClassification) -> list[dict]:
    return read_split(str(path), kind(kind.Options.of(), MyBertConfig())).rows.to_list()


@pytest.mark.parametrize("last", ["with", "without"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_reader_has_the_same_lines(write, end, bom, last):
    """LF, CRLF and CR end a line; white space that `str.splitlines` takes for a line end is part of it."""
    texts = ["one", "tw\x0co", "thr\u2028ee", "fo\x85ur", "f\x1cive\x0b."]

    def written(name: str, lines: list[str]):
        return write(name, bom + end.join(lines) + (end if last == "with" else ""))

    for name, between in (("a.csv", ","), ("a.tsv", "\t")):
        path = written(name, [f"text{between}label", *(f"{text}{between}x" for text in texts)])
        split = load_table(str(path), TASK, "train")
        assert (split.rows["text"][:], split.numbers) == (texts, [1, 2, 3, 4, 5])
        assert [document.text for document in read_documents([str(path)])] == texts
    path = written("a.jsonl", [json.dumps({"text": text}, ensure_ascii=False) for text in texts])
    assert load_table(str(path), TASK, "train").rows["text"][:] == texts
    assert [document.line for document in read_documents([str(path)])] == [1, 2, 3, 4, 5]
    assert [line.row["text"] for some in read_lines(str(path), TASK, 2) for line in some] == texts
    for path in (written("a.txt", texts), written("a.md", texts)):
        assert [(line.number, line.row) for some in read_lines(str(path), TASK, 2) for line in some] == [
            (number, {"text": text}) for number, text in enumerate(texts)
        ]
        assert [document.text for document in read_documents([str(path)], plain_text="line")] == texts
    path = written("a.conll", [f"{text}\tX" for text in texts] + ["", "last\tX"])
    assert read(path, TokenClassification) == [
        {"tokens": texts, "tags": ["X"] * 5},
        {"tokens": ["last"], "tags": ["X"]},
    ]
    with mock.patch("sys.stdin", mock.Mock(buffer=written("queries", texts).open("rb"))):
        assert [query for some in _arriving() for query in some] == texts


def test_dates_in_json_stay_text(tmp_path):
    days = [{"when": "2020-01-01", "text": "a", "seen": ["2021-02-03"]}, {"when": "2020-01-02T03:04:05Z", "text": "b"}]
    lines = "\n\n".join(map(json.dumps, days))
    for name, content in (("a.jsonl", "\ufeff" + lines), ("a.json", json.dumps(days))):
        (tmp_path / name).write_text(content, encoding="utf-8")
        rows = load_table(str(tmp_path / name), TASK, split="train").rows
        assert rows.column_names[0] == "when"
        assert rows["when"] == [day["when"] for day in days]
        assert [seen for seen in rows["seen"] if seen] == [["2021-02-03"]]


ROW = b'{"text": "a"}\n'
BROKEN = {  # file, its content, and what the message says after its name
    "latin.jsonl": (LINES + b'{"text": "caf\xe9", "label": "a"}\n', ", line 2001: not UTF-8; save the file"),
    "latin.csv": (b"text,label\ncaf\xe9,a\n", ", line 2: not UTF-8; save the file as UTF-8"),
    "half.jsonl": (LINES + b'{"text": "\\ud800", "label": "a"}\n', ", line 2001: .* is half a surrogate pair"),
    "blank.jsonl": (b"\n\n", " holds no rows"),
    "list.json": (b'[{"text": "a", "label": "b"}, 7]', ", row 2: not an object .found int"),
    "cut.json": (b'[{"text": "a", "lab', ": not JSON .Unterminated string starting at character 16"),
    "comma.json": (b'[\n{"text": "a"},\n{"text": "b",}\n]', ": not JSON .* at line 3, character 1[34]"),
    "twice.jsonl": (ROW + b'{"text": "b", "text": "c"}\n', ", line 2: not JSON .'text' is given twice."),
    "twice.json": (b'[{"text": "b", "of": {"id": 1, "id": 2}}]', ": not JSON .'id' is given twice."),
    "comma.jsonl": (ROW + b'{"text": "b"\n', ", line 2: not JSON .* at character 13"),
    "ragged.csv": (b"text,label\na,b\nc,d,e\n", ", line 3: wrong number of columns .3, the header has 2"),
    "first.csv": (b"text,label\n" + b"a,b,1\n" * 3, ", line 2: wrong number of columns .3"),
    "last.csv": (b"text,label\n" + b"a,1,\n" * 3, ", line 2: wrong number of columns .3"),
    "lines.csv": (b'text,label\n"a\nb",1\n\nc\nd,0\n', ", line 5: wrong number of columns .1"),
    "names.tsv": (b"text\t\ttext\na\t0\tb\n", ": two columns are called 'text'"),
    "open.tsv": (b'text\tlabel\nfine\t1\n"bad start\t1\nfine\t0\n', ".* line 3: .*quote is not closed"),
    "after.tsv": (b'text\tlabel\nfine\t1\n"good" film\t1\n', '.* line 3: .*expected after .*"a ""b"" c"'),
    "rows.parquet": (b"PAR1", " cannot be read: .*Parquet"),
    "rows.parquet.gz": (b"", ": expected .*all but .parquet .*also .gz .*found .parquet.gz"),
    "rows.docx": (b"PK", ": expected .jsonl, .json, .csv, .tsv, .parquet, .xlsx .*found .docx"),
    "broken.xlsx": (b"PK", r".*\.csv"),
    "plain.jsonl.gz": (LINES, " is damaged"),
    "plain.jsonl.zst": (LINES, " is damaged"),
    "cut.jsonl.gz": (gzip.compress(LINES)[:-30], " is damaged"),
    "cut.jsonl.zst": (zstd.compress(LINES)[:-30], " is damaged"),
    "ragged.conll": (b"Ada NNP O\n\nsleeps VBZ\n", ", line 3: expected 3 columns as in the first line, found 2"),
    "empty.conll": (b"Ada\tO\nsleeps\t\n", ", line 2: expected 2 columns as in the first line, found 1"),
    "latin.conll": (b"Ada O\n\xff O\n", ", line 2: not UTF-8"),
    "cut.conll.gz": (gzip.compress(b"word O\n\n" * 5000)[:-30], " is damaged"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_with_the_place(write, name):
    content, message = BROKEN[name]
    with pytest.raises(UserError, match=f"{name}{message}"):
        read(write(name, content), TokenClassification if "conll" in name else TextClassification)


WRITTEN = b'text,label\n1984,007\n"a, ""b""",True\n3.50,\nNA,1e3\nNone,null\n'


@pytest.mark.parametrize(("compress", "suffix"), [(bytes, ""), (gzip.compress, ".gz"), (zstd.compress, ".zst")])
def test_compressed_files_are_read_and_values_of_a_table_are_text_as_written(write, compress, suffix):
    assert read(write(f"rows.jsonl{suffix}", compress(LINES))) == [json.loads(line) for line in LINES.splitlines()]
    rows = [("1984", "007"), ('a, "b"', "True"), ("3.50", ""), ("NA", "1e3"), ("None", "null")]
    expected = [{"text": text, "label": label} for text, label in rows]
    assert read(write(f"rows.csv{suffix}", compress(WRITTEN))) == expected


def test_a_split_of_a_saved_data_set_is_loaded_by_name(tmp_path):
    train, test = ([{"text": text, "label": "x"}] for text in ("one", "two"))
    splits = {"train": Dataset.from_list(train), "test": Dataset.from_list(test)}
    DatasetDict(splits).save_to_disk(tmp_path / "both")
    assert read_split(str(tmp_path / "both"), TASK, split="test").rows.to_list() == test
    with pytest.raises(
        UserError, match=r"both holds the splits train, test; name the folder of one, such as .*/train"
    ):
        read_split(str(tmp_path / "both"), TASK, split="validation")


def test_a_copy_of_a_data_set_on_the_hub_is_read_with_all_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    data, rows = tmp_path / "copy/data", [{"text": f"text {number}", "label": "ab"[number % 2]} for number in range(6)]
    data.mkdir(parents=True)
    (tmp_path / "copy/README.md").write_text("---\nlicense: mit\n---\n# Texts\n")
    files = {"train-00000-of-00002": rows[:2], "train-00001-of-00002": rows[2:4]}
    files["validation-00000-of-00001"] = rows[4:]
    for file, part in files.items():
        Dataset.from_list(part).to_parquet(data / f"{file}.parquet")
    name = str(tmp_path / "copy")
    assert load_table(name, TASK, "train").rows.to_list() == rows[:4]
    for asked, split in ((name, "validation"), (f"{name}::validation", "test")):
        assert load_table(asked, TASK, split).rows.to_list() == rows[4:]
        assert identity(asked)["sha256"] == fingerprint(name), "taken for a data set on the Hub by the model card"
    with pytest.raises(UserError, match=r"Unknown split \"test\".* Name it as \S+/copy::SPLIT"):
        load_table(name, TASK, "test")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty holds no file of a known format"):
        load_table(str(tmp_path / "empty"), TASK, "train")


def test_each_file_of_a_folder_of_texts_is_a_row(tmp_path, caplog):
    (tmp_path / "texts/more").mkdir(parents=True)
    texts = {"README.md": "# about", "a.txt": "one\n\ntwo", "more/test.md": "{}", "more/train.TXT": "three"}
    for name, text in texts.items():
        (tmp_path / "texts" / name).write_text(text, encoding="utf-8")
    rows = [{"text": text, "file": name} for name, text in texts.items()]
    name = str(tmp_path / "texts")
    for split in ("train", "test"):
        assert load_table(name, TASK, split).rows.to_list() == rows
    (tmp_path / "texts/blank.txt").write_text(" \n")
    (tmp_path / "texts/picture.png").write_bytes(b"\x00")
    assert load_table(name, TASK, "test").rows.to_list() == rows
    assert "left out 1 file without text" in caplog.text and "skipped 1 file of other formats (.png)" in caplog.text
    (tmp_path / "texts/old.txt").write_bytes(b"caf\xe9")
    with pytest.raises(UserError, match=r"old.txt: not UTF-8; save the file as UTF-8"):
        load_table(name, TASK, "test")


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("owner/name", ("owner/name", None, "test")),
        ("owner/name:config", ("owner/name", "config", "test")),
        ("owner/name:config:dev", ("owner/name", "config", "dev")),
        ("owner/name::dev", ("owner/name", None, "dev")),
    ],
)
def test_a_name_of_the_hub_may_have_a_configuration_and_a_split(monkeypatch, name, asked):
    rows = [{"text": "one", "label": "x"}]

    def load_dataset(path, config, split):
        assert (path, config, split) == asked
        return Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert read_split(name, TASK, split="test").rows.to_list() == rows


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_a_changed_file_with_the_same_time_is_read_again(tmp_path, name):
    for text in ("good", "evil"):
        content = json.dumps({"text": text, "label": "a"}) if name.endswith("l") else f"text,label\n{text},a\n"
        (tmp_path / name).write_text(content)
        os.utime(tmp_path / name, (10**9, 10**9))
        assert read(tmp_path / name) == [{"text": text, "label": "a"}]


@pytest.mark.parametrize(
    ("first", "last"), [({"label": 1}, {"label": 2.5}), ({"label": []}, {"label": ["a"]}), ({}, {"label": "a"})]
)
def test_a_column_may_get_its_type_from_the_last_row(tmp_path, first, last):
    rows = [{"text": "x" * 2000, **first}] * 6000 + [{"text": "y", **last}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = load_table(str(tmp_path / "rows.jsonl"), TASK, "train").rows
    assert (found[0]["label"], found[-1]["label"]) == (first.get("label"), last["label"])


def test_a_line_of_spaces_is_a_row_and_a_blank_line_is_not(write):
    path = write("rows.csv", 'text\na\n  \n"  "\nb\n\n')
    table = load_table(str(path), TASK, "train")
    assert table.rows["text"][:] == ["a", "  ", "  ", "b"] and table.numbers == [1, 2, 3, 4] and table.unit == "line"


@pytest.mark.parametrize(
    "content",
    [
        'text, label\n"a, b", x\nc, "y"\n',
        'text , label\n"a, b",x\nc,y\n',
        '"text", "label"\n"a, b", "x"\n\n"c", "y"\n',
        "text; label\na, b; x\nc; y\n",
        ',\ntext,label\n,\n"a, b",x\n , \nc,y\n,\n',  # blank rows of a spreadsheet
    ],
)
def test_spaces_beside_delimiters_and_rows_of_delimiters_are_left_out(write, content):
    assert read(write("rows.csv", content)) == [{"text": "a, b", "label": "x"}, {"text": "c", "label": "y"}]


@pytest.mark.parametrize("header", ["a fine film,1", "0,1", "This is a review.,good"])
def test_a_file_without_a_header_is_refused_with_a_remedy(write, header):
    path = write("rows.csv", f"{header}\na dull film,0\n")
    remedy = "name them by --columns text=COLUMN label=COLUMN, or add a line of names if the file has none"
    with pytest.raises(UserError, match=f"no column for 'text'.*no column for 'label'.*{remedy}"):
        read(path)


def test_excel_files_are_read(tmp_path):
    pytest.importorskip("openpyxl")
    frame = pandas.DataFrame({"text": ["a", "b"], "label": [1, 0], "day": pandas.to_datetime(["2020-01-01"] * 2)})
    frame.to_excel(tmp_path / "rows.xlsx", index=False)
    assert read(tmp_path / "rows.xlsx") == [{"text": "a", "label": "1"}, {"text": "b", "label": "0"}]
    blank = [[None] * 3, ["text", None, " label "], ["a", None, 1], ["", " ", None], ["b", None, 0], [None] * 3]
    pandas.DataFrame(blank).to_excel(tmp_path / "blank.xlsx", index=False, header=False)
    table = load_table(str(tmp_path / "blank.xlsx"), TASK, "train")
    assert table.rows[:] == {"text": ["a", "b"], "label": ["1", "0"]} and table.numbers == [2, 4]
    for table, message in (
        (frame.set_axis(["text", "text", "label"], axis=1), "two columns are called 'text'; rename one"),
        (frame.head(0), "rows.xlsx holds no rows"),
        (pandas.DataFrame(), "rows.xlsx holds no rows"),
    ):
        table.to_excel(tmp_path / "rows.xlsx", index=False)
        with pytest.raises(UserError, match=message):
            read(tmp_path / "rows.xlsx")


def test_without_openpyxl_the_message_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "rows.xlsx").write_bytes(b"PK")
    monkeypatch.setattr(pandas, "ExcelFile", mock.Mock(side_effect=ImportError("openpyxl")))
    with pytest.raises(UserError, match=r"rows.xlsx needs openpyxl: pip install 'mybert\[xlsx\]', or save the sheet"):
        read(tmp_path / "rows.xlsx")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'text;label\n"fine; really, yes";1\n'),
        ("a.csv", '\ufeff\n"text"|label\n"fine; really, yes"|1\n'),
        ("a.csv", "text\tlabel\nfine; really, yes\t1\n"),
        ("a.tsv", 'text,label\n"fine; really, yes",1\n'),
        ("a.csv", '\ufeffsep=;\r\ntext;label\r\n"fine; really, yes";1\r\n'),
        ("a.csv", '"sep=|"\ntext|label\nfine; really, yes|1\n'),
    ],
)
def test_the_delimiter_of_a_table_is_that_of_its_header(write, name, content):
    path = write(name, content)
    assert read(path) == [{"text": "fine; really, yes", "label": "1"}]
    assert [document.text for document in read_documents([str(path)])] == ["fine; really, yes"]


def test_the_delimiter_that_a_first_line_declares_decides_and_counts_as_a_line(write):
    path = write("a.csv", "sep=;\ntext,label;id\nfirst;1\nsecond\n")
    with pytest.raises(UserError, match="line 4: wrong number of columns"):
        list(read_documents([str(path)], text_column="text,label"))
    assert [d.text for d in read_documents([str(write("a.csv", "text\nfirst; second\n"))])] == ["first; second"]


@pytest.mark.parametrize("name", ["pairs", "tagger", "reader", "chooser"])
def test_columns_are_read_at_once(tiny_checkpoint, write_rows, monkeypatch, name):
    task, rows = LABELLED[name]
    train = str(write_rows("train.jsonl", rows * 9))
    settings = FinetuneSettings(task=task, model=str(tiny_checkpoint), train=train, output="out")
    refuse = mock.Mock(side_effect=AssertionError("row after row takes a hundred times as long"))
    monkeypatch.setattr(datasets.arrow_dataset.Column, "__iter__", refuse)
    load_data(settings, *new_task(settings), verbose=False)
