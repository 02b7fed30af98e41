"""Malformed text in every format, settings, manifests, vocabularies and corpora."""

import contextlib
import gzip
import hashlib
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import datasets
import pyarrow as pa
import pyarrow.parquet
from mutations import mutated_bytes, mutated_json
from sandbox import Target

from mybert.artifacts.jobs import unfinished_folder
from mybert.artifacts.manifest import read_manifest
from mybert.artifacts.run_fingerprint import RunFingerprint
from mybert.artifacts.staging import refuse_existing
from mybert.common.errors import UserError
from mybert.corpus.examples.shards import finished
from mybert.corpus.settings import CorpusSettings
from mybert.io.documents import read_documents
from mybert.io.files import zstd
from mybert.pretraining.corpus_loading import Corpus
from mybert.settings.parse import parse_settings
from mybert.training.sealed_checkpoints import SEAL, find_damage, seal
from tokenization import MyBertTokenizer

TEXT = "The first document. It has two sentences.\n\nDer zweite: größer, 数字 123.\n\n\nno end".encode()
ROWS = [{"text": "One two.", "n": 1}, {"text": 'quoted "x", {y}\nline', "n": None}, {"text": "größer 数字", "n": 2.5}]
JSONL = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
CSV = b'text,n\nOne two.,1\n"quoted ""x"", y\nnext line",2\n\xc3\xa9t\xc3\xa9,3\n'
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "file", "##s", "a", "é", "字", "."]
VOCABULARY = "".join(f"{piece}\n" for piece in PIECES).encode()


def of_bytes(name: str, *seeds: bytes) -> Callable[[Random], dict[str, bytes]]:
    return lambda random: {name: mutated_bytes(random, seeds)}


def of_json(name: str, *seeds) -> Callable[[Random], dict[str, bytes]]:
    return lambda random: {name: mutated_json(random, seeds)}


def of_folder(files: dict[str, bytes]) -> Callable[[Random], dict[str, bytes]]:
    """A folder with one or two changed files, sometimes with a missing one."""

    def make(random: Random) -> dict[str, bytes]:
        found = dict(files)
        for _ in range(random.choice((1, 1, 2))):
            name = random.choice(list(files))
            if name.endswith(".json"):
                found[name] = mutated_json(random, [json.loads(files[name])])
            else:
                found[name] = mutated_bytes(random, [files[name]])
        if random.randrange(40) == 0:
            del found[random.choice(list(found))]
        return found

    return make


def read_text(folder: Path) -> None:
    """Reads every document with both settings of `errors`; each must be valid UTF-8."""
    (path,) = [path for path in folder.iterdir() if path.is_file() or path.name == "saved"]
    for errors in ("skip", "strict"):
        for document in read_documents([str(path)], errors=errors):
            document.text.encode()


def compressed(name: str, content: bytes, compress: Callable[[bytes], bytes]) -> Callable[[Random], dict[str, bytes]]:
    """Changed before or after compression."""
    whole = (compress(content), compress(b""), compress(content) + compress(content), compress(bytes(1 << 20)))

    def make(random: Random) -> dict[str, bytes]:
        if random.randrange(2):
            return {name: compress(mutated_bytes(random, [content]))}
        return {name: mutated_bytes(random, whole)}

    return make


def zstd_of_unknown_size(content: bytes) -> bytes:
    return zstd.compress(
        content, options={zstd.CompressionParameter.content_size_flag: 0, zstd.CompressionParameter.checksum_flag: 1}
    )


def parquet_files(*columns: pa.Array) -> list[bytes]:
    """Tables with a column `text` of each kind, in several compressions."""
    found = []
    for column in columns:
        for codec in ("none", "snappy", "zstd"):
            file = io.BytesIO()
            table = pa.table({"text": column, "label": range(len(column))})
            pyarrow.parquet.write_table(table, file, compression=codec)
            found.append(file.getvalue())
    return found


TEXTS = ["One two.", "", "größer 数字", "x" * 300]
PARQUET = parquet_files(
    *(pa.array(TEXTS), pa.array(TEXTS, pa.large_string()), pa.array(TEXTS).dictionary_encode(), pa.array([1, None])),
    *(pa.array(["One two.", None]), pa.array([b"\xff", b"a", None]), pa.array([["a"], None, [], ["b", "c"]])),
)


def saved_folder(rows: datasets.Dataset) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as scratch:
        rows.save_to_disk(scratch)
        return {path.name: path.read_bytes() for path in Path(scratch).iterdir()}


def within(name: str, make: Callable[[Random], dict[str, bytes]]) -> Callable[[Random], dict[str, bytes]]:
    return lambda random: {f"{name}/{file}": content for file, content in make(random).items()}


def read_manifests(folder: Path) -> None:
    read_manifest(folder)
    with contextlib.suppress(UserError):
        refuse_existing(folder, overwrite=True)
    with contextlib.suppress(UserError):
        list(read_documents([str(folder)]))


def prepare_beside(folder: Path) -> None:
    (folder / "a.txt").write_bytes(TEXT)


def sealed_files() -> dict:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        prepare_beside(folder)
        seal(folder)
        return json.loads((folder / SEAL).read_text())


def read_interrupted_build(folder: Path) -> None:
    """Reads the job of an interrupted build and the record of a shard, as `--resume` does."""
    settings = CorpusSettings(["x.txt"], tokenizer="t", output=str(folder / "out"), resume=True)
    unfinished_folder(settings.output, RunFingerprint({"size": 1}, {}))
    finished(folder / "shard.arrow")


def interrupted_build() -> dict[str, bytes]:
    record = {"counts": {"a": 1}, "lengths": {"5": 2}, "sums": {}, "sha256": hashlib.sha256(b"rows").hexdigest()}
    job = {"choices": {"size": 2}, "inputs": {}}  # of another build
    files = {"shard.json": record, ".out.partial-x/.scratch/job.json": job}
    return {name: json.dumps(value).encode() for name, value in files.items()} | {"shard.arrow": b"rows"}


def read_vocabulary(folder: Path) -> None:
    tokenizer = MyBertTokenizer(folder / "vocab.txt")
    tokenizer("the file [MASK] é数字")
    tokenizer.plain_text_backend().encode("[SEP] the files")


def read_settings(folder: Path) -> None:
    parse_settings((CorpusSettings,), ["--config", str(folder / "run.yaml")], "mybert corpus")


YAML = (
    b"inputs: [a.txt, b.txt]\ntokenizer: tok\noutput: out\nmax-length: 128\nshort_seq_prob: 0.1\nnsp: true\n",
    b"inputs: a.txt\ntokenizer: t\noutput: o\nlanguage: de\ndeduplicate_near: null\nvalidation_share: 0.5\nseed: 1\n",
    b'{"inputs": ["x"], "tokenizer": "t", "output": "o", "errors": skip, "num-proc": 2}',
)


def examples() -> datasets.Dataset:
    return datasets.Dataset.from_dict(
        {
            "input_ids": [[2, 5, 6, 3, 8, 3], [2, 5, 3, 6, 3]],
            "token_type_ids": [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1]],
            "next_sentence_label": [0, 1],
        }
    )


def prepare_corpus(folder: Path) -> None:
    MyBertTokenizer(PIECES).save_pretrained(folder / "tokenizer")


SAVED = of_folder(saved_folder(datasets.Dataset.from_list(ROWS)))
TARGETS = [
    Target("text .txt", of_bytes("a.txt", TEXT, TEXT.replace(b"\n", b"\r\n"), TEXT[:20] * 50), read_text, 180),
    Target("text .jsonl", of_bytes("a.jsonl", JSONL, JSONL * 20), read_text, 60),
    Target("text .jsonl, reshaped", of_json("a.jsonl", *ROWS), read_text, 70),
    Target("text .json", of_json("a.json", ROWS, ROWS[0]), read_text, 100),
    Target("text .csv", of_bytes("a.csv", CSV, CSV * 10), read_text, 80),
    Target("text .tsv", of_bytes("a.tsv", CSV.replace(b",", b"\t")), read_text, 70),
    Target("text .gz", compressed("a.jsonl.gz", JSONL, gzip.compress), read_text, 40),
    Target("text .zst", compressed("a.txt.zst", TEXT, zstd.compress), read_text, 60),
    Target("text .zst, streamed", compressed("a.txt.zst", TEXT, zstd_of_unknown_size), read_text, 60),
    Target("text .parquet", of_bytes("a.parquet", *PARQUET), read_text, 30),
    Target("text, saved data set", within("saved", SAVED), read_text, 2),
    Target("manifest.json", of_json("manifest.json", {"stage": "corpus"}), read_manifests, 50, prepare_beside),
    Target("seal of a checkpoint", of_json(SEAL, sealed_files()), find_damage, 100, prepare_beside),
    Target("interrupted build", of_folder(interrupted_build()), read_interrupted_build, 15),
    Target("settings .yaml", of_bytes("run.yaml", *YAML), read_settings, 2, names_place=False),
    Target("vocab.txt", of_bytes("vocab.txt", VOCABULARY), read_vocabulary, 100, refusals=(ValueError,)),
    Target("corpus of examples", of_folder(saved_folder(examples())), Corpus.load, 1, prepare_corpus),
]
