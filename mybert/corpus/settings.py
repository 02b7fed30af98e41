"""Settings of `mybert tokenizer` and `mybert corpus`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from mybert.common.errors import UserError
from mybert.common.languages import LANGUAGES, STRIP_HELP, is_language
from mybert.common.settings import (
    ENGINES,
    FOLDER,
    TEXTS,
    TOKENIZER,
    TextFileOptions,
    as_list,
    check,
    check_choices,
    setting,
)
from mybert.io.files import STDIN
from tokenization.wordpiece_training import least_vocab_size

NEGATIVES = ("other-document", "same-document")
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def check_examples(name: str) -> None:
    """Raises a UserError if `name` is not the folder of a corpus."""
    if Path(name).is_file():
        raise UserError(f"{name} is a file; build a corpus: `mybert corpus {name} --tokenizer … --output …`")
    if not Path(name).is_dir():
        raise UserError(f"corpus {name} does not exist; build it with `mybert corpus … --output {name}`")


@dataclass
class DocumentSettings(TextFileOptions):
    """Settings shared by the commands that read documents."""

    inputs: list[str] = setting(
        default_factory=list,
        positional=True,
        help="files (.txt .jsonl .json .csv .tsv, also .gz and .zst; .parquet .xlsx), folders, patterns, saved data "
        "sets, Hub data sets as owner/name[:config[:split]], `-` for standard input, `python-docs[:PACKAGE]`",
        reads=TEXTS,
    )
    output: str = setting("", "output folder", writes=FOLDER)
    num_proc: int | None = setting(
        None, "number of processes; the result does not depend on it (default: number of CPU cores)", least=1
    )
    overwrite: bool = setting(False, "replace OUTPUT")

    def __post_init__(self):
        self.inputs = as_list(self.inputs)
        check(self, "inputs", bool(self.inputs), "at least one file, folder or data set")
        check(self, "output", bool(self.output), "a folder")
        check_choices(self)


@dataclass
class TokenizerSettings(DocumentSettings):
    command: ClassVar[str] = "tokenizer"

    vocab_size: int = setting(
        30000, "number of tokens, special tokens included (141 or more uncased, 193 or more cased)"
    )
    uncased: bool = setting(
        True, "Lower-case the text and strip accents; --cased keeps upper case and accents.", negation="cased"
    )
    language: str = setting("en", "language of the text (ISO 639 code); it decides whether marks are removed")
    strip_accents: bool | None = setting(None, STRIP_HELP)
    min_frequency: int = setting(
        2, "minimum number of occurrences of a pair of tokens that is merged (1 or more)", least=1
    )
    character_coverage: float = setting(
        0.99999, "share of the text's characters that the vocabulary covers, most frequent first (above 0 to 1)"
    )
    pad_to_multiple_of: int = setting(
        1, "pad the vocabulary with [unusedN] tokens to a multiple of this; 64 makes training faster", least=1
    )
    compare: str | None = setting(
        None, "another WordPiece tokenizer (folder or Hub name) to compare the new vocabulary with", reads=TOKENIZER
    )

    def __post_init__(self):
        super().__post_init__()
        check(self, "language", is_language(self.language), LANGUAGES)
        least = least_vocab_size(self.uncased)
        check(self, "vocab_size", self.vocab_size >= least, f"{least} or more (special tokens and ASCII characters)")
        check(self, "character_coverage", 0 < self.character_coverage <= 1, "above 0 and up to 1")


@dataclass
class CorpusSettings(DocumentSettings):
    command: ClassVar[str] = "corpus"

    tokenizer: str = setting("", "folder or Hub name of a WordPiece tokenizer", reads=TOKENIZER)
    max_length: int | None = setting(
        None,
        "maximum tokens of an example, special tokens included (8 or more; default: 128, or model_max_length of the "
        "tokenizer if that is smaller)",
        least=8,
    )
    short_seq_prob: float = setting(0.1, "share of documents with a shorter, random target length (0 to 1)")
    dupe_factor: int = setting(
        1, "number of times that each training document is used, divided into segments differently each time", least=1
    )
    negatives: str = setting("other-document", "source of random next segments", choices=NEGATIVES)
    nsp: bool = setting(True, "build sentence pairs; --no-nsp fills examples with consecutive sentences")
    one_sentence_per_line: bool = setting(False, "each line is a sentence; otherwise the text is split into sentences")
    language: str = setting(
        "en", "language of the sentence splitter (ISO 639 code; English rules for languages without their own)"
    )
    document_per_file: bool = setting(False, "a .txt file is one document; otherwise blank lines separate documents")
    deduplicate: bool = setting(False, "keep only the first of documents with the same text")
    deduplicate_near: float | None = setting(
        None,
        "keep only the first of documents whose sets of five-word sequences have this Jaccard similarity or more (0.5 "
        "to 1; usually 0.8); needs `pip install '.[dedup]'` in the clone",
    )
    filter: list[str] = setting(
        default_factory=list,
        help="functions that return whether to keep a document, given its text, as package.module:function; applied "
        "in order",
    )
    split_documents: int = setting(1, "number of documents into which each document is split (1 or more)", least=1)
    validation_share: float = setting(0.05, "share of documents held out as OUTPUT/validation (0 to 0.5)")
    seed: int = setting(42, "seed of every random choice (0 or more)", least=0)
    engine: str = setting(
        "local",
        "processes on this machine (local), or a Ray cluster whose nodes share the disk of OUTPUT (ray; address in "
        "RAY_ADDRESS; needs `pip install '.[ray]'` in the clone); the result is the same",
        choices=ENGINES,
    )
    resume: bool = setting(False, "keep finished shards after an interruption and continue from them")

    def __post_init__(self):
        super().__post_init__()
        self.filter = as_list(self.filter)
        check(self, "tokenizer", bool(self.tokenizer), "a folder or Hub name; make one by `mybert tokenizer`")
        check(self, "short_seq_prob", 0 <= self.short_seq_prob <= 1, "0 to 1")
        check(self, "validation_share", 0 <= self.validation_share <= 0.5, "0 to 0.5")
        check(self, "language", is_language(self.language), LANGUAGES)
        near = self.deduplicate_near
        check(self, "deduplicate_near", near is None or 0.5 <= near <= 1, "0.5 to 1")
        for name in self.filter:
            check(self, "filter", bool(_FUNCTION.fullmatch(name)), "package.module:function")
        if not self.nsp and self.negatives != NEGATIVES[0]:
            raise UserError(f"--negatives {self.negatives} has no effect with --no-nsp; remove one of them")
        if self.engine == "ray" and self.num_proc is not None:
            raise UserError("--num-proc has no effect with --engine ray, which uses the whole cluster; remove it")
        if self.resume and STDIN in self.inputs:
            raise UserError("--resume cannot read standard input again; save it to a file")

    @property
    def removes_duplicates(self) -> bool:
        return self.deduplicate or self.deduplicate_near is not None
