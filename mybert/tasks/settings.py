"""Settings of `mybert evaluate`, `mybert predict` and `Predictor`, and those that they share with fine-tuning."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from mybert.common.errors import UserError, short
from mybert.io.files import file_format
from mybert.io.record_formats import READERS
from mybert.settings import declare
from mybert.settings.declare import FILE, FOLDER, MODEL, ROWS, TEXTS, Options, check, check_effect, choice_of, setting
from mybert.settings.shared import ERRORS, DeviceOptions, EngineOption, OutputFolder, ResumeOptions
from mybert.tasks import ALIASES, TASKS
from mybert.tasks.options import (
    MultipleChoiceOptions,
    QuestionAnsweringOptions,
    TextClassificationOptions,
    TokenClassificationOptions,
)

PREDICTION_FORMATS = (".jsonl", ".csv", ".tsv", ".parquet")
LABELLING_FORMS = {
    "jsonl": ".jsonl",
    "csv": ".csv",
    "label-studio": ".json",
    "doccano": ".jsonl",
    "argilla": ".json",
}
"""Forms of rows that a person labels, and the suffixes of their files."""
ROW_FILES = ".jsonl, .json, .csv, .tsv, .parquet, .xlsx, a saved data set, a Hub name or its local copy"


@dataclass(kw_only=True)
class TaskSettings(
    TextClassificationOptions, TokenClassificationOptions, QuestionAnsweringOptions, MultipleChoiceOptions
):
    """The options of all tasks."""


def check_task(settings: Any, others: Sequence[str] = ()) -> None:
    """Replaces an alias such as `ner` by the name of the task; `others` are further tasks of the command."""
    if isinstance(settings.task, str):
        settings.task = ALIASES.get(settings.task.lower(), settings.task)
        if settings.task.lower() in ("regression", "multi-label"):
            raise UserError(
                f"--task {settings.task}: this is a kind of labels; use --task text-classification --problem "
                f"{settings.task.lower()}"
            )
    known = [*TASKS, *others, *ALIASES]
    if settings.task is not None and settings.task not in known:
        check(settings, "task", False, *choice_of(settings.task, known))


@dataclass(kw_only=True)
class EvaluationOptions(Options):
    """Options of commands that evaluate on labelled rows."""

    bootstrap: int = declare.evaluation(1000, "Bootstrap samples for confidence intervals; 0 for none.", least=0)
    slices: list[str] = declare.evaluation(
        default_factory=list,
        help="Columns by which rows are grouped; each group is scored separately (default: none).",
    )
    suspects: str = declare.evaluation(
        "jsonl",
        "Form of the file with the rows whose label looks incorrect, suspects.*, for correcting them.",
        choices=LABELLING_FORMS,
    )
    errors: str = declare.data(
        "strict",
        "Rows that cannot be used stop the command (strict) or are left out and reported (skip).",
        choices=ERRORS,
    )


@dataclass(kw_only=True)
class InferenceSettings(DeviceOptions, TaskSettings):
    """Settings that evaluation and prediction share."""

    task: str | None = declare.task(None, f"One of {', '.join(TASKS)} (default: the checkpoint's).")
    max_length: int | None = declare.data(
        None, "Tokens per sequence, special tokens included (default: the value of fine-tuning).", least=8
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_task(self)


@dataclass(kw_only=True)
class EvaluateSettings(EvaluationOptions, OutputFolder, InferenceSettings):
    """Model, labelled rows and output of `mybert evaluate`."""

    command: ClassVar[str] = "evaluate"

    model: str = setting(help="Folder or Hub name of a fine-tuned checkpoint or an encoder of texts.", reads=MODEL)
    data: str | None = declare.data(None, f"Labelled rows: {ROW_FILES}.", reads=ROWS, tables=True)
    documents: list[str] = declare.data(
        default_factory=list,
        help="Instead of --data, for retrieval: documents with id and text, as BEIR, TREC or MS MARCO write them, or "
        "folders of .txt and .md files, whose ids are their paths.",
        reads=TEXTS,
    )
    queries: str | None = declare.data(None, "Queries with an id and a text, in the same formats.", reads=TEXTS)
    judgements: str | None = declare.data(
        None, "Grades of documents for queries (qrels): three columns as in BEIR, or four as in TREC.", reads=ROWS
    )
    start: str | None = declare.model(
        None,
        "Model whose plain mean pooling --model is compared with (default: the one that its manifest names, or "
        "--model without its sentence modules).",
        reads=MODEL,
    )
    reranker: str | None = declare.model(
        None, "Cross-encoder that sorts the 100 best documents of the hybrid anew.", reads=MODEL
    )
    language: str | None = declare.data(
        None, "Language of BM25's stemmer and stop words, such as en; any for none (default: detected)."
    )
    output: str = setting(
        help="Output folder: results.json, predictions, report, and errors as text and picture.", writes=FOLDER
    )
    seed: int = declare.seeds(42, "Seed of the bootstrap samples.", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        collection = {name: getattr(self, name) for name in ("documents", "queries", "judgements")}
        missing = [f"--{name}" for name, value in collection.items() if not value]
        if 0 < len(missing) < len(collection):
            raise UserError(f"{' and '.join(missing)}: missing; retrieval needs --documents, --queries, --judgements")
        if missing and not self.data:
            raise UserError("missing --data: labelled rows; or --documents, --queries and --judgements")
        check_effect(self, "start reranker language", self.documents, "without --documents; remove it")
        of_rows = {field.name for field in fields(TaskSettings)} - {"columns", "max_length"}
        check_effect(
            self,
            " ".join(["data slices suspects task", *sorted(of_rows)]),
            not self.documents,
            "with --documents; remove it",
        )


@dataclass(kw_only=True)
class PredictorSettings(InferenceSettings):
    """Settings of `Predictor`: the model, and how it reads rows."""

    model: str = setting("", "Folder or Hub name of a fine-tuned checkpoint.", positional=True, reads=MODEL)
    columns: list[str] = declare.data(
        default_factory=list, help="Columns without a usual name, as ROLE=COLUMN, such as text=body.", pairs=True
    )


@dataclass(kw_only=True)
class PredictSettings(EngineOption, ResumeOptions, PredictorSettings):
    """Model, rows without labels, and output of `mybert predict`."""

    command: ClassVar[str] = "predict"
    formats: ClassVar[tuple[str, ...]] = PREDICTION_FORMATS

    inputs: list[str] = setting(
        default_factory=list,
        positional=True,
        help="Rows without labels: files as `mybert finetune` reads them, .txt or .md with one text per line, a "
        "folder of such files with one text each, or `-` for standard input with JSON lines or one text per line.",
        reads=ROWS,
    )
    output: str = declare.output(
        "-",
        f"File to write ({', '.join(PREDICTION_FORMATS)}): one prediction per row in order, with the row under "
        "`input`; `-` for JSON lines on standard output.",
        writes=FILE,
    )
    errors: str = declare.data(
        "strict",
        "Rows that cannot be used stop the command (strict) or get an `error` instead of a prediction (skip).",
        choices=ERRORS,
    )
    spreadsheet_safe: bool = declare.output(
        False,
        "In .csv and .tsv, put an apostrophe before texts that spreadsheets would compute: those that begin with =, "
        "+, -, @ or a tab and are no numbers.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output != "-" and Path(self.output).is_dir():
            raise UserError(f"output {self.output} is a folder; name a file")
        if "-" in (self.output, *self.inputs) and (self.resume or self.engine != "local"):
            raise UserError("--resume and --engine ray need files as inputs and a file as --output")
        for name in self.inputs:
            self._refuse_text(name)
        known = self.output == "-" or Path(self.output).suffix in self.formats
        check(self, "output", known, f"a file name in {', '.join(self.formats)}")
        is_table = self.output.endswith((".csv", ".tsv"))
        check_effect(self, "spreadsheet_safe", is_table, "without --output in .csv or .tsv; leave it out")

    def _refuse_text(self, name: str) -> None:
        """Raises if an input is a text instead of a name: it has a space and no known suffix, and is no file."""
        if len(name.split()) > 1 and file_format(name).kind not in (".txt", *READERS) and not os.path.exists(name):
            raise UserError(
                f"there is no file {short(name, 60)}; to {self.command} a text, write it into a .txt file, or use "
                f'standard input: echo "TEXT" | mybert {self.command} {shlex.quote(self.model)} -'
            )
