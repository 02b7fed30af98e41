"""Reading of files: tables, compressed files, saved data sets, the Hub."""

import gzip
import json
import os
from unittest import mock

import datasets
import pandas
import pytest
from datasets import Dataset, DatasetDict
from new_tasks import task_of
from tiny_models import LABELLED

from mybert.artifacts.manifest import fingerprint, identity
from mybert.common.errors import UserError
from mybert.embedding.search import _arriving
from mybert.finetuning.run_data import load_data, new_task
from mybert.finetuning.settings import FinetuneSettings
from mybert.io.documents import read_documents
from mybert.io.files import zstd
from mybert.tasks.lines import read_lines
from mybert.tasks.reading import load_table, read_split

TASK = task_of()
LINES = "".join(json.dumps({"text": f"word {i}", "label": "ab"[i % 2]}) + "\n" for i in range(2000)).encode()


@pytest.fixture
def write(tmp_path):
    """A function that writes a table and returns its path."""

    def table(name: str, content: str | bytes):
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / name

    return table


def read(path, task=TASK) -> list[dict]:
    return read_split(str(path), task).rows.to_list()


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
    assert read(path, task_of("token-classification")) == [
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
    with pytest.raises(UserError, match=f"{name}::SPLIT"):
        load_table(name, TASK, "test")


def test_each_file_of_a_folder_of_texts_is_a_row(tmp_path, caplog):
    (tmp_path / "texts/more").mkdir(parents=True)
    texts = {"README.md": "# about", "a.txt": "one\n\ntwo", "more/test.md": "{}", "more/train.TXT": "three"}
    for name, text in texts.items():
        (tmp_path / "texts" / name).write_text(text, encoding="utf-8")
    rows = [{"text": text, "file": name} for name, text in texts.items()]
    name = str(tmp_path / "texts")
    for split in ("train", "test"):
        assert load_table(name, TASK, split).rows.to_list() == rows
    named = load_table(name, task_of(columns=["text=review"]), "train").rows
    assert named.to_list() == [{"review": row["text"], "file": row["file"]} for row in rows]
    (tmp_path / "texts/blank.txt").write_text(" \n")
    (tmp_path / "texts/picture.png").write_bytes(b"\x00")
    assert load_table(name, TASK, "test").rows.to_list() == rows
    assert "left out 1 file without text" in caplog.text and "skipped 1 file of other formats (.png)" in caplog.text


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


def test_excel_files_are_read(tmp_path):
    pytest.importorskip("openpyxl")
    frame = pandas.DataFrame({"text": ["a", "b"], "label": [1, 0], "day": pandas.to_datetime(["2020-01-01"] * 2)})
    frame.to_excel(tmp_path / "rows.xlsx", index=False)
    assert read(tmp_path / "rows.xlsx") == [{"text": "a", "label": "1"}, {"text": "b", "label": "0"}]
    blank = [[None] * 3, ["text", None, " label "], ["a", None, 1], ["", " ", None], ["b", None, 0], [None] * 3]
    pandas.DataFrame(blank).to_excel(tmp_path / "blank.xlsx", index=False, header=False)
    table = load_table(str(tmp_path / "blank.xlsx"), TASK, "train")
    assert table.rows[:] == {"text": ["a", "b"], "label": ["1", "0"]} and table.numbers == [2, 4]


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
    with pytest.raises(UserError, match="line 4: "):
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
