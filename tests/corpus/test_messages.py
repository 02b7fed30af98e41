"""Messages of `mybert corpus`: for each bad file and each wrong option, what its one line must say."""

import shutil
import sys
from collections import Counter

import datasets
import pyarrow as pa
import pyarrow.parquet
import pytest
import tokenizers
from json_files import write_lines
from transformers import PreTrainedTokenizerFast

from mybert.artifacts.manifest import write_manifest
from mybert.io.documents import read_documents

GOOD, LAST = b'{"text": "one"}\n', b'\n{"text": "three"}\n'
COLUMNS = "(there are 'id', 'body'; … --text-column"
LINES = [  # file, content, message, and the texts that are left with --errors skip
    *(
        ("a.jsonl", GOOD + line + LAST, f"a.jsonl, line 2: {message} … --errors skip", ["one", "three"])
        for line, message in (
            (b'{"text": "\xe9t\xe9"}', "not UTF-8; save the file as UTF-8, or"),
            (b"{text: 1}", "not JSON"),
            (b'{"text": ' + b"[" * 100_000, "not JSON (nested too deeply"),
            (b'{"text": ' + b"1" * 10_000 + b"}", "not JSON (a number of too many digits"),
            (b'"text"', "not an object (found str"),
            (b'{"id": 1, "body": "x"}', f"no column 'text' {COLUMNS}"),
            (b'{"text": 5}', "'text' is not a string (found int"),
            (b'{"text": null}', "'text' is not a string (found null"),
            (b'{"text": "\\ud800"}', "half of a surrogate pair"),
        )
    ),
    ("a.txt", b"one\ntwo\n\xff\xfe\nfour\n", "a.txt, line 3: not UTF-8", ["one\ntwo\nfour\n"]),
    ("b.csv", b"text\none\n\xff\n", "b.csv, line 3: not UTF-8", ["one"]),
    ("b.csv", b'id,text\n1,"x\ny"\n2\n3,z\n', "b.csv, line 4: wrong number of columns", ["x\ny", "z"]),
]
OPEN_QUOTE = b'id,text\n1,"two\nlines"\n2,"it ends here'
NO_PARQUET = "a.parquet cannot be read as Parquet ( … ); write it again or leave it out"
NOT_UTF8 = pa.array([b"good", b"\xff"]).view(pa.string())
FILES = [  # file, content, further options, message
    ("c.json", b'[\n{"text": "\xff"}]', "", "c.json, line 2: not UTF-8"),
    ("a.csv", b"id,body\n1,x\n", "", f"a.csv has no column 'text' {COLUMNS}"),
    *(
        ("a.csv", OPEN_QUOTE + end, "", "a.csv … row that begins in line 4: … close each quote")
        for end in (b"", b"\n", b"\r\n")
    ),
    ("a.csv", OPEN_QUOTE + b'\n3,lost\n4,"good"\n', "", "a.csv … row that begins in line 4: … ',' expected after"),
    *(
        ("a.txt", "one\ntwo\n".encode(encoding), "", "a.txt is UTF-16, not UTF-8; save it as UTF-8")
        for encoding in ("utf-16", "utf-16-le", "utf-16-be")
    ),
    ("a.parquet", pa.table({"text": pa.nulls(1, pa.string())}), "", "a.parquet, row 1: 'text' is not a string"),
    ("a.parquet", pa.table({"id": [1], "body": ["x"]}), "", f"a.parquet has no column 'text' {COLUMNS}"),
    ("a.parquet", pa.table({"text": NOT_UTF8}), "", "a.parquet, row 2: not UTF-8"),
    ("a.parquet", pa.table([["x"], ["y"]], ["text", "text"]), "", "two columns are called 'text'; rename one"),
    ("a.parquet", b"no parquet", "", NO_PARQUET),
    ("a.parquet", pa.table({"text": ["x"], "wxyz": ["y"]}), "", NO_PARQUET),
    ("a.jsonl", b'{"text": ""}\n{"text": "  "}\n', "", "no document holds text (2 read); … --text-column"),
    ("a.txt", b"", "", "no document holds text (0 read); … --text-column"),
    ("a.pdf", b"", "", "a.pdf: unknown file format; expected .txt"),
]
ABSENT = "does not exist (expected a file, a folder, a pattern, a data set of the Hub, or - for texts on standard"
ONE_DOCUMENT = "one distinct document … --deduplicate … --split-documents N … --negatives same-document or --no-nsp"
FEW = "without an example: … no second sentence; use --negatives other-document or --no-nsp"
OPTIONS = [  # with the files of `inputs`
    ("one.jsonl", ONE_DOCUMENT),
    ("sentences.jsonl --negatives same-document", f"50 documents {FEW}"),
    ("tokenless.jsonl --no-nsp", "2 documents without an example: no tokens; check the inputs and --text-column"),
    ("chinese.jsonl", "the tokenizer … does not fit these documents: … of their tokens are [UNK]; train one"),
    ("few.jsonl missing.txt", f"missing.txt {ABSENT}"),
    ("missing/folder/deep", f"missing/folder/deep {ABSENT}"),
    ("*.nothing", "no file matches '*.nothing'"),
    ("bare/empty", "bare/empty holds no file of a known format (.txt"),
    ("splits", "splits holds the splits train, test; name the folder of one, such as splits/train"),
    ("splits/train --text-column body", "no column 'body' (there are 'text', 'id'"),
    ("python-docs:nopackage", "python-docs:nopackage: no Python package of this name is installed"),
    ("few.jsonl --tokenizer missing", "missing: no such folder, and no cached model of this name"),
    ("few.jsonl --tokenizer bpe", "--tokenizer bpe cannot be used ( … expected WordPiece"),
    ("few.jsonl --tokenizer bare", "--tokenizer bare cannot be used ( … lacks the special tokens [MASK]"),
    ("few.jsonl --language german", "--language: expected an ISO 639 code"),
    ("few.jsonl --one-sentence-per-line --language de", "--language has no effect with --one-sentence-per-line"),
    ("few.jsonl --engine ray", "--num-proc has no effect with --engine ray, which uses the whole cluster; remove it"),
    ("- --resume", "--resume cannot read standard input again"),
    ("out/few.jsonl --output out --overwrite", "holds the input out/few.jsonl"),
    # found before a document is read
    ("bad.jsonl --filter no_such_module:keep", "no_such_module cannot be imported"),
    ("bad.jsonl --filter mistaken_filters:kept", "mistaken_filters has no function kept"),
    ("bad.jsonl --filter keep", "--filter: expected package.module:function"),
    ("bad.jsonl --deduplicate-near 0.8", "pip install 'mybert[dedup]'"),
    # at the first document
    *(
        (f"few.jsonl --filter mistaken_filters:{name}", f"--filter mistaken_filters:{name}{message}")
        for name, message in (
            ("divides", " failed at the document that begins 'One.': ZeroDivisionError"),
            ("raises", " failed at the document that begins 'One.': ValueError: one two"),
            ("leaves", " failed at the document that begins 'One.': SystemExit: 3"),
            ("returns", " must return True or False; it returned 'One.' for the document that begins 'One.'"),
            ("refuses", ": no document is left of 1; it must return True for those to keep"),
        )
    ),
]
FILTERS = """
import sys
def divides(text): return 1 / 0
def raises(text): raise ValueError("one\\ntwo")
def leaves(text): sys.exit(3)
def returns(text): return text
def refuses(text): return False
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    documents = {
        "few": ["One."],
        "one": ["One man. One hand.\n" * 9],
        "sentences": ["A time to live."] * 50,
        "tokenless": ["\u0001", "\u0002"],
        "chinese": ["时间人年", "道路日"],
    }
    for name, texts in documents.items():
        write_lines(folder / f"{name}.jsonl", [{"text": text} for text in texts])
    (folder / "bad.jsonl").write_text("{broken\n")
    (folder / "mistaken_filters.py").write_text(FILTERS)
    data = datasets.Dataset.from_dict({"text": ["a"], "id": [1]})
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(folder / "splits")
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, []))
    PreTrainedTokenizerFast(tokenizer_object=bpe).save_pretrained(folder / "bpe")
    (folder / "bare/empty").mkdir(parents=True)
    (folder / "bare/vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nx\n")
    (folder / "out").mkdir()
    shutil.copy(folder / "few.jsonl", folder / "out")
    write_manifest(folder / "out", "corpus", settings={}, inputs={}, counts={})
    return folder


@pytest.fixture
def corpus_refused(vocabulary_folder, assert_refused):
    """A function from words of `mybert corpus`, which may replace the tokenizer, and a message."""

    def check(words: str, message: str) -> None:
        given = f"corpus --tokenizer {vocabulary_folder} --num-proc 1 --output corpus {words}"
        assert_refused(given.split(), message)

    return check


@pytest.mark.parametrize(("words", "message"), OPTIONS, ids=[words for words, _ in OPTIONS])
def test_a_wrong_option_is_one_line(corpus_refused, inputs, tmp_path, monkeypatch, words, message):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of the filters
    monkeypatch.setitem(sys.modules, "datasketch", None)  # as if it were not installed
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    corpus_refused(words, message)


@pytest.mark.parametrize(("name", "content", "words", "message"), FILES)
def test_a_bad_file_is_one_line(corpus_refused, tmp_path, name, content, words, message):
    file = tmp_path / name
    file.write_bytes(content) if isinstance(content, bytes) else pa.parquet.write_table(content, file)
    file.write_bytes(file.read_bytes().replace(b"wxyz", b"\xffxyz"))  # a name of a column that is not UTF-8
    corpus_refused(f"{name} {words}", message)


@pytest.mark.parametrize(("name", "content", "message", "left"), LINES)
def test_a_bad_line_is_named_or_skipped_and_counted(corpus_refused, tmp_path, name, content, message, left):
    (tmp_path / name).write_bytes(content)
    corpus_refused(name, message)
    skipped = Counter()
    documents = read_documents([str(tmp_path / name)], errors="skip", skipped=skipped)
    assert ([document.text for document in documents], skipped.total()) == (left, 1)
