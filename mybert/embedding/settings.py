"""What `mybert embed` can be told, and the part of it that a Python call takes too."""

from dataclasses import dataclass
from pathlib import Path

from mybert.common.errors import UserError
from mybert.common.settings import DTYPES, ERRORS, check, check_choice, check_least, setting

VECTORS = ("mean", "cls", "pooler", "words")
FORMATS = (".npy", ".parquet", ".jsonl")
LONG_TEXTS = ("refuse", "window")


@dataclass
class EncodingSettings:
    """Settings of `Embedder`: which hidden states become vectors, and how texts go through the model.

    Raises:
        UserError: a value is out of its range, or has no effect with the others.
    """

    checkpoint: str = setting("", "folder or Hub name of a MyBERT or BERT checkpoint", positional=True)
    layers: list[int] = setting(
        default_factory=lambda: [-1],
        help="layers whose hidden states are averaged: 0 is the embeddings, 1 the first layer, -1 the last",
    )
    normalize: bool = setting(False, "scale each vector to length 1")
    long_texts: str = setting(
        "refuse", "a text of more than max_length tokens stops the run (refuse) or is read in windows (window)"
    )
    max_length: int | None = setting(
        None, "tokens of a text or window at most, special tokens included (default: what the model was trained on)"
    )
    overlap: int | None = setting(
        None,
        "tokens that one window shares with the next (default: half of it); each counts once, where it has "
        "most context",
    )
    batch_tokens: int | None = setting(
        None, "tokens of a batch at most, end to end without padding (default: 2048 on the CPU, 16384 elsewhere)"
    )
    device: str = setting("auto", "where to compute, such as cpu or cuda:1; auto: the GPU if there is one")
    dtype: str = setting("float32", f"numbers of the model: {' or '.join(DTYPES)}; vectors are float32 always")

    def __post_init__(self):
        self.layers = [self.layers] if isinstance(self.layers, int) else list(self.layers)
        check(self, "checkpoint", bool(self.checkpoint), "a folder or Hub name")
        check(self, "layers", bool(self.layers), "at least one layer")
        check_choice(self, "long_texts", LONG_TEXTS)
        check_least(self, "max_length", 3)
        check_least(self, "overlap", 0)
        check_least(self, "batch_tokens", 1)
        check_choice(self, "dtype", DTYPES)
        if self.overlap is not None and self.long_texts != "window":
            raise UserError("--overlap has no effect without --long-texts window; add that, or leave it out")


@dataclass
class EmbedSettings(EncodingSettings):
    """Settings of `embed`.

    Raises:
        UserError: a value is out of its range, or two of them contradict each other.
    """

    inputs: list[str] = setting(
        default_factory=list,
        positional=True,
        help="files (.txt, one text a line; .jsonl .json .csv .tsv, also .gz and .zst; .parquet), folders, patterns, "
        "data sets, or `-` for standard input, one text a line or JSON lines",
    )
    output: str = setting("", f"file to write: {', '.join(FORMATS)} (required)")
    vectors: str = setting(
        "mean",
        "what has a vector: each text, by the mean over its tokens with [CLS] and [SEP] as in sentence-transformers "
        "(mean), by its [CLS] (cls) or by the trained pooler on it (pooler); or each word, by the mean over its "
        "pieces (words)",
    )
    text_column: str = setting("text", "column of the text in JSON, CSV, TSV, Parquet and data sets")
    errors: str = setting("strict", "stop at the first bad line (strict), or leave it out and count it (skip)")
    overwrite: bool = setting(False, "replace OUTPUT")

    def __post_init__(self):
        super().__post_init__()
        self.inputs = [self.inputs] if isinstance(self.inputs, str) else [str(name) for name in self.inputs]
        check(self, "inputs", bool(self.inputs), "at least one file, folder or data set, or - for standard input")
        check(self, "output", Path(self.output).suffix in FORMATS, f"a file name in {', '.join(FORMATS)}")
        check_choice(self, "vectors", VECTORS)
        check_choice(self, "errors", ERRORS)
        if self.vectors == "words" and Path(self.output).suffix == ".npy":
            raise UserError(f"--output {self.output}: .npy has no place for the words; name a .parquet or .jsonl file")
        if self.vectors == "pooler" and self.layers != [-1]:
            raise UserError("--layers has no effect with --vectors pooler, which is of the last layer; leave one out")
