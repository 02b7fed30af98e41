"""Settings of `mybert finetune`, `evaluate` and `predict`, with the defaults of the BERT paper."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import TrainingArguments
from transformers.trainer_utils import SaveStrategy

from mybert.common.errors import UserError
from mybert.common.settings import (
    DTYPES,
    ERRORS,
    check,
    check_choice,
    check_least,
    check_resume,
    setting,
)
from mybert.finetuning.tasks.registry import ALIASES, OPTIONS, TASKS
from mybert.training.arguments import check_arguments, settle_arguments

SWEEPS = {  # all combinations are tried; batch sizes are per device
    # Devlin et al. 2019, appendix A.3
    "paper": {"learning_rate": (5e-5, 4e-5, 3e-5, 2e-5), "batch_size": (16, 32), "epochs": (2, 3, 4)},
    # Turc et al. 2019, as released with their 24 small models
    "miniatures": {"learning_rate": (3e-4, 1e-4, 5e-5, 3e-5), "batch_size": (8, 16, 32, 64, 128), "epochs": (4,)},
}
FREEZES = ("encoder",)
PREDICTION_FORMATS = (".jsonl", ".csv", ".tsv", ".parquet")
_VALIDATION_SHARE = 0.1
_ROWS = ".jsonl, .json, .csv, .tsv, .parquet, .xlsx, a saved data set or a Hub name"


@dataclass(kw_only=True)
class TaskSettings(*OPTIONS):
    """The options of all tasks; each option belongs to one task or to several."""


def _check_task(settings: Any) -> None:
    """Replaces an alias such as `ner` by the name of the task.

    Raises:
        UserError: there is no such task.
    """
    if isinstance(settings.task, str):
        settings.task = ALIASES.get(settings.task.lower(), settings.task)
    check_choice(settings, "task", TASKS)


@dataclass(kw_only=True)
class FinetuneSettings(TaskSettings):
    """Model, rows and number of runs of a fine-tuning; `FinetuningArguments` has the optimisation.

    Raises:
        UserError: a value is out of range, or two settings contradict each other.
    """

    task: str = setting(help=f"One of {', '.join(TASKS)}, or an alias such as sentiment, ner or qa.")
    model: str = setting(help="Folder or Hub name of the MyBERT or BERT checkpoint to start from.")
    train: str = setting(help=f"Training rows: {_ROWS}.")
    validation: str | None = setting(None, "Rows that choose the best checkpoint, and the best recipe of a sweep.")
    validation_share: float | None = setting(
        None,
        "Share of the training rows used for validation, stratified by label; 0 for none (default: 0.1 without "
        "--validation).",
    )
    test: str | None = setting(None, "Rows on which the finished model is evaluated.")
    output: str = setting(help="Folder of the finished model.")
    metric: str | None = setting(
        None, "Validation metric that chooses the best checkpoint (default: the task's main metric)."
    )
    seeds: int = setting(1, "Number of seeds to train with, from --seed on; mean and deviation are reported.")
    sweep: str | None = setting(
        None,
        "paper: 24 combinations of learning rate (5e-5 … 2e-5), batch size (16, 32) and epochs (2 to 4) of the BERT "
        "paper; miniatures: 20 combinations published for its small sizes (3e-4 … 3e-5; 8 to 128; 4).",
        choices=SWEEPS,
    )
    patience: int | None = setting(None, "Stop after this many evaluations without an improvement of the metric.")
    dropout: float | None = setting(
        None,
        "Dropout probability for hidden layers and attention, in [0, 1) (default: the checkpoint's; BERT has 0.1).",
    )
    attn_implementation: str | None = setting(
        None, "Attention backend: eager, sdpa, flex_attention, varlen_attn, flash_attention_2 … (default: sdpa)."
    )
    class_weights: bool = setting(False, "Weight each class by its inverse frequency.")
    freeze: str | None = setting(
        None, "Weights that stay fixed; encoder trains the head only (default: none).", choices=FREEZES
    )
    max_train_samples: int | None = setting(
        None, "Number of training rows, drawn at random by --seed (default: all).", old_name="train_limit"
    )
    errors: str = setting(
        "strict", "Rows that cannot be used: stop, or leave them out and report them.", choices=ERRORS
    )
    bootstrap: int = setting(1000, "Bootstrap samples for confidence intervals; 0 for none.")
    dry_run: bool = setting(False, "Print the plan, measure a few steps, and write nothing.")
    resume: bool = setting(
        False, "Resume the run in the output folder from its last checkpoint; start a new run if there is none."
    )
    overwrite: bool = setting(False, "Replace the run in the output folder.")

    def __post_init__(self):
        super().__post_init__()
        _check_task(self)
        check(self, "dropout", self.dropout is None or 0 <= self.dropout < 1, "0 or more and below 1")
        for name in ("seeds", "patience", "max_train_samples"):
            check_least(self, name, 1)
        check_least(self, "bootstrap", 0)
        check_resume(self)
        share = self.validation_share
        check(self, "validation_share", share is None or 0 <= share < 1, "0 or more and below 1")
        if self.validation is not None and share:
            raise UserError("--validation-share splits --train where there is no --validation; leave one of them out")
        for name in () if self.validation is not None or self.share_held_out else ("sweep", "patience", "metric"):
            if getattr(self, name) is not None:
                raise UserError(f"--{name} needs validation rows: give --validation or a --validation-share above 0")

    @property
    def share_held_out(self) -> float:
        """Share of the training rows that is used for validation."""
        if self.validation is not None:
            return 0.0
        return _VALIDATION_SHARE if self.validation_share is None else self.validation_share


@dataclass(kw_only=True)
class EvaluateSettings(TaskSettings):
    """Model and rows of an evaluation.

    Raises:
        UserError: a value is out of range.
    """

    model: str = setting(help="Folder or Hub name of a fine-tuned checkpoint.")
    data: str = setting(help=f"Labelled rows: {_ROWS}.")
    output: str = setting(help="Folder of results.json, the predictions, and the errors as picture and text.")
    task: str | None = setting(None, f"One of {', '.join(TASKS)} (default: the checkpoint's).")
    bootstrap: int = setting(1000, "Bootstrap samples for confidence intervals; 0 for none.")
    seed: int = setting(42, "Seed of the bootstrap samples.")
    errors: str = setting(
        "strict", "Rows that cannot be used: stop, or leave them out and report them.", choices=ERRORS
    )
    batch_tokens: int | None = setting(None, "Maximum tokens per batch (default: 4096 on the CPU, 32768 elsewhere).")
    device: str = setting("auto", "Device, such as cpu or cuda:1; auto: the GPU if there is one.")
    dtype: str = setting("float32", "Data type of the model.", choices=DTYPES)
    overwrite: bool = setting(False, "Replace the output folder.")

    def __post_init__(self):
        super().__post_init__()
        _check_task(self)
        check_least(self, "bootstrap", 0)
        check_least(self, "batch_tokens", 1)


@dataclass(kw_only=True)
class PredictSettings(TaskSettings):
    """Model and rows of a prediction.

    Raises:
        UserError: a value is out of range.
    """

    model: str = setting("", "Folder or Hub name of a fine-tuned checkpoint.", positional=True)
    inputs: list[str] = setting(
        default_factory=list,
        positional=True,
        help="Rows without labels: files as `mybert finetune` reads them, .txt with one text per line, or `-` for "
        "JSON lines or plain texts, one per line, from standard input.",
    )
    output: str = setting(
        "-",
        f"File to write ({', '.join(PREDICTION_FORMATS)}): one prediction per row in order, with the row under "
        "`input`; `-` for JSON lines on standard output.",
    )
    task: str | None = setting(None, f"One of {', '.join(TASKS)} (default: the checkpoint's).")
    errors: str = setting(
        "strict", "Rows that cannot be used: stop, or write an `error` in place of the prediction.", choices=ERRORS
    )
    batch_tokens: int | None = setting(None, "Maximum tokens per batch (default: 4096 on the CPU, 32768 elsewhere).")
    device: str = setting("auto", "Device, such as cpu or cuda:1; auto: the GPU if there is one.")
    dtype: str = setting("float32", "Data type of the model.", choices=DTYPES)
    overwrite: bool = setting(False, "Replace OUTPUT.")

    def __post_init__(self):
        super().__post_init__()
        _check_task(self)
        check_least(self, "batch_tokens", 1)
        self.inputs = [self.inputs] if isinstance(self.inputs, str) else list(self.inputs)
        if not self.model or not self.inputs:
            raise UserError("expected a checkpoint and at least one input: mybert predict MODEL INPUT …")
        if self.output != "-" and Path(self.output).is_dir():
            raise UserError(f"output {self.output} is a folder; name a file")
        known = self.output == "-" or Path(self.output).suffix in PREDICTION_FORMATS
        check(self, "output", known, f"a file name in {', '.join(PREDICTION_FORMATS)}")


@dataclass
class FinetuningArguments(TrainingArguments):
    """transformers' TrainingArguments with the defaults of Devlin et al. 2019, appendix A.3.

    Adam has bias correction, which small training sets need and the paper's code omits (Mosbach et al. 2021).
    """

    learning_rate: float = setting(5e-5, "Peak learning rate (paper: 5e-5 to 2e-5).")
    num_train_epochs: float = setting(3.0, "Passes over the rows (paper: 2 to 4).")
    per_device_train_batch_size: int = setting(32, "Features per device and forward pass (paper: 16 or 32).")
    per_device_eval_batch_size: int = setting(64, "Features per device and forward pass in evaluation.")
    warmup_steps: float = setting(0.1, "Steps of linear warm-up, or their share if below 1.")
    weight_decay: float = setting(0.01, "Weight decay of all weights except biases and norms (paper: 0.01).")
    adam_epsilon: float = setting(1e-6, "Adam's epsilon (the paper's code: 1e-6).")
    logging_steps: float = setting(0.05, "Steps between logs, or their share if below 1.")
    logging_nan_inf_filter: bool = setting(
        False, "Hide losses that are not finite; costs a device synchronisation per step."
    )
    eval_strategy: str = setting("epoch", "When to evaluate.", choices=("no", "steps", "epoch"))
    save_strategy: str = setting("epoch", "When to save a checkpoint.", choices=("no", "steps", "epoch"))
    save_total_limit: int | None = setting(1, "Maximum number of checkpoints during training, beside the best.")
    load_best_model_at_end: bool = setting(True, "Keep the best checkpoint instead of the last.")
    max_steps: int = setting(-1, "Number of optimizer steps; -1 trains --num-train-epochs.")
    seed: int = setting(42, "Random seed (0 or more).")
    bf16: bool = setting(False, "Compute in bfloat16; weights stay in float32.")

    label_names: list[str] | None = field(default=None, init=False)  # --label-names renames classes instead

    def __post_init__(self):
        settle_arguments(self)
        for name in ("metric_for_best_model", "greater_is_better"):  # before transformers fills them in
            if getattr(self, name) is not None:
                raise UserError(f"{name} is not supported: the best checkpoint is chosen by --metric")
        super().__post_init__()
        unsupported = {
            "bf16_full_eval": "it would round the weights that are kept; --bf16 true evaluates in bfloat16, too",
            "fp16_full_eval": "it would round the weights that are kept",
            "push_to_hub": "`mybert push` uploads the finished model, verified",
            "dataloader_drop_last": "every row is trained on and scored",
            "prediction_loss_only": "checkpoints are chosen by scores",
            "batch_eval_metrics": "scores are of all rows together",
        }
        check_arguments(self, unsupported)
        if self.save_strategy == SaveStrategy.BEST:
            raise UserError("save_strategy best is not supported: the best is kept anyway, --resume needs the last")
        if not self.eval_do_concat_batches:
            raise UserError("eval_do_concat_batches false is not supported: scores are of all rows together")
