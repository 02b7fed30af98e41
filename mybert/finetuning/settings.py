"""Settings of `mybert finetune`, `evaluate` and `predict`, with the defaults of the BERT paper."""

import dataclasses
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mybert.common.error_messages import short
from mybert.common.errors import UserError
from mybert.common.settings import (
    ENGINE_HELP,
    ENGINES,
    ERRORS,
    FILE,
    FOLDER,
    MODEL,
    RESUME_HELP,
    ROWS,
    TEXTS,
    DeviceOptions,
    as_list,
    check,
    check_choice,
    check_resume,
    setting,
)
from mybert.finetuning.tasks.options import OPTIONS, SearchOptions
from mybert.finetuning.tasks.registry import ALIASES, SEARCH_TASKS, TASKS
from mybert.io.files import file_format
from mybert.io.record_formats import READERS
from mybert.training.options import TrainingOptions

SWEEPS = {  # all combinations are tried; batch sizes are per device
    # Devlin et al. 2019, appendix A.3
    "paper": {"learning_rate": (5e-5, 4e-5, 3e-5, 2e-5), "batch_size": (16, 32), "epochs": (2, 3, 4)},
    # Turc et al. 2019, as released with their 24 small models
    "miniatures": {"learning_rate": (3e-4, 1e-4, 5e-5, 3e-5), "batch_size": (8, 16, 32, 64, 128), "epochs": (4,)},
}
EPOCHS = 3.0
"""The BERT paper has 2 to 4."""
_RATES = ((256, 1e-3), (512, 3e-4), (math.inf, 5e-5))
"""Learning rates of models whose hidden size is below a number: that of the BERT paper last, before it the highest
published for its small sizes. On SST-2, 1e-3 is better than 3e-4 for a hidden size of 128 and worse for 256."""
_TAGGING_RATES = ((384, 1e-3), *_RATES[1:])
"""Of token-classification: for a hidden size of 256, 1e-3 is better on CoNLL-2003 and EWT (benchmarks/RESULTS.md)."""
PREDICTION_FORMATS = (".jsonl", ".csv", ".tsv", ".parquet")
LABELLING_FORMS = {
    "jsonl": ".jsonl",
    "csv": ".csv",
    "label-studio": ".json",
    "doccano": ".jsonl",
    "argilla": ".json",
}
"""Forms of rows that a person labels, and the suffixes of their files."""
_VALIDATION_SHARE = 0.1
_ROWS = ".jsonl, .json, .csv, .tsv, .parquet, .xlsx, a saved data set, a Hub name or its local copy"


def default_epochs(steps_per_epoch: int) -> float:
    """`EPOCHS`; more if the run would have fewer than 100 steps, but at most 20.

    Few rows need more steps than three epochs give (Mosbach et al. 2021; Zhang et al. 2021; benchmarks/RESULTS.md).
    """
    return min(max(EPOCHS, float(math.ceil(100 / steps_per_epoch))), 20.0)


def default_learning_rate(hidden_size: int, task: str) -> float:
    """The learning rate for models of this width, by the name of the task."""
    rates = _TAGGING_RATES if task == "token-classification" else _RATES
    return next(rate for below, rate in rates if hidden_size < below)


@dataclass(kw_only=True)
class TaskSettings(*OPTIONS):
    """The options of all tasks."""


def _check_task(settings: Any, others: Sequence[str] = ()) -> None:
    """Replaces an alias such as `ner` by the name of the task; `others` are further tasks of the command."""
    if isinstance(settings.task, str):
        settings.task = ALIASES.get(settings.task.lower(), settings.task)
        if settings.task.lower() in ("regression", "multi-label"):
            raise UserError(
                f"--task {settings.task}: this is a kind of labels; use --task text-classification --problem "
                f"{settings.task.lower()}"
            )
    check_choice(settings, "task", [*TASKS, *others, *ALIASES])


_SEARCH_OPTIONS = tuple(field.name for field in dataclasses.fields(SearchOptions))
_NOT_FOR_SEARCH = (
    *("teacher", "unlabelled", "layers", "metric", "seeds", "sweep", "class_weights", "freeze", "calibrate", "slices"),
    *("bootstrap", "test", "suspects", "folds"),
)
_OF_ALL_TASKS = ("columns", "max_length")


def _check_search(settings: Any) -> None:
    """Raises a UserError for options that the task does not have, and without anything to train on."""
    searches = settings.task in SEARCH_TASKS
    own = tuple(field.name for field in dataclasses.fields(TaskSettings) if field.name not in _OF_ALL_TASKS)
    if settings.task == "reranking":
        own += ("dimensions", "start_share")
    for field in dataclasses.fields(settings):
        if field.name in ((*_NOT_FOR_SEARCH, *own) if searches else _SEARCH_OPTIONS):
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            if getattr(settings, field.name) != default:
                raise UserError(f"--{field.name.replace('_', '-')} has no effect on {settings.task}; leave it out")
    if settings.train is None and not settings.documents:
        raise UserError(f"missing --train: the rows to train on{', or --documents' * searches}")
    collection = [settings.queries, settings.judgements]
    if any(collection) and not (all(collection) and settings.documents):
        raise UserError("--queries and --judgements need each other and --documents")
    if settings.mined_pairs is not None and not settings.documents:
        raise UserError("--mined-pairs has no effect without --documents; leave it out")


@dataclass(kw_only=True)
class EvaluationOptions:
    """Options of commands that evaluate on labelled rows."""

    bootstrap: int = setting(1000, "Bootstrap samples for confidence intervals; 0 for none.", least=0)
    slices: list[str] = setting(
        default_factory=list,
        help="Columns by which rows are grouped; each group is scored separately (default: none).",
    )
    suspects: str = setting(
        "jsonl",
        "Form of the file with the rows whose label looks incorrect, suspects.*, for correcting them.",
        choices=LABELLING_FORMS,
    )
    errors: str = setting(
        "strict",
        "Rows that cannot be used stop the command (strict) or are left out and reported (skip).",
        choices=ERRORS,
    )


@dataclass(kw_only=True)
class FinetuneSettings(EvaluationOptions, SearchOptions, TaskSettings):
    """Model, rows and number of runs of a fine-tuning; `FinetuningArguments` has the optimisation."""

    command: ClassVar[str] = "finetune"
    free: ClassVar[tuple[str, ...]] = ("bootstrap", "slices", "metric_for_best_model", "greater_is_better")

    task: str = setting(help=f"One of {', '.join([*TASKS, *SEARCH_TASKS])}, or an alias such as sentiment, ner or qa.")
    model: str = setting(help="Folder or Hub name of the MyBERT or BERT checkpoint to start from.", reads=MODEL)
    train: str | list[str] | None = setting(
        None,
        f"Training rows, of one or several files: {_ROWS}. Required but for retrieval and reranking with --documents.",
        reads=ROWS,
    )
    validation: str | None = setting(
        None, "Rows for choosing the best checkpoint and the best combination of a sweep.", reads=ROWS
    )
    validation_share: float | None = setting(
        None,
        "Share of the training rows used for validation, chosen by their texts and --seed; 0 for none (default: 0.1 "
        "without --validation).",
    )
    folds: int | None = setting(
        None,
        "Cross-validation: this many models are trained, each without a part of the training rows, to predict that "
        "part in place of validation rows; the finished model is trained on all rows (default: 4 for few labels, "
        "otherwise none).",
        least=2,
    )
    test: str | None = setting(None, "Rows for evaluating the finished model.", reads=ROWS)
    output: str = setting(help="Folder of the finished model.", writes=FOLDER)
    teacher: str | None = setting(
        None,
        "Checkpoint fine-tuned for the same task, with the same vocabulary. The model is trained on its predictions "
        "in addition to the labels.",
        reads=MODEL,
    )
    unlabelled: str | None = setting(
        None, f"Rows without labels; the model is trained on the teacher's predictions for them: {_ROWS}.", reads=ROWS
    )
    temperature: float = setting(
        2.0, "Temperature of the teacher's and the student's distributions in the loss, above 0."
    )
    soft_share: float = setting(
        0.9, "Weight of the teacher's predictions in the loss, in (0, 1]; the labels have the remaining weight."
    )
    layers: int | None = setting(
        None, "Number of encoder layers of --model to keep, evenly spaced (default: all).", least=1
    )
    metric: str | None = setting(
        None,
        "Validation metric that chooses the best checkpoint (default: macro F1 if each text has one label, else the "
        "task's main metric).",
    )
    seeds: int = setting(
        1,
        "Number of runs with different seeds, starting with --seed; mean and standard deviation are reported.",
        least=1,
    )
    sweep: str | None = setting(
        None,
        "paper: 24 combinations of learning rate (5e-5 … 2e-5), batch size (16, 32) and epochs (2 to 4) of the BERT "
        "paper; miniatures: 20 combinations published for its small sizes (3e-4 … 3e-5; 8 to 128; 4).",
        choices=SWEEPS,
    )
    patience: int | None = setting(
        None, "Stop after this many evaluations without an improvement of the metric.", least=1
    )
    dropout: float | None = setting(
        None,
        "Dropout probability for hidden layers and attention, in [0, 1) (default: the checkpoint's; BERT has 0.1).",
    )
    attn_implementation: str | None = setting(
        None, "Attention backend: eager, sdpa, flex_attention, varlen_attn, flash_attention_2 … (default: sdpa)."
    )
    class_weights: bool = setting(False, "Weight each class by its inverse frequency.")
    freeze: str | None = setting(
        None, "Weights that are not trained; encoder: train the head only (default: none).", choices=("encoder",)
    )
    max_train_samples: int | None = setting(
        None, "Number of training rows, drawn at random by --seed (default: all).", least=1
    )
    calibrate: bool = setting(
        False,
        "Divide the logits by a temperature fitted on the validation rows, so that probabilities match accuracy "
        "(temperature scaling). Predicted labels do not change.",
    )
    dry_run: bool = setting(False, "Print the plan, measure a few steps, and write nothing.")
    resume: bool = setting(
        False, "Resume from the latest valid checkpoint in --output; start a new run if there is none."
    )
    overwrite: bool = setting(False, "Replace the run in the output folder.")

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.train, str | None):
            check(self, "train", len({*self.train}) == len(self.train) > 0, "one or several files, each once")
            self.train = self.train[0] if len(self.train) == 1 else list(self.train)
        _check_task(self, SEARCH_TASKS)
        _check_search(self)
        check(self, "dropout", self.dropout is None or 0 <= self.dropout < 1, "0 or more and below 1")
        check(self, "temperature", 0 < self.temperature < math.inf, "above 0")
        check(self, "soft_share", 0 < self.soft_share <= 1, "above 0 and at most 1")
        for name in ("unlabelled", "temperature", "soft_share"):
            if self.teacher is None and getattr(self, name) != getattr(type(self), name, None):
                raise UserError(f"--{name.replace('_', '-')} has no effect without --teacher")
        check_resume(self)
        share = self.validation_share
        check(self, "validation_share", share is None or 0 <= share < 1, "0 or more and below 1")
        if self.validation is not None and share:
            raise UserError("--validation-share holds out a part of --train, so it cannot be used with --validation")
        for name in ("validation", "validation_share", "sweep", "patience", "teacher", "calibrate"):
            if self.folds is not None and getattr(self, name):
                raise UserError(f"--folds predicts the training rows; leave it or --{name.replace('_', '-')} out")
        if self.folds is not None and self.seeds > 1:
            raise UserError("--folds trains with one seed; leave it or --seeds out")
        compares = self.validation is not None or self.share_held_out or self.folds
        for name in () if compares else ("sweep", "patience", "metric"):
            if getattr(self, name) is not None:
                raise UserError(f"--{name} needs validation rows: give --validation or a --validation-share above 0")

    @property
    def train_files(self) -> list[str]:
        """The names of the training rows."""
        return [self.train] if isinstance(self.train, str) else self.train or []

    @property
    def share_held_out(self) -> float:
        """Share of the training rows that is used for validation."""
        if self.validation is not None or self.folds is not None:
            return 0.0
        return _VALIDATION_SHARE if self.validation_share is None else self.validation_share


@dataclass(kw_only=True)
class InferenceSettings(DeviceOptions, TaskSettings):
    """Settings that evaluation and prediction share."""

    task: str | None = setting(None, f"One of {', '.join(TASKS)} (default: the checkpoint's).")
    max_length: int | None = setting(
        None, "Tokens per sequence, special tokens included (default: the value of fine-tuning).", least=8
    )

    def __post_init__(self):
        super().__post_init__()
        _check_task(self)


@dataclass(kw_only=True)
class EvaluateSettings(EvaluationOptions, InferenceSettings):
    """Model, labelled rows and output of `mybert evaluate`."""

    command: ClassVar[str] = "evaluate"

    model: str = setting(help="Folder or Hub name of a fine-tuned checkpoint or an encoder of texts.", reads=MODEL)
    data: str | None = setting(None, f"Labelled rows: {_ROWS}.", reads=ROWS)
    documents: list[str] = setting(
        default_factory=list,
        help="Instead of --data, for retrieval: documents with id and text, as BEIR, TREC or MS MARCO write them.",
        reads=TEXTS,
    )
    queries: str | None = setting(None, "Queries with an id and a text, in the same formats.", reads=TEXTS)
    judgements: str | None = setting(
        None, "Grades of documents for queries (qrels): three columns as in BEIR, or four as in TREC.", reads=ROWS
    )
    start: str | None = setting(
        None,
        "Model whose plain mean pooling --model is compared with (default: the one that its manifest names, or "
        "--model without its sentence modules).",
        reads=MODEL,
    )
    language: str | None = setting(
        None, "Language of BM25's stemmer and stop words, such as en; any for none (default: detected)."
    )
    output: str = setting(
        help="Output folder: results.json, predictions, report, and errors as text and picture.", writes=FOLDER
    )
    seed: int = setting(42, "Seed of the bootstrap samples.", least=0)
    overwrite: bool = setting(False, "Replace the output.")

    def __post_init__(self):
        super().__post_init__()
        self.documents = as_list(self.documents)
        collection = {name: getattr(self, name) for name in ("documents", "queries", "judgements")}
        missing = [f"--{name}" for name, value in collection.items() if not value]
        if len(missing) == len(collection):
            check(self, "data", bool(self.data), "labelled rows; or --documents, --queries and --judgements")
            given, needs = ("start", "language"), "--documents"
        elif missing:
            raise UserError(f"{' and '.join(missing)}: missing; retrieval needs --documents, --queries, --judgements")
        else:
            given, needs = ("data", "slices", "suspects"), "no --documents"
        for name in given:
            if getattr(self, name) not in (None, [], type(self).suspects):
                raise UserError(f"--{name} needs {needs}; remove it")


@dataclass(kw_only=True)
class PredictorSettings(InferenceSettings):
    """Settings of `Predictor`: the model, and how it reads rows."""

    model: str = setting("", "Folder or Hub name of a fine-tuned checkpoint.", positional=True, reads=MODEL)
    columns: list[str] = setting(
        default_factory=list, help="Columns without a usual name, as ROLE=COLUMN, such as text=body."
    )


@dataclass(kw_only=True)
class PredictSettings(PredictorSettings):
    """Model, rows without labels, and output of `mybert predict`."""

    command: ClassVar[str] = "predict"
    formats: ClassVar[tuple[str, ...]] = PREDICTION_FORMATS

    inputs: list[str] = setting(
        default_factory=list,
        positional=True,
        help="Rows without labels: files as `mybert finetune` reads them, .txt with one text per line, or `-` for "
        "JSON lines or plain texts, one per line, from standard input.",
        reads=ROWS,
    )
    output: str = setting(
        "-",
        f"File to write ({', '.join(PREDICTION_FORMATS)}): one prediction per row in order, with the row under "
        "`input`; `-` for JSON lines on standard output.",
        writes=FILE,
    )
    errors: str = setting(
        "strict",
        "Rows that cannot be used stop the command (strict) or get an `error` instead of a prediction (skip).",
        choices=ERRORS,
    )
    engine: str = setting("local", ENGINE_HELP, choices=ENGINES)
    resume: bool = setting(False, RESUME_HELP)
    spreadsheet_safe: bool = setting(
        False,
        "In .csv and .tsv, put an apostrophe before texts that spreadsheets would compute: those that begin with =, "
        "+, -, @ or a tab and are no numbers.",
    )
    overwrite: bool = setting(False, "Replace the output.")

    def __post_init__(self):
        super().__post_init__()
        self.inputs = as_list(self.inputs)
        if not self.model or not self.inputs:
            raise UserError(f"expected a checkpoint and at least one input: mybert {self.command} MODEL INPUT …")
        if self.output != "-" and Path(self.output).is_dir():
            raise UserError(f"output {self.output} is a folder; name a file")
        check_resume(self)
        if "-" in (self.output, *self.inputs) and (self.resume or self.engine != "local"):
            raise UserError("--resume and --engine ray need files as inputs and a file as --output")
        for name in self.inputs:
            self._refuse_text(name)
        known = self.output == "-" or Path(self.output).suffix in self.formats
        check(self, "output", known, f"a file name in {', '.join(self.formats)}")
        if self.spreadsheet_safe and not self.output.endswith((".csv", ".tsv")):
            raise UserError("--spreadsheet-safe has no effect without --output in .csv or .tsv; leave it out")

    def _refuse_text(self, name: str) -> None:
        """Raises if an input is a text instead of a name: it has a space and no known suffix, and is no file."""
        if len(name.split()) > 1 and file_format(name).kind not in (".txt", *READERS) and not os.path.exists(name):
            raise UserError(
                f"there is no file {short(name, 60)}; to {self.command} a text, write it into a .txt file, or use "
                f'standard input: echo "TEXT" | mybert {self.command} {shlex.quote(self.model)} -'
            )


@dataclass
class FinetuningOptions(TrainingOptions):
    """The fields of `FinetuningArguments` with the defaults of Devlin et al. 2019, appendix A.3.

    None stands for `default_learning_rate`, which depends on the model, and for `default_epochs`, on the rows.
    Adam has bias correction, which small training sets need and the paper's code omits (Mosbach et al. 2021).
    """

    complete: ClassVar[str] = "mybert.finetuning.arguments:FinetuningArguments"
    unsupported: ClassVar[Mapping[str, str]] = {
        "metric_for_best_model": "the best checkpoint is chosen by --metric",
        "greater_is_better": "the best checkpoint is chosen by --metric",
        "bf16_full_eval": "it would round the weights that are kept; --bf16 evaluates in bfloat16, too",
        "fp16_full_eval": "it would round the weights that are kept",
        "dataloader_drop_last": "every row is trained on and scored",
        "prediction_loss_only": "checkpoints are chosen by scores",
        "batch_eval_metrics": "scores are computed over all rows at once",
    }

    learning_rate: float | None = setting(
        None,
        "Peak learning rate (default: 5e-5 as in the paper; 3e-4 for hidden sizes below 512; 1e-3 below 256, or below "
        "384 for token-classification).",
    )
    num_train_epochs: float | None = setting(
        None, "Passes over the rows (default: 3; for few rows more, up to 20, so that there are about 100 steps)."
    )
    per_device_train_batch_size: int = setting(
        32, "Sequences (multiple-choice: rows) per device and forward pass (paper: 16 or 32)."
    )
    per_device_eval_batch_size: int = setting(
        64, "Evaluation sequences (multiple-choice: rows) per device and forward pass."
    )
    warmup_steps: float = setting(0.1, "Steps of linear warm-up, or their share if below 1.")
    logging_steps: float = setting(0.05, "Steps between logs, or their share if below 1.")
    eval_strategy: str = setting("epoch", "When to evaluate.", choices=("no", "steps", "epoch"))
    save_strategy: str = setting("epoch", "When to save a checkpoint.", choices=("no", "steps", "epoch"))
    save_total_limit: int | None = setting(1, "Maximum number of checkpoints during training, not counting the best.")
    load_best_model_at_end: bool = setting(True, "Keep the best checkpoint instead of the last.")

    @classmethod
    def check_values(cls, given: Any) -> None:
        if given.greater_is_better is not None:
            raise UserError(f"greater_is_better is not supported: {cls.unsupported['greater_is_better']}")
        super().check_values(given)
        if given.save_strategy == "best":
            raise UserError(
                "save_strategy best is not supported: the best checkpoint is always kept; --resume needs the last"
            )
        if given.load_best_model_at_end and given.save_strategy != given.eval_strategy:
            raise UserError(
                "--eval-strategy and --save-strategy differ, so the best checkpoint may not be saved; give both the "
                "same value, or add --load-best-model-at-end false"
            )
        every = given.eval_steps or given.logging_steps
        if given.load_best_model_at_end and given.eval_strategy == "steps":
            mixed = (every < 1) != (given.save_steps < 1)
            if mixed or round(given.save_steps * 1_000_000) % round(every * 1_000_000):
                raise UserError(
                    f"--save-steps {given.save_steps:g} is no multiple of --eval-steps {every:g}, so the best "
                    "checkpoint may not be saved; give a multiple, or add --load-best-model-at-end false"
                )
        if not given.eval_do_concat_batches:
            raise UserError("eval_do_concat_batches false is not supported: scores are computed over all rows at once")
