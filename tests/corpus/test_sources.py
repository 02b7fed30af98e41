"""Reading documents: every format, valid and invalid."""

import gzip
import io
import json
import os
import sys
import types
from collections import Counter

import datasets
import pandas
import pyarrow as pa
import pyarrow.parquet
import pytest
from json_files import write_lines

from mybert.artifacts.manifest import write_manifest
from mybert.common.errors import UserError
from mybert.io.documents import read_documents
from mybert.io.files import zstd
from mybert.io.sources import find_sources

TEXTS = ["First one.\nIts second line.", "Zweites: naïve 中文.", 'Third, "quoted".']


def texts(*inputs, **options):
    return [document.text for document in read_documents([str(name) for name in inputs], **options)]


def write_all_formats(folder):
    records = [{"id": number, "text": text} for number, text in enumerate(TEXTS)]
    quoted = [text.replace('"', '""') for text in TEXTS]
    write_lines(folder / "a.jsonl", records)
    (folder / "b.json").write_text(json.dumps(records, indent=1), encoding="utf-8")
    write_lines(folder / "c.json", records)
    (folder / "d.csv").write_text("id,text\n" + "".join(f'0,"{t}"\n' for t in quoted), encoding="utf-8")
    (folder / "g.txt").write_text("\n\n".join(TEXTS) + "\n", encoding="utf-8")
    for name in ("a.jsonl", "b.json", "d.csv", "g.txt"):
        content = (folder / name).read_bytes()
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        half = len(content) // 2
        compress = zstd.compress
        (folder / f"{name}.zst").write_bytes(compress(content[:half]) + compress(content[half:]))
    pa.parquet.write_table(pa.Table.from_pylist(records), folder / "f.parquet")


def test_every_format_gives_the_same_documents(tmp_path):
    write_all_formats(tmp_path)
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 14
    for path in paths:
        assert [text.strip() for text in texts(path)] == TEXTS, path.name


@pytest.mark.parametrize(("kind", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_quotes_are_read_as_pandas_writes_them(tmp_path, kind, delimiter):
    rows = ['"bad start', "fine", 'end" here', '"all of it"', 'a ""b"" c', "a\tb, c", "two\nlines"]
    path = tmp_path / f"a.{kind}"
    pandas.DataFrame({"text": rows, "label": range(len(rows))}).to_csv(path, sep=delimiter, index=False)
    assert texts(path) == rows


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_quoted_field_may_be_the_last_of_a_csv_file(tmp_path, end):
    path = tmp_path / "a.csv"
    path.write_text(f'id,text\n1,"two\nlines"\n2,"it ends here"{end}', newline="")
    assert texts(path) == ["two\nlines", "it ends here"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress])
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "txt", "md"])
def test_the_last_suffix_selects_the_format_in_either_case(tmp_path, kind, pack):
    text = 'a, b "c"'
    content = {"csv": 'text,id\n"a, b ""c""",1', "tsv": f"text\tid\n{text}\t1\n", "jsonl": json.dumps({"text": text})}
    packed = {bytes: "", gzip.compress: ".gz", zstd.compress: ".zst"}[pack]
    for name in (f"A.{kind.upper()}{packed.upper()}", f"b.tsv.csv.gz.{kind}{packed}"):
        (tmp_path / name).write_bytes(pack(content.get(kind, text).encode()))
        assert texts(tmp_path / name) == [text], name


def test_a_folder_and_a_pattern_are_read_in_sorted_order_and_a_file_named_twice_once(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.txt", "sub/c.txt", "sub/d.md", ".hidden.txt", "README"):
        (tmp_path / name).write_text(name)
    assert texts(tmp_path) == ["a.txt", "b.txt", "sub/c.txt", "sub/d.md"]
    assert texts(tmp_path / "*.txt") == ["a.txt", "b.txt"]
    assert texts(tmp_path / "**/*.txt") == ["a.txt", "b.txt", "sub/c.txt"]
    assert texts(tmp_path / "b.txt", tmp_path) == ["b.txt", "a.txt", "sub/c.txt", "sub/d.md"]


def test_files_of_other_formats_in_a_folder_are_named_once(tmp_path, caplog):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.docx").write_text("text")
    for _ in range(2):
        find_sources([str(tmp_path)])
    assert caplog.text.count("skipped 1 file of other formats (.docx)") == 1


def test_a_readme_beside_tables_is_not_read(tmp_path, caplog):
    for name in ("README.md", "a.md", "b.csv"):
        (tmp_path / name).write_text("text")
    assert [os.path.basename(source.name) for source in find_sources([str(tmp_path)])] == ["a.md", "b.csv"]
    assert "skipped 1 file of other formats (.md)" in caplog.text
    (tmp_path / "b.csv").unlink()
    assert [os.path.basename(source.name) for source in find_sources([str(tmp_path)])] == ["README.md", "a.md"]


def test_folders_that_a_pattern_matches_are_named_unless_it_matches_their_files(tmp_path, caplog):
    """A shell names the folder, whose files are then read."""
    (tmp_path / "sub").mkdir()
    for name in ("a.txt", "sub/b.txt"):
        (tmp_path / name).write_text(name)
    assert texts(tmp_path / "**") == ["a.txt", "sub/b.txt"] and "skipped folders" not in caplog.text
    assert texts(tmp_path / "*") == ["a.txt"]
    assert f"skipped folders: {tmp_path / 'sub'}; name them to read their files" in caplog.text


def test_linked_folders_in_a_folder_are_named(tmp_path, caplog, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("data/a.txt", "elsewhere/b.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name)
    (tmp_path / "data" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "c.txt").symlink_to(tmp_path / "elsewhere" / "b.txt")
    assert texts("data") == ["data/a.txt", "elsewhere/b.txt"]
    assert f"skipped folders: {os.path.join('data', 'link')}; name them" in caplog.text
    assert texts("data/link") == ["elsewhere/b.txt"]


def test_output_folders_of_mybert_in_a_folder_or_pattern_are_skipped(tmp_path, caplog):
    """`mybert corpus . --tokenizer tokenizer` must not read tokenizer/vocab.txt as a document."""
    made = tmp_path / "tokenizer"
    (made / "deeper").mkdir(parents=True)
    for path in (tmp_path / "a.txt", made / "vocab.txt", made / "deeper" / "b.txt"):
        path.write_text("text\n")
    write_manifest(made, "tokenizer", settings={}, inputs={}, counts={})
    (tmp_path / "manifest.json").write_text("not JSON, and not ours")
    for inputs in (str(tmp_path / "**" / "*.txt"), str(made.parent / "?.txt")):
        assert [source.name for source in find_sources([inputs])] == [str(tmp_path / "a.txt")]
    assert f"output folders of mybert: {made}" in caplog.text
    (tmp_path / "manifest.json").unlink()
    assert [source.name for source in find_sources([str(tmp_path)])] == [str(tmp_path / "a.txt")]
    assert [source.name for source in find_sources([str(made / "vocab.txt")])] == [str(made / "vocab.txt")]


def test_documents_know_where_they_begin(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n\none\ntwo\n\n\nthree\n")
    found = list(read_documents([str(path)]))
    assert found == [("one\ntwo\n", str(path), 3, {}, "line"), ("three\n", str(path), 7, {}, "line")]
    (whole,) = read_documents([str(path)], plain_text="file")
    assert whole == (path.read_text(), str(path), 1, {}, "file")


def test_newlines_of_all_systems_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\r\x0c\nthree\rfour\n\nfive")
    assert texts(path) == ["one\ntwo\n", "three\nfour\n", "five"]
    write_lines(tmp_path / "b.jsonl", [{"text": "a\r\nb\rc"}])
    assert texts(tmp_path / "b.jsonl") == ["a\nb\nc"]


def test_a_text_file_may_be_one_document(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    assert texts(tmp_path / "a.txt", plain_text="file") == ["one\n\ntwo\n"]


def test_standard_input_may_be_json_lines(monkeypatch):
    content = b'\n{"body": "one\\n\\ntwo"}\n{"body": "three"}\n{"x": 1}\n'
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(content)))
    skipped = Counter()
    assert texts("-", text_column="body", errors="skip", skipped=skipped) == ["one\n\ntwo", "three"]
    assert skipped == {"no column 'body'": 1}


def test_standard_input_is_plain_text(monkeypatch):
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(b"one\n\ntwo \xff\n")))
    skipped = Counter()
    assert texts("-", errors="skip", skipped=skipped) == ["one\n"]
    assert skipped == {"not UTF-8": 1}


def test_a_saved_data_set_and_a_saved_dictionary_of_splits(tmp_path):
    data = datasets.Dataset.from_dict({"text": TEXTS, "id": [1, 2, 3]})
    data.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(tmp_path / "two")
    assert texts(tmp_path / "one") == TEXTS
    assert texts(tmp_path / "two" / "train") == TEXTS


def test_classes_of_a_data_set_are_named(tmp_path):
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
    )
    datasets.Dataset.from_dict({"text": TEXTS, "label": [1, 0, -1]}, features).save_to_disk(tmp_path / "data")
    found = read_documents([str(tmp_path / "data")], with_other_columns=True)
    assert [document.others["label"] for document in found] == ["good", "bad", None]


@pytest.mark.parametrize("format", [("torch", ["id"]), ("numpy", None), ("pandas", None), ("arrow", ["text"])])
def test_the_format_of_a_saved_data_set_changes_no_value_and_hides_no_column(tmp_path, format):
    data = datasets.Dataset.from_dict({"text": TEXTS, "id": [1, 2, 3]})
    data.with_format(*format).save_to_disk(tmp_path / "data")
    datasets.DatasetDict({"train": data.with_format(*format)}).save_to_disk(tmp_path / "both")
    for folder in ("data", "both"):
        found = list(read_documents([str(tmp_path / folder)], with_other_columns=True))
        assert [(document.text, document.others) for document in found] == [
            (text, {"id": number}) for number, text in enumerate(TEXTS, 1)
        ]
        assert {type(document.others["id"]) for document in found} == {int}


def test_a_name_that_is_not_a_path_is_a_data_set_of_the_hub(monkeypatch):
    asked = []

    def load_dataset(*arguments, **options):
        asked.append((arguments, options))
        return datasets.Dataset.from_dict({"text": TEXTS}).to_iterable_dataset()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert texts("owner/name:config:validation") == TEXTS
    assert asked == [(("owner/name", "config"), {"split": "validation", "streaming": True})]


@pytest.mark.slow
def test_the_documentation_inside_python_is_a_corpus():
    found = list(read_documents(["python-docs"]))
    assert len(found) > 1500
    assert 1_000_000 < sum(len(document.text) for document in found) < 4_000_000
    paragraphs = [paragraph for document in found for paragraph in document.text.split("\n\n")]
    assert len(paragraphs) > len(set(paragraphs)) * 0.999
    assert not any(":class:`" in paragraph or ">>> " in paragraph[:4] for paragraph in paragraphs)


def test_the_documentation_of_a_package_is_a_corpus():
    found = list(read_documents(["python-docs:yaml"]))
    assert found and found[0].source == "python-docs:yaml"


def test_a_long_line_is_one_document(tmp_path):
    long = "word " * 200_000
    write_lines(tmp_path / "a.jsonl", [{"text": long}])
    (tmp_path / "b.csv").write_text(f"text\n{long}\n")
    (tmp_path / "c.txt").write_text(long)
    assert texts(tmp_path) == [long] * 3


def test_a_damaged_saved_data_set_is_refused_before_reading_it_ends_the_process(tmp_path):
    datasets.Dataset.from_dict({"text": ["a", "bc", "def"]}).save_to_disk(tmp_path / "saved")
    (table,) = (tmp_path / "saved").glob("*.arrow")
    ends = b"".join(number.to_bytes(4, "little") for number in (0, 1, 3, 6))
    content = table.read_bytes()
    assert content.count(ends) == 1
    table.write_bytes(content.replace(ends, ends[:7] + b"\x08" + ends[8:]))
    with pytest.raises(UserError, match="saved cannot be read"):
        texts(tmp_path / "saved")


def test_files_without_documents_are_counted(tmp_path):
    for name in ("a.jsonl", "b.txt", "c.csv", "d.json", "e.tsv"):
        (tmp_path / name).touch()
    (tmp_path / "f.txt").write_text("\n\r\n\n")
    skipped = Counter()
    assert texts(tmp_path, skipped=skipped) == []
    assert skipped == {"empty files": 6}
