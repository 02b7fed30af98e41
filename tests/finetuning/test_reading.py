"""Reading of files: broken and compressed files, saved data sets, the Hub."""

import gzip
import json
import os

import datasets
import pytest
from datasets import Dataset, DatasetDict

from modeling_mybert import MyBertConfig
from mybert.common.errors import UserError
from mybert.finetuning.data.dataset_loading import load_table, read_split
from mybert.finetuning.tasks.text_classification import TextClassification
from mybert.finetuning.tasks.token_classification import TokenClassification
from mybert.io.files import zstd

TASK = TextClassification(TextClassification.Options.of(), MyBertConfig())
LINES = "".join(json.dumps({"text": f"word {i}", "label": "ab"[i % 2]}) + "\n" for i in range(2000)).encode()


def read(path, kind=TextClassification) -> list[dict]:
    return read_split(str(path), kind(kind.Options.of(), MyBertConfig())).rows.to_list()


def test_dates_in_json_stay_text(tmp_path):
    days = [{"when": "2020-01-01", "text": "a", "seen": ["2021-02-03"]}, {"when": "2020-01-02T03:04:05Z", "text": "b"}]
    lines = "\n\n".join(map(json.dumps, days))
    for name, content in (("a.jsonl", "\ufeff" + lines), ("a.json", json.dumps(days))):
        (tmp_path / name).write_text(content, encoding="utf-8")
        rows = load_table(str(tmp_path / name), TASK, split="train").rows
        assert rows.column_names[0] == "when"
        assert rows["when"] == [day["when"] for day in days]
        assert [seen for seen in rows["seen"] if seen] == [["2021-02-03"]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("latin.jsonl", LINES + b'{"text": "caf\xe9", "label": "a"}\n', ", line 2001: not UTF-8"),
        ("latin.csv", b"text,label\ncaf\xe9,a\n", ", line 2: not UTF-8"),
        ("half.jsonl", LINES + b'{"text": "\\ud800", "label": "a"}\n', ", line 2001: .* is half a surrogate pair"),
        ("blank.jsonl", b"\n\n", " holds no rows"),
        ("list.json", b'[{"text": "a", "label": "b"}, 7]', ", row 2: not an object .found int"),
        ("cut.json", b'[{"text": "a", "lab', ": not JSON .Unterminated string starting at character 16"),
        ("comma.json", b'[\n{"text": "a"},\n{"text": "b",}\n]', ": not JSON .* at line 3, character 1[34]"),
        ("twice.jsonl", b'{"text": "a"}\n{"text": "b", "text": "c"}\n', ", line 2: not JSON .'text' is given twice."),
        ("twice.json", b'[{"text": "b", "of": {"id": 1, "id": 2}}]', ": not JSON .'id' is given twice."),
        ("comma.jsonl", b'{"text": "a"}\n{"text": "b"\n', ", line 2: not JSON .* at character 13"),
        ("ragged.csv", b"text,label\na,b\nc,d,e\n", ", line 3: wrong number of columns .3, the header has 2"),
        ("names.csv", b"text,label\n\n", " holds no rows"),
        ("rows.parquet", b"PAR1", " cannot be read: .*Parquet"),
        ("rows.parquet.gz", b"", ": expected .*all but .parquet .*also .gz .*found .parquet.gz"),
        ("rows.docx", b"PK", ": expected .jsonl, .json, .csv, .tsv, .parquet, .xlsx .*found .docx"),
        ("plain.jsonl.gz", LINES, " is damaged"),
        ("cut.jsonl.gz", gzip.compress(LINES)[:-30], " is damaged"),
        ("cut.jsonl.zst", zstd.compress(LINES)[:-30], " is damaged"),
    ],
)
def test_a_broken_file_is_named_with_the_place(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"{name}{message}"):
        read(path)


def test_a_truncated_conll_file_is_named(tmp_path):
    path = tmp_path / "train.conll.gz"
    path.write_bytes(gzip.compress(b"word O\n\n" * 5000)[:-30])
    with pytest.raises(UserError, match=r"train.conll.gz is damaged"):
        read(path, TokenClassification)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstd.compress])
def test_compressed_files_are_read(tmp_path, compress):
    suffix = {bytes: "", gzip.compress: ".gz", zstd.compress: ".zst"}[compress]
    path = tmp_path / f"rows.jsonl{suffix}"
    path.write_bytes(compress(LINES))
    assert read(path) == [json.loads(line) for line in LINES.splitlines()]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("Train.CSV", b'text,label\n"a, ""b""",x\n'),
        (
            "train.jsonl.CSV.GZ",
            gzip.compress(b'text,label\n"a, ""b""",x\n', mtime=0),
        ),  # each worker names the test alike
        ("train.csv.Tsv", b'text\tlabel\na, "b"\tx\n'),
        ("TRAIN.JSONL.ZST", zstd.compress(b'{"text": "a, \\"b\\"", "label": "x"}')),
    ],
)
def test_the_last_suffix_in_any_case_defines_the_format(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert read(tmp_path / name) == [{"text": 'a, "b"', "label": "x"}]


def test_a_split_of_a_saved_data_set_is_loaded_by_name(tmp_path):
    train, test = ([{"text": text, "label": "x"}] for text in ("one", "two"))
    splits = {"train": Dataset.from_list(train), "test": Dataset.from_list(test)}
    DatasetDict(splits).save_to_disk(tmp_path / "both")
    assert read_split(str(tmp_path / "both"), TASK, split="test").rows.to_list() == test
    with pytest.raises(
        UserError, match=r"both holds the splits train, test; name the folder of one, such as .*/train"
    ):
        read_split(str(tmp_path / "both"), TASK, split="validation")


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
