"""Files that no reader can use: what the one line of the command must say.

" … " in a message stands for anything.
"""

import gzip
import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from json_files import write_files

from mybert.io.files import zstd

LINES = "".join(json.dumps({"text": f"word {i}", "label": "ab"[i % 2]}) + "\n" for i in range(2000)).encode()
ROW = b'{"text": "a"}\n'
NO_HEADER = (
    " has no column for 'text' … no column for 'label' … "
    "name them by --columns text=COLUMN label=COLUMN, or add a line of names if the file has none"
)


def excel(*rows):
    """A function that writes a sheet."""

    def write(path: Path) -> None:
        pytest.importorskip("openpyxl")
        pd.DataFrame(rows).to_excel(path, index=False, header=False)

    return write


def with_a_class_beyond_the_names(path: Path) -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["bad", "good"])})
    table = Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, features).data.table
    pq.write_table(table.set_column(1, table.schema.field("label"), [[1, 2]]), path)


def with_two_splits(path: Path) -> None:
    rows = Dataset.from_list([{"text": "a", "label": "b"}])
    DatasetDict({"test": rows, "validation": rows}).save_to_disk(path)


BROKEN = [  # file, its content or a function that writes it, and what the message says after its name
    ("latin.jsonl", LINES + b'{"text": "caf\xe9", "label": "a"}\n', ", line 2001: not UTF-8; save the file"),
    ("latin.csv", b"text,label\ncaf\xe9,a\n", ", line 2: not UTF-8; save the file as UTF-8"),
    ("half.jsonl", LINES + b'{"text": "\\ud800", "label": "a"}\n', ", line 2001: … is half a surrogate pair"),
    ("blank.jsonl", b"\n\n", " holds no rows"),
    ("list.json", b'[{"text": "a", "label": "b"}, 7]', ", row 2: not an object (found int"),
    ("cut.json", b'[{"text": "a", "lab', ": not JSON (Unterminated string starting at character 16"),
    ("comma.json", b'[\n{"text": "a"},\n{"text": "b",}\n]', ": not JSON … at line 3, character 1"),
    ("twice.jsonl", ROW + b'{"text": "b", "text": "c"}\n', ", line 2: not JSON ('text' is given twice)"),
    ("twice.json", b'[{"text": "b", "of": {"id": 1, "id": 2}}]', ": not JSON ('id' is given twice)"),
    ("comma.jsonl", ROW + b'{"text": "b"\n', ", line 2: not JSON … at character 13"),
    ("ragged.csv", b"text,label\na,b\nc,d,e\n", ", line 3: wrong number of columns (3, the header has 2"),
    ("first.csv", b"text,label\n" + b"a,b,1\n" * 3, ", line 2: wrong number of columns (3"),
    ("last.csv", b"text,label\n" + b"a,1,\n" * 3, ", line 2: wrong number of columns (3"),
    ("lines.csv", b'text,label\n"a\nb",1\n\nc\nd,0\n', ", line 5: wrong number of columns (1"),
    ("names.tsv", b"text\t\ttext\na\t0\tb\n", ": two columns are called 'text'"),
    ("open.tsv", b'text\tlabel\nfine\t1\n"bad start\t1\nfine\t0\n', " … line 3: … close each quote"),
    ("after.tsv", b'text\tlabel\nfine\t1\n"good" film\t1\n', ' … line 3: … expected after … "a ""b"" c"'),
    ("rows.parquet", b"PAR1", " cannot be read: … Parquet … ; write it again or leave it out"),
    ("rows.parquet.gz", b"", ": expected .jsonl … all but .parquet … also .gz … found .parquet.gz"),
    ("rows.docx", b"PK", ": expected .jsonl, .json, .csv, .tsv, .parquet, .xlsx … found .docx"),
    ("broken.xlsx", b"PK", " … .csv"),
    ("plain.jsonl.gz", LINES, " is damaged"),
    ("plain.jsonl.zst", LINES, " is damaged"),
    ("cut.jsonl.gz", gzip.compress(LINES)[:-30], " is damaged"),
    ("cut.jsonl.zst", zstd.compress(LINES)[:-30], " is damaged"),
    ("ragged.conll", b"Ada NNP O\n\nsleeps VBZ\n", ", line 3: expected 3 columns as in the first line, found 2"),
    ("empty.conll", b"Ada\tO\nsleeps\t\n", ", line 2: expected 2 columns as in the first line, found 1"),
    ("latin.conll", b"Ada O\n\xff O\n", ", line 2: not UTF-8"),
    ("cut.conll.gz", gzip.compress(b"word O\n\n" * 5000)[:-30], " is damaged"),
    ("rows.xlsx", excel(["text", "text", "label"], ["a", "b", 1]), ": two columns are called 'text'; rename one"),
    ("rows.xlsx", excel(["text", "label"]), " holds no rows"),
    ("rows.xlsx", excel(), " holds no rows"),
    (
        *("rows.parquet", with_a_class_beyond_the_names),
        ": 'label' has the class 2, and its 2 names (bad, good) count from 0",
    ),
    ("both", with_two_splits, " holds the splits test, validation; name the folder of one, such as both/test"),
    ("empty", Path.mkdir, " holds no file of a known format"),
    ("texts/old.txt", b"caf\xe9", ": not UTF-8; save the file as UTF-8"),
    *(
        ("rows.csv", f"{header}\na dull film,0\n", NO_HEADER)
        for header in ("a fine film,1", "0,1", "This is a review.,good")
    ),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN)
def test_a_broken_file_is_named_with_the_place(finetune_refused, tmp_path, name, content, message):
    write_files(tmp_path, {name: content})
    task = "token-classification" if "conll" in name else "text-classification"
    finetune_refused(task, ["--train", name.split("/")[0]], f"{name}{message}")
