"""Settings of `mybert finetune`, with the defaults of the BERT paper."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mybert.common.errors import UserError
from mybert.common.machine import launched_processes
from mybert.settings import declare
from mybert.settings.declare import (
    FOLDER,
    MODEL,
    ROWS,
    TRAINABLE,
    check,
    check_effect,
    flag_of,
    setting,
)
from mybert.settings.shared import RunOptions
from mybert.tasks import SEARCH_TASKS, TASKS
from mybert.tasks.options import SearchTaskOptions
from mybert.tasks.settings import ROW_FILES, EvaluationOptions, TaskSettings, check_task
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
_HIGHER_RATES = ((384, 1e-3), *_RATES[1:])
"""Of token-classification and retrieval: for a hidden size of 256, 1e-3 is better on CoNLL-2003 and EWT, and on the
documents of two collections (benchmarks/RESULTS.md)."""
_VALIDATION_SHARE = 0.1
BATCH, _FEW_QUESTIONS = 32, 5000
"""Sequences of a batch, and the features below which question answering has smaller batches."""


def default_epochs(steps_per_epoch: int) -> float:
    """`EPOCHS`; more if the run would have fewer than 100 steps, but at most 20.

    Few rows need more steps than three epochs give (Mosbach et al. 2021; Zhang et al. 2021; benchmarks/RESULTS.md).
    """
    return min(max(EPOCHS, float(math.ceil(100 / steps_per_epoch))), 20.0)


def default_batch_size(features: int, task: str) -> int:
    """8 for question answering with few features, which needs more steps; else `BATCH`.

    Of MiniLM on 1,550 questions of SQuAD, three epochs have F1 0.49 with 8 and 0.42 with 32.
    """
    return 8 if task == "question-answering" and features < _FEW_QUESTIONS else BATCH


def default_learning_rate(hidden_size: int, task: str) -> float:
    """The learning rate for models of this width, by the name of the task."""
    rates = _HIGHER_RATES if task in ("token-classification", "retrieval") else _RATES
    return next(rate for below, rate in rates if hidden_size < below)


_SEARCH_TASK_OPTIONS = tuple(field.name for field in dataclasses.fields(SearchTaskOptions))
_NOT_FOR_SEARCH = (
    *("teacher", "unlabelled", "layers", "metric", "seeds", "sweep", "class_weights", "freeze", "calibrate", "slices"),
    *("bootstrap", "test", "suspects", "folds", "max_train_samples"),
)
_OF_ALL_TASKS = ("columns", "max_length")


def _check_search(settings: Any) -> None:
    """Raises a UserError for options that the task does not have, and without anything to train on."""
    searches = settings.task in SEARCH_TASKS
    if searches and launched_processes() > 1:  # here, before the processes connect
        raise UserError(f"--task {settings.task} trains in one process; start it without torchrun")
    own = tuple(field.name for field in dataclasses.fields(TaskSettings) if field.name not in _OF_ALL_TASKS)
    if settings.task == "reranking":
        own += ("dimensions",)
    unused = (*_NOT_FOR_SEARCH, *own) if searches else _SEARCH_TASK_OPTIONS
    check_effect(settings, " ".join(unused), False, f"on {settings.task}; leave it out")
    if settings.train is None and not settings.documents:
        raise UserError(f"missing --train: the rows to train on{', or --documents' * searches}")
    collection = [settings.queries, settings.judgements]
    if any(collection) and not (all(collection) and settings.documents):
        raise UserError("--queries and --judgements need each other and --documents")
    check_effect(settings, "mined_pairs", settings.documents, "without --documents; leave it out")
    has_rows = settings.train is not None or settings.judgements is not None
    alone = "with --documents alone, which need no training steps; leave it out"
    check_effect(settings, "hard_negatives dropout patience", has_rows or settings.task != "retrieval", alone)


@dataclass(kw_only=True)
class FinetuneSettings(EvaluationOptions, RunOptions, SearchTaskOptions, TaskSettings):
    """Model, rows and number of runs of a fine-tuning; `FinetuningArguments` has the optimisation."""

    command: ClassVar[str] = "finetune"
    free: ClassVar[tuple[str, ...]] = ("bootstrap", "slices", "metric_for_best_model", "greater_is_better")

    task: str = setting(help=f"One of {', '.join([*TASKS, *SEARCH_TASKS])}, or an alias such as sentiment, ner or qa.")
    model: str = setting(help="Folder or Hub name of the MyBERT or BERT checkpoint to start from.", reads=TRAINABLE)
    train: str | list[str] | None = declare.data(
        None,
        f"Training rows, of one or several files: {ROW_FILES}. Required but for retrieval and reranking with "
        "--documents.",
        reads=ROWS,
        tables=True,
    )
    validation: str | None = declare.data(
        None, "Rows for choosing the best checkpoint and the best combination of a sweep.", reads=ROWS, tables=True
    )
    validation_share: float | None = declare.data(
        None,
        "Share of the training rows used for validation, chosen by their texts and --seed; 0 for none (default: 0.1 "
        "without --validation).",
        within="[0, 1)",
    )
    folds: int | None = declare.data(
        None,
        "Cross-validation: this many models are trained, each without a part of the training rows, to predict that "
        "part in place of validation rows; the finished model is trained on all rows (default: 4 for few labels, "
        "otherwise none).",
        least=2,
    )
    test: str | None = declare.data(None, "Rows for evaluating the finished model.", reads=ROWS, tables=True)
    output: str = setting(help="Folder of the finished model.", writes=FOLDER)
    teacher: str | None = declare.teacher(
        None,
        "Checkpoint fine-tuned for the same task, with the same vocabulary. The model is trained on its predictions "
        "in addition to the labels.",
        reads=MODEL,
    )
    unlabelled: str | None = declare.teacher(
        None,
        f"Rows without labels; the model is trained on the teacher's predictions for them: {ROW_FILES}.",
        reads=ROWS,
        tables=True,
    )
    temperature: float = declare.teacher(
        2.0, "Temperature of the teacher's and the student's distributions in the loss, above 0.", within="(0, inf)"
    )
    soft_share: float = declare.teacher(
        0.9,
        "Weight of the teacher's predictions in the loss, in (0, 1]; the labels have the remaining weight.",
        within="(0, 1]",
    )
    layers: int | None = declare.model(
        None, "Number of encoder layers of --model to keep, evenly spaced (default: all).", least=1
    )
    metric: str | None = declare.evaluation(
        None,
        "Validation metric that chooses the best checkpoint (default: macro F1 if each text has one label, else the "
        "task's main metric).",
    )
    seeds: int = declare.seeds(
        1,
        "Number of runs with different seeds, starting with --seed; mean and standard deviation are reported.",
        least=1,
    )
    sweep: str | None = declare.training(
        None,
        "paper: 24 combinations of learning rate (5e-5 … 2e-5), batch size (16, 32) and epochs (2 to 4) of the BERT "
        "paper; miniatures: 20 combinations published for its small sizes (3e-4 … 3e-5; 8 to 128; 4).",
        choices=SWEEPS,
    )
    patience: int | None = declare.training(
        None, "Stop after this many evaluations without an improvement of the metric.", least=1
    )
    dropout: float | None = declare.model(
        None,
        "Dropout probability for hidden layers and attention, in [0, 1) (default: the checkpoint's; BERT has 0.1).",
        within="[0, 1)",
    )
    class_weights: bool = declare.training(False, "Weight each class by its inverse frequency.")
    freeze: str | None = declare.model(
        None, "Weights that are not trained; encoder: train the head only (default: none).", choices=("encoder",)
    )
    max_train_samples: int | None = declare.data(
        None, "Number of training rows, drawn at random by --seed (default: all).", least=1
    )
    calibrate: bool = declare.evaluation(
        False,
        "Divide the logits by a temperature fitted on the validation rows, so that probabilities match accuracy "
        "(temperature scaling). Predicted labels do not change.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.train, str | None):
            check(self, "train", len({*self.train}) == len(self.train) > 0, "one or several files, each once")
            self.train = self.train[0] if len(self.train) == 1 else list(self.train)
        check_task(self, SEARCH_TASKS)
        _check_search(self)
        check_effect(self, "unlabelled temperature soft_share", self.teacher, "without --teacher")
        has_several = self.problem in (None, "multi-label")
        check_effect(self, "label_separator", has_several, f"with --problem {self.problem}; leave one of them out")
        if self.validation is not None and self.validation_share:
            raise UserError("--validation-share holds out a part of --train, so it cannot be used with --validation")
        for name in ("validation", "validation_share", "sweep", "patience", "teacher", "calibrate"):
            if self.folds is not None and getattr(self, name):
                raise UserError(f"--folds predicts the training rows; leave it or {flag_of(name)} out")
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


@dataclass
class FinetuningOptions(TrainingOptions):
    """The fields of `FinetuningArguments` with the defaults of Devlin et al. 2019, appendix A.3.

    None stands for `default_learning_rate`, which depends on the model, and for `default_epochs`, on the rows.
    Adam has bias correction, which small training sets need and the paper's code omits (Mosbach et al. 2021).
    """

    arguments_class: ClassVar[str] = "mybert.finetuning.arguments:FinetuningArguments"
    unsupported: ClassVar[Mapping[str, str]] = {
        "metric_for_best_model": "the best checkpoint is chosen by --metric",
        "greater_is_better": "the best checkpoint is chosen by --metric",
        "bf16_full_eval": "it would round the weights that are kept; --bf16 evaluates in bfloat16, too",
        "fp16_full_eval": "it would round the weights that are kept",
        "dataloader_drop_last": "every row is trained on and scored",
        "prediction_loss_only": "checkpoints are chosen by scores",
        "batch_eval_metrics": "scores are computed over all rows at once",
    }

    learning_rate: float | None = declare.training(
        None,
        "Peak learning rate (default: 5e-5 as in the paper; 3e-4 for hidden sizes below 512; 1e-3 below 256, or below "
        "384 for token-classification and retrieval. Rerankers: 5e-5; sentence encoders: 2e-5).",
    )
    num_train_epochs: float | None = declare.training(
        None, "Passes over the rows (default: 3; for few rows more, up to 20, so that there are about 100 steps)."
    )
    per_device_train_batch_size: int | None = declare.batches(
        None,
        "Sequences (multiple-choice: rows) per device and forward pass (default: 32; 8 for question-answering with "
        "few questions; paper: 16 or 32).",
    )
    per_device_eval_batch_size: int = declare.batches(
        64, "Evaluation sequences (multiple-choice: rows) per device and forward pass."
    )
    warmup_steps: float = declare.training(0.1, "Steps of linear warm-up; below 1, a share of all steps.")
    logging_steps: float = declare.output(0.05, "Steps between logs; below 1, a share of all steps.")
    eval_strategy: str = declare.evaluation("epoch", "When to evaluate.", choices=("no", "steps", "epoch"))
    save_strategy: str = declare.output("epoch", "When to save a checkpoint.", choices=("no", "steps", "epoch"))
    save_total_limit: int | None = declare.output(
        1, "Maximum number of checkpoints during training, not counting the best."
    )
    load_best_model_at_end: bool = declare.evaluation(True, "Keep the best checkpoint instead of the last.")

    @classmethod
    def check_values(cls, given: Any) -> None:
        if given.greater_is_better is not None:
            raise UserError(f"greater_is_better is not supported: {cls.unsupported['greater_is_better']}")
        super().check_values(given)
        if given.load_best_model_at_end and given.save_strategy != given.eval_strategy:
            raise UserError(
                "--eval-strategy and --save-strategy differ, so the best checkpoint may not be saved; give both the "
                "same value, or add --load-best-model-at-end false"
            )
        if not given.eval_do_concat_batches:
            raise UserError("eval_do_concat_batches false is not supported: scores are computed over all rows at once")
