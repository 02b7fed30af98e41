"""Settings of `mybert index`, and the check of names that may be an index."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from mybert.artifacts.checkpoint_folder import check_checkpoint
from mybert.artifacts.manifest import read_manifest
from mybert.common.errors import UserError
from mybert.settings import declare
from mybert.settings.declare import FOLDER, MODEL, TEXTS, as_list, check, check_effect, setting
from mybert.settings.shared import DeviceOptions, OutputFolder, ResumeOptions, TextFileOptions
from mybert.tasks.options import pairs

PRECISIONS = ("float32", "int8", "binary")
FIXED = ("passage_tokens", "overlap", "precision", "language")
"""The settings that are chosen when an index is made."""
CHECKPOINT_OR_INDEX = "mybert.retrieval.settings:check_checkpoint_or_index"
"""The function that checks the name of an input; see `setting`."""


def is_index(name: str) -> bool:
    """Whether a folder was written by `mybert index`."""
    return Path(name).is_dir() and read_manifest(name).get("stage") == "index"


def check_checkpoint_or_index(name: str) -> None:
    """Raises a UserError if `name` is neither an index nor a checkpoint."""
    if not is_index(name):
        check_checkpoint(name)


@dataclass
class IndexSettings(OutputFolder, ResumeOptions, DeviceOptions, TextFileOptions):
    """Model, documents and output of `mybert index`."""

    command: ClassVar[str] = "index"

    model: str = setting("", "Folder or Hub name of a retriever or another encoder.", positional=True, reads=MODEL)
    inputs: list[str] | None = declare.data(
        None,
        "Documents: .txt and .md files, one document each; rows of .jsonl .json .csv .tsv .parquet .xlsx (also .gz "
        "and .zst) or a data set, with a text and maybe an id and a title; folders, patterns.",
        positional=True,
        reads=TEXTS,
    )
    columns: list[str] = declare.data(
        default_factory=list, help="Columns without a usual name, as id=COLUMN title=COLUMN.", pairs=True
    )
    output: str = setting("", "Folder of the index.", kw_only=True, writes=FOLDER)
    passage_tokens: int = declare.task(
        200,
        "Maximum tokens of a passage: whole sentences, and the title before them; fewer if the model reads fewer.",
        least=16,
    )
    overlap: int = declare.task(
        40,
        "Maximum tokens, in whole sentences, that a passage shares with the next one; a fifth of the passage at most "
        "if the model reads fewer tokens than --passage-tokens.",
        least=0,
    )
    precision: str = declare.output(
        "float32",
        "Stored vectors: float32, int8 (a quarter of the size), or binary (searched by one bit per dimension, then "
        "compared by int8).",
        choices=PRECISIONS,
    )
    language: str | None = declare.data(
        None, "Language of stop words, stemmer and sentences, such as en; any for none (default: detected)."
    )
    add: bool = declare.output(
        False, "Add the documents to the index OUTPUT; those with the id of another one replace it."
    )
    delete: list[str] = declare.output(
        default_factory=list, help="Delete the documents with these ids from the index OUTPUT."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.inputs = as_list(self.inputs)
        check(self, "inputs", bool(self.inputs or self.delete), "at least one file, folder or data set")
        check(self, "overlap", self.overlap < self.passage_tokens, "less than --passage-tokens")
        if "-" in self.inputs:
            raise UserError("documents cannot be read from standard input twice; save them to a file")
        if self.delete and self.inputs and not self.add:
            raise UserError("--delete changes an index; to add documents to it too, say --add")
        self.given_columns()
        change = "--add" if self.add else "--delete"
        check_effect(self, "overwrite resume", not self.changes, f"with {change}; remove it")
        for name in FIXED:
            if self.changes and getattr(self, name) != getattr(type(self), name):
                raise UserError(f"--{name.replace('_', '-')} is fixed when an index is made; remove it")

    def given_columns(self) -> dict[str, str]:
        """The columns given by `--columns`, by role."""
        return pairs("columns", self.columns, "id=COLUMN or title=COLUMN", ("id", "title"))

    @property
    def changes(self) -> bool:
        """Whether an existing index is changed."""
        return self.add or bool(self.delete)
