"""Settings of `Embedder`, `mybert embed` and `mybert search`."""

from dataclasses import dataclass
from pathlib import Path

from mybert.artifacts.manifest import read_manifest
from mybert.common.errors import UserError, did_you_mean
from mybert.settings import declare
from mybert.settings.declare import FILE, MODEL, check, check_effect, setting
from mybert.settings.shared import (
    POOLING_MODES,
    DeviceOption,
    DeviceOptions,
    EngineOption,
    OverwriteOption,
    ResumeOptions,
    TextInputs,
)

POOLINGS = (*POOLING_MODES, "pooler", "words")
FORMATS = (".npy", ".parquet", ".jsonl")
MODES = ("hybrid", "dense", "words")
"""Ways to search an index."""
LONG_TEXTS = ("refuse", "truncate", "window")


def check_vectors(name: str) -> None:
    """Raises a UserError if there is no file of vectors, or index, `name`."""
    if not Path(name).is_file() and not Path(name).is_dir():
        raise UserError(
            f"{name}: no such file or index; make it by `mybert index` or `mybert embed`{did_you_mean(name)}"
        )
    if Path(name).is_dir():
        check_index(Path(name))


def check_index(folder: Path) -> None:
    """Raises a UserError if a folder was not written by `mybert index`."""
    stage = read_manifest(folder).get("stage")
    if stage is None:
        raise UserError(f"{folder} is no index; make one by `mybert index`{did_you_mean(str(folder))}")
    if stage != "index":
        raise UserError(f"{folder} is no index, but an output of `mybert {stage}`")


@dataclass
class EncodingSettings(DeviceOptions):
    """Settings of `Embedder`: the model, which hidden states become vectors, and how texts are batched."""

    model: str = setting("", "Folder or Hub name of a MyBERT or BERT checkpoint.", positional=True, reads=MODEL)
    layers: list[int] = declare.model(
        default_factory=lambda: [-1],
        help="Layers whose hidden states are averaged: 0 is the embeddings, 1 the first layer, -1 the last.",
    )
    normalize: bool = declare.model(False, "Scale each vector to length 1.")
    long_texts: str | None = declare.data(
        None,
        "Texts of more than max_length tokens stop the run (refuse), are truncated, or are split into windows "
        "(window) (default: truncate for a sentence encoder, as sentence-transformers does; otherwise refuse).",
        choices=LONG_TEXTS,
    )
    prompt_name: str | None = declare.model(
        None, "Prompt of a sentence encoder that is put before each text, such as query (default: the checkpoint's)."
    )
    prompt: str | None = declare.model(None, "Text that is put before each text.")
    max_length: int | None = declare.data(
        None, "Maximum tokens of a text or window, special tokens included (default: the model's maximum).", least=3
    )
    stride: int | None = declare.data(
        None,
        "Tokens shared by consecutive windows; each token is taken from the window that gives it most context "
        "(default: half a window).",
        least=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "layers", bool(self.layers), "at least one layer")
        if self.prompt is not None and self.prompt_name is not None:
            raise UserError("--prompt and --prompt-name exclude each other; remove one of them")
        is_cut = self.long_texts == "window"
        check_effect(self, "stride", is_cut, "without --long-texts window; add that or remove --stride")


@dataclass
class EmbedSettings(TextInputs, EngineOption, ResumeOptions, EncodingSettings):
    output: str = setting(
        "",
        f"Output file with float32 vectors: {', '.join(FORMATS)}; .parquet and .jsonl keep the other columns of the "
        "rows; a column with a name that embed writes itself, such as line, becomes input_line.",
        writes=FILE,
    )
    pooling: str | None = declare.model(
        None,
        "One vector per text: the mean, max, … over its tokens with [CLS] and [SEP] (the modes of "
        "sentence-transformers), or the pooler output; words: one vector per word, the mean over its WordPiece tokens "
        "(default: the modules of a sentence encoder, otherwise mean).",
        choices=POOLINGS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "output", Path(self.output).suffix in FORMATS, f"a file name with {' or '.join(FORMATS)}")
        self.check_files(self.inputs)
        words = "with --pooling words, which reads texts as they are; remove it"
        check_effect(self, "prompt prompt_name", self.pooling != "words", words)
        if self.pooling == "words" and Path(self.output).suffix == ".npy":
            raise UserError(f"--output {self.output}: .npy cannot store the words; name a .parquet or .jsonl file")
        if self.pooling == "words" and self.long_texts == "truncate":
            raise UserError("--long-texts truncate would lose words; use --long-texts window")
        averages = self.pooling != "pooler" or self.layers == [-1]
        check_effect(self, "layers", averages, "with --pooling pooler; remove one of them")


@dataclass
class SearchSettings(DeviceOption, OverwriteOption):
    vectors: str = setting(
        "",
        f"Index made by `mybert index`, or file of text vectors made by `mybert embed`: {', '.join(FORMATS)}.",
        positional=True,
        reads="mybert.embedding.settings:check_vectors",
    )
    query: list[str] = setting(
        default_factory=list, positional=True, help="Queries, or `-` for standard input with one query per line."
    )
    model: str | None = declare.model(
        None, "Model that made the vectors (default: the model named in the manifest).", reads=MODEL
    )
    prompt_name: str | None = declare.model(
        None, "Prompt of a sentence encoder that is put before each query (default: query, if the checkpoint has one)."
    )
    prompt: str | None = declare.model(None, "Text that is put before each query.")
    top_k: int = declare.task(5, "Number of results per query (1 or more).", least=1)
    mode: str | None = declare.task(
        None,
        "Of an index, what the score is: the cosine of query and passage (dense), BM25 of their words (words), or a "
        "weighted sum of both (hybrid; default); scores of words and hybrid order the hits of one query, and those of "
        "different queries cannot be compared.",
        choices=MODES,
    )
    reranker: str | None = declare.task(
        None, "Of an index: cross-encoder that sorts the best passages anew, scoring each with the query.", reads=MODEL
    )
    where: list[str] = declare.task(
        default_factory=list,
        help="Of an index: only documents whose columns have these values, as COLUMN=VALUE.",
        pairs=True,
    )
    output: str | None = declare.output(None, "Also write the results to this file as JSON lines.", writes=FILE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.is_index:
            expected = f"an index, or a file name with {' or '.join(FORMATS)}"
            check(self, "vectors", Path(self.vectors).suffix in FORMATS, expected)
        needed = f"on the file {self.vectors}; make an index by `mybert index`"
        check_effect(self, "mode reranker where", self.is_index, needed)
        check_effect(self, "prompt prompt_name", not self.is_index, "on an index; remove it")
        for pair in self.where:
            check(self, "where", bool(pair.partition("=")[0]) and "=" in pair, "COLUMN=VALUE")

    @property
    def is_index(self) -> bool:
        return Path(self.vectors).is_dir() or (bool(self.vectors) and not Path(self.vectors).suffix)
