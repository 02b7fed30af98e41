"""What `mybert tokenizer` can be told."""

from dataclasses import dataclass

from mybert.common.settings import ERRORS, check, check_choice, check_least, setting
from tokenization.wordpiece_training import least_vocab_size


@dataclass
class TokenizerSettings:
    """Settings of `build_tokenizer`.

    Raises:
        UserError: a value is out of its range.
    """

    inputs: list[str] = setting(
        default_factory=list,
        positional=True,
        help="files (.txt .jsonl .json .csv .tsv, also .gz and .zst; .parquet), folders, patterns, saved data sets, "
        "Hub data sets as owner/name[:config[:split]], `-` for standard input, `python-docs`",
    )
    output: str = setting("", "folder to write (required)")
    vocab_size: int = setting(30000, "pieces, special tokens included (141 or more uncased, 193 cased)")
    uncased: bool = setting(True, "lower-case the text and strip accents; --cased keeps both", negation="cased")
    min_frequency: int = setting(2, "occurrences that a pair of pieces needs to be merged (1 or more)")
    character_coverage: float = setting(
        0.99999, "share of all characters that get a piece, the most frequent first (above 0, up to 1)"
    )
    pad_to_multiple_of: int = setting(1, "add [unusedN] up to a multiple of this; 64 makes training faster")
    compare: str | None = setting(None, "another WordPiece tokenizer (folder or Hub name) to report beside this one")
    text_column: str = setting("text", "column of the text in JSON, CSV, TSV, Parquet and data sets")
    errors: str = setting("strict", "stop at the first bad line (strict), or leave it out and count it (skip)")
    num_proc: int | None = setting(None, "processes; the result is the same for any number (default: all cores)")
    overwrite: bool = setting(False, "replace OUTPUT")

    def __post_init__(self):
        self.inputs = [self.inputs] if isinstance(self.inputs, str) else [str(name) for name in self.inputs]
        least = least_vocab_size(self.uncased)
        check(self, "inputs", bool(self.inputs), "at least one file, folder or data set")
        check(self, "output", bool(self.output), "a folder")
        check(self, "vocab_size", self.vocab_size >= least, f"{least} or more (special tokens and ASCII characters)")
        check_least(self, "min_frequency", 1)
        check(self, "character_coverage", 0 < self.character_coverage <= 1, "above 0 and up to 1")
        check_least(self, "pad_to_multiple_of", 1)
        check_choice(self, "errors", ERRORS)
        check_least(self, "num_proc", 1)
