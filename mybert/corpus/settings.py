"""Settings of `mybert tokenizer` and `mybert corpus`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from mybert.common.errors import UserError
from mybert.common.languages import LANGUAGES, is_language, normalization
from mybert.settings import declare
from mybert.settings.declare import TEXTS, TOKENIZER, check, check_effect, setting
from mybert.settings.shared import CasingOptions, EngineOption, OutputFolder, ProcessesOption, ResumeOptions
from tokenization.wordpiece_training import least_vocab_size

NEGATIVES = ("other-document", "same-document")
_MOST_TOKENS = 10_000_000
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def check_examples(name: str) -> None:
    """Raises a UserError if `name` is not the folder of a corpus."""
    if Path(name).is_file():
        raise UserError(f"{name} is a file; build a corpus: `mybert corpus {name} --tokenizer … --output …`")
    if not Path(name).is_dir():
        raise UserError(f"corpus {name} does not exist; build it with `mybert corpus … --output {name}`")


@dataclass
class DocumentSettings(ProcessesOption, OutputFolder):
    """Settings of the commands that read documents."""

    inputs: list[str] = setting(
        default_factory=list,
        positional=True,
        help="Files (.txt .md .jsonl .json .csv .tsv, also .gz and .zst; .parquet .xlsx), folders, patterns, saved "
        "data sets, Hub data sets as owner/name[:config[:split]], `-` for standard input, `python-docs[:PACKAGE]`.",
        reads=TEXTS,
    )


@dataclass
class TokenizerSettings(CasingOptions, DocumentSettings):
    command: ClassVar[str] = "tokenizer"

    vocab_size: int = declare.model(
        30000, "Number of tokens, special tokens included (141 or more uncased, 193 or more cased)."
    )
    language: str = declare.data("en", "Language of the text (ISO 639 code); only English is lower-cased.")
    min_frequency: int = declare.model(
        2, "Minimum number of occurrences of a pair of tokens that is merged (1 or more).", least=1
    )
    character_coverage: float = declare.model(
        0.99999,
        "Share of the text's characters that the vocabulary covers, most frequent first (above 0 to 1).",
        within="(0, 1]",
    )
    pad_to_multiple_of: int = declare.model(
        1, "Pad the vocabulary with [unusedN] tokens to a multiple of this; 64 makes training faster.", least=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "language", is_language(self.language), LANGUAGES)
        lower_case, _ = normalization(self.language, self.uncased, self.strip_accents)
        least = least_vocab_size(lower_case)
        has_room = least <= self.vocab_size <= _MOST_TOKENS  # [unusedN] fill the vocabulary
        check(self, "vocab_size", has_room, f"{least} (special tokens and ASCII characters) to {_MOST_TOKENS:,}")


@dataclass
class CorpusSettings(EngineOption, ResumeOptions, DocumentSettings):
    command: ClassVar[str] = "corpus"

    tokenizer: str = setting("", "Folder or Hub name of a WordPiece tokenizer.", reads=TOKENIZER)
    max_length: int | None = declare.data(
        None,
        "Maximum tokens of an example, special tokens included (8 or more; default: 128, or model_max_length of the "
        "tokenizer if that is smaller).",
        least=8,
    )
    short_seq_prob: float = declare.data(
        0.1, "Share of documents with a shorter, random target length (0 to 1).", within="[0, 1]"
    )
    dupe_factor: int = declare.data(
        1, "Number of times that each training document is used, divided into segments differently each time.", least=1
    )
    negatives: str = declare.data("other-document", "Source of random next segments.", choices=NEGATIVES)
    nsp: bool = declare.data(True, "Build sentence pairs; --no-nsp fills examples with consecutive sentences.")
    one_sentence_per_line: bool = declare.data(
        False, "Each line is a sentence; otherwise the text is split into sentences."
    )
    language: str = declare.data(
        "en", "Language of the sentence splitter (ISO 639 code; English rules for languages without their own)."
    )
    document_per_file: bool = declare.data(
        False, "A .txt or .md file is one document; otherwise blank lines separate documents."
    )
    deduplicate: bool = declare.data(False, "Keep only the first of documents with the same text.")
    deduplicate_near: float | None = declare.data(
        None,
        "Keep only the first of documents whose sets of five-word sequences have this Jaccard similarity or more (0.5 "
        "to 1; usually 0.8); needs `pip install '.[dedup]'` in the clone.",
        within="[0.5, 1]",
    )
    filter: list[str] = declare.data(
        default_factory=list,
        help="Functions that return whether to keep a document, given its text, as package.module:function; applied "
        "in order.",
    )
    split_documents: int = declare.data(
        1, "Number of documents into which each document is split (1 or more).", least=1
    )
    validation_share: float = declare.data(
        0.05, "Share of documents held out as OUTPUT/validation (0 to 0.5).", within="[0, 0.5]"
    )
    seed: int = declare.seeds(42, "Seed of every random choice (0 or more).", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "language", is_language(self.language), LANGUAGES)
        for name in self.filter:
            check(self, "filter", bool(_FUNCTION.fullmatch(name)), "package.module:function")
        check_effect(self, "negatives", self.nsp, "with --no-nsp; remove one of them")
        splits = not self.one_sentence_per_line
        check_effect(self, "language", splits, "with --one-sentence-per-line; remove one of them")
        check_effect(
            self, "num_proc", self.engine == "local", "with --engine ray, which uses the whole cluster; remove it"
        )
        self.check_files(self.inputs)

    @property
    def removes_duplicates(self) -> bool:
        return self.deduplicate or self.deduplicate_near is not None
