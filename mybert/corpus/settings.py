"""What `mybert corpus` can be told."""

import re
from dataclasses import asdict, dataclass

from mybert.common.errors import UserError
from mybert.common.settings import ERRORS, check, check_choice, check_least, setting
from mybert.corpus.text.sentences import is_language
from mybert.io.files import STDIN

NEGATIVES = ("other-document", "same-document")
ENGINES = ("local", "ray")
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@dataclass
class CorpusSettings:
    """Settings of `build_corpus`.

    Raises:
        UserError: a value is out of its range, or two of them contradict each other.
    """

    inputs: list[str] = setting(
        default_factory=list,
        positional=True,
        help="files (.txt .jsonl .json .csv .tsv, also .gz and .zst; .parquet), folders, patterns, saved data sets, "
        "Hub data sets as owner/name[:config[:split]], `-` for standard input, `python-docs`",
    )
    tokenizer: str = setting("", "folder or Hub name of a WordPiece tokenizer (required)")
    output: str = setting("", "folder to write (required)")
    max_length: int = setting(128, "tokens of an example at most, special tokens included (8 or more)")
    short_seq_prob: float = setting(0.1, "share of documents cut to a shorter random length (0 to 1)")
    dupe_factor: int = setting(1, "times that a training document is used, cut differently each time (1 or more)")
    negatives: str = setting("other-document", f"where a wrong next segment is from: {' or '.join(NEGATIVES)}")
    nsp: bool = setting(True, "build sentence pairs; without, examples are whole sentences in one segment")
    one_sentence_per_line: bool = setting(False, "sentences stand one a line; otherwise they are found")
    language: str = setting(
        "en", "language whose sentence rules hold (ISO 639 code; English rules where there are no others)"
    )
    document_per_file: bool = setting(False, "a .txt file is one document; otherwise blank lines separate them")
    errors: str = setting("strict", "stop at the first bad line (strict), or leave it out and count it (skip)")
    deduplicate: bool = setting(False, "keep the first of documents with equal text")
    deduplicate_near: float | None = setting(
        None,
        "keep the first of documents that have this share or more of their five-word sequences in common (Jaccard "
        "similarity, 0.5 to 1; usual is 0.8); needs mybert[dedup]",
    )
    filter: list[str] = setting(
        default_factory=list,
        help="package.module:function, from a document's text to whether it is kept; several apply in order",
    )
    text_column: str = setting("text", "column of the text in JSON, CSV, TSV, Parquet and data sets")
    split_documents: int = setting(1, "parts that each document is cut into, each a document then (1 or more)")
    validation_share: float = setting(0.05, "share of documents held out as OUTPUT/validation (0 to 0.5)")
    seed: int = setting(42, "seed of every random choice (0 or more)")
    num_proc: int | None = setting(None, "processes; the result is the same for any number (default: all cores)")
    engine: str = setting(
        "local",
        f"{' or '.join(ENGINES)}: processes of this machine, or the nodes of a Ray cluster that share OUTPUT's disk "
        "(address in RAY_ADDRESS; needs mybert[ray]); the result is the same",
    )
    resume: bool = setting(
        False, "keep finished shards when interrupted, and go on from those of an interrupted or killed build"
    )
    overwrite: bool = setting(False, "replace OUTPUT")

    def __post_init__(self):
        self.inputs = [self.inputs] if isinstance(self.inputs, str) else [str(name) for name in self.inputs]
        self.filter = [self.filter] if isinstance(self.filter, str) else list(self.filter)
        check(self, "inputs", bool(self.inputs), "at least one file, folder or data set")
        check(self, "tokenizer", bool(self.tokenizer), "a folder or Hub name; make one by `mybert tokenizer`")
        check(self, "output", bool(self.output), "a folder")
        check_least(self, "max_length", 8)
        check(self, "short_seq_prob", 0 <= self.short_seq_prob <= 1, "0 to 1")
        check(self, "validation_share", 0 <= self.validation_share <= 0.5, "0 to 0.5")
        check_choice(self, "negatives", NEGATIVES)
        check(self, "language", is_language(self.language), "an ISO 639 code such as en, ja or zh")
        check_choice(self, "errors", ERRORS)
        check_choice(self, "engine", ENGINES)
        near = self.deduplicate_near
        check(self, "deduplicate_near", near is None or 0.5 <= near <= 1, "0.5 to 1")
        for name in self.filter:
            check(self, "filter", bool(_FUNCTION.fullmatch(name)), "package.module:function")
        check_least(self, "num_proc", 1)
        for name in ("dupe_factor", "split_documents"):
            check_least(self, name, 1)
        check_least(self, "seed", 0)
        if not self.nsp and self.negatives != NEGATIVES[0]:
            raise UserError(f"--negatives {self.negatives} has no effect with --no-nsp; leave one of them out")
        if self.engine == "ray" and self.num_proc is not None:
            raise UserError("--num-proc has no effect with --engine ray, which uses the whole cluster; leave it out")
        if self.resume and STDIN in self.inputs:
            raise UserError("--resume cannot read standard input again; store it in a file")

    def decisive(self) -> dict:
        """The settings that the examples are a function of, beside what the inputs and the tokenizer hold."""
        free = {"inputs", "tokenizer", "output", "overwrite", "num_proc", "engine", "resume"}
        return {name: value for name, value in asdict(self).items() if name not in free}
