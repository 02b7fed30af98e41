"""What `mybert finetune`, `evaluate` and `predict` can be told, with the defaults of the BERT paper."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import TrainingArguments
from transformers.trainer_utils import SaveStrategy

from modeling_mybert.question_answering_mybert import MAX_ANSWER_LENGTH, MAX_LENGTH
from mybert.common.arguments import check_arguments, settle_arguments
from mybert.common.errors import UserError
from mybert.common.settings import DTYPES, ERRORS, check, check_choice, check_least, check_resume, setting

TASKS = ("text-classification", "token-classification", "question-answering", "multiple-choice")
PROBLEMS = {  # and what `config.problem_type` calls them
    "single-label": "single_label_classification",
    "multi-label": "multi_label_classification",
    "regression": "regression",
}
LONG_TEXTS = ("truncate", "window")
LABEL_PIECES = ("first", "all")
SWEEPS = {  # what each tries all combinations of, batches being of one device
    # Devlin et al. 2019, appendix A.3
    "paper": {"learning_rate": (5e-5, 4e-5, 3e-5, 2e-5), "batch_size": (16, 32), "epochs": (2, 3, 4)},
    # Turc et al. 2019, as released with their 24 small models
    "miniatures": {"learning_rate": (3e-4, 1e-4, 5e-5, 3e-5), "batch_size": (8, 16, 32, 64, 128), "epochs": (4,)},
}
FREEZES = ("encoder",)
PREDICTION_FORMATS = (".jsonl", ".csv", ".tsv", ".parquet")


@dataclass(kw_only=True)
class TaskSettings:
    """How rows become what the model reads, and what it says becomes an answer. A checkpoint remembers them.

    None means: as the checkpoint was fine-tuned, else the task's default.

    Raises:
        UserError: a value is out of range.
    """

    columns: list[str] = setting(
        default_factory=list,
        help="columns that do not have a usual name, as ROLE=COLUMN, such as text=body label=gold",
    )
    max_length: int | None = setting(
        None,
        "tokens that the model reads at once, special tokens included (default: as the checkpoint was fine-tuned, "
        f"else 128; {MAX_LENGTH} for questions)",
    )
    problem: str | None = setting(
        None,
        f"text-classification: {', '.join(PROBLEMS)} (default: by the labels: a list of them is multi-label, numbers "
        "with a fraction are regression)",
    )
    long_texts: str | None = setting(
        None,
        "text-classification: a text of more than max_length tokens is cut (truncate, the default) or read in windows "
        "whose logits are averaged (window)",
    )
    overlap: int | None = setting(
        None, "tokens that a window shares with the next, where long inputs are read in windows (default: a third)"
    )
    label_pieces: str | None = setting(
        None, "token-classification: the pieces of a word that are labelled: the first (default) or all"
    )
    n_best: int | None = setting(None, "question-answering: spans that are compared (default: 20)")
    max_answer_length: int | None = setting(
        None, f"question-answering: tokens of an answer at most (default: {MAX_ANSWER_LENGTH})"
    )

    def __post_init__(self):
        check_choice(self, "problem", PROBLEMS)
        check_choice(self, "long_texts", LONG_TEXTS)
        check_choice(self, "label_pieces", LABEL_PIECES)
        check_least(self, "max_length", 8)
        check_least(self, "overlap", 0)
        check_least(self, "n_best", 1)
        check_least(self, "max_answer_length", 1)
        if isinstance(self.columns, str):
            self.columns = self.columns.split()
        self.given_columns()

    def given_columns(self) -> dict[str, str]:
        """Canonical name → the column that was named for it."""
        for pair in self.columns:
            if "=" not in pair.strip("="):
                raise UserError(f"--columns: expected ROLE=COLUMN, such as text=body, found {pair!r}")
        return dict(pair.split("=", 1) for pair in self.columns)

    def with_defaults(self, *defaults: Mapping[str, Any]) -> "TaskSettings":
        """These settings alone, what is None taken from the first of `defaults` that has it."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(TaskSettings)}
        for name in values:
            for source in defaults:
                if values[name] in (None, []) and source.get(name) is not None:
                    values[name] = source[name]
        return TaskSettings(**values)


@dataclass(kw_only=True)
class FinetuneSettings(TaskSettings):
    """What is fine-tuned, on what and how often; how it is trained is in `FinetuningArguments`.

    Raises:
        UserError: a value is out of range, or two settings contradict each other.
    """

    task: str = setting(help=f"one of {', '.join(TASKS)}")
    model: str = setting(help="folder or Hub name of the MyBERT or BERT checkpoint to start from")
    train: str = setting(help="rows to train on: .jsonl, .json, .csv, .tsv, .parquet, a saved data set or a Hub name")
    validation: str | None = setting(None, "rows that choose the best checkpoint (and the best of a sweep)")
    test: str | None = setting(None, "rows that the finished model is evaluated on, once")
    output: str = setting(help="folder of the finished model")
    metric: str | None = setting(None, "validation metric that chooses the best checkpoint (default: the task's)")
    seeds: int = setting(1, "how many seeds to train with, from --seed on; mean and deviation are reported")
    sweep: str | None = setting(
        None,
        "paper: the 24 combinations of learning rate (5e-5 … 2e-5), batch size (16, 32) and epochs (2 to 4) of BERT's "
        "paper; miniatures: the 20 published for its small sizes (3e-4 … 3e-5; 8 to 128; 4)",
    )
    patience: int | None = setting(None, "stop when this many evaluations in a row have not improved the metric")
    dropout: float | None = setting(
        None,
        "dropout of layers and attention, in [0, 1); the checkpoint's when nothing is said. Where that was pretrained "
        "without, BERT's is 0.1",
    )
    attn_implementation: str | None = setting(
        None, "attention backend: eager, sdpa (the default), flex_attention, varlen_attn, flash_attention_2 …"
    )
    class_weights: bool = setting(False, "weigh each class by how rare it is")
    freeze: str | None = setting(None, "encoder: train the head alone on the vectors of the model as it is")
    train_limit: int | None = setting(None, "train on the first rows only, as many as this")
    errors: str = setting("strict", "stop when a row cannot be used (strict), or leave it out and count it (skip)")
    bootstrap: int = setting(1000, "samples drawn for confidence intervals; 0 for none")
    resume: bool = setting(False, "go on with the run in the output folder; begin where there is none yet")
    overwrite: bool = setting(False, "replace the run in the output folder")

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "task", TASKS)
        check_choice(self, "sweep", SWEEPS)
        check(self, "dropout", self.dropout is None or 0 <= self.dropout < 1, "0 or more and below 1")
        check_choice(self, "freeze", FREEZES)
        check_choice(self, "errors", ERRORS)
        for name in ("seeds", "patience", "train_limit"):
            check_least(self, name, 1)
        check_least(self, "bootstrap", 0)
        check_resume(self)
        if self.validation is None:
            for name in ("sweep", "patience", "metric"):
                if getattr(self, name) is not None:
                    raise UserError(f"--{name} needs --validation: without it there is nothing to choose by")


@dataclass(kw_only=True)
class EvaluateSettings(TaskSettings):
    """What is evaluated on what.

    Raises:
        UserError: a value is out of range.
    """

    model: str = setting(help="folder or Hub name of a checkpoint with the head of a task")
    data: str = setting(help="labelled rows: .jsonl, .json, .csv, .tsv, .parquet, a saved data set or a Hub name")
    output: str = setting(help="folder of results.json, the predictions, and the errors as picture and text")
    task: str | None = setting(None, f"one of {', '.join(TASKS)} (default: that of the checkpoint)")
    bootstrap: int = setting(1000, "samples drawn for confidence intervals; 0 for none")
    seed: int = setting(42, "of the samples")
    errors: str = setting("strict", "stop when a row cannot be used (strict), or leave it out and count it (skip)")
    batch_tokens: int | None = setting(None, "tokens of a batch at most (default: 4096 on the CPU, 32768 elsewhere)")
    device: str = setting("auto", "where to compute, such as cpu or cuda:1; auto: the GPU if there is one")
    dtype: str = setting("float32", f"numbers of the model: {' or '.join(DTYPES)}, faster where the device has it")
    overwrite: bool = setting(False, "replace the output folder")

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "task", TASKS)
        check_choice(self, "errors", ERRORS)
        check_choice(self, "dtype", DTYPES)
        check_least(self, "bootstrap", 0)
        check_least(self, "batch_tokens", 1)


@dataclass(kw_only=True)
class PredictSettings(TaskSettings):
    """What is predicted of what.

    Raises:
        UserError: a value is out of range.
    """

    model: str = setting("", "folder or Hub name of a checkpoint with the head of a task", positional=True)
    inputs: list[str] = setting(
        default_factory=list,
        positional=True,
        help="rows without labels: files as `mybert finetune` reads them, .txt with one text a line, or `-` for JSON "
        "lines (or plain texts, one a line; words to tag stand between spaces) from standard input",
    )
    output: str = setting(
        "-",
        f"file to write: {', '.join(PREDICTION_FORMATS)}, a prediction for each row in order, with the row itself "
        "under `input`; `-` for JSON lines on standard output",
    )
    task: str | None = setting(None, f"one of {', '.join(TASKS)} (default: that of the checkpoint)")
    errors: str = setting(
        "strict", "stop when a row cannot be used (strict), or write its `error` in place of a prediction (skip)"
    )
    batch_tokens: int | None = setting(None, "tokens of a batch at most (default: 4096 on the CPU, 32768 elsewhere)")
    device: str = setting("auto", "where to compute, such as cpu or cuda:1; auto: the GPU if there is one")
    dtype: str = setting("float32", f"numbers of the model: {' or '.join(DTYPES)}, faster where the device has it")
    overwrite: bool = setting(False, "replace OUTPUT")

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "task", TASKS)
        check_choice(self, "errors", ERRORS)
        check_choice(self, "dtype", DTYPES)
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

    Adam has its bias correction, which the paper's code left out and small data need (Mosbach et al. 2021).
    """

    learning_rate: float = field(default=5e-5, metadata={"help": "Peak learning rate (paper: 5e-5 to 2e-5)."})
    num_train_epochs: float = field(default=3.0, metadata={"help": "Passes over the rows (paper: 2 to 4)."})
    per_device_train_batch_size: int = field(
        default=32, metadata={"help": "Features per device and forward pass (paper: 16 or 32)."}
    )
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "The same in evaluation."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Steps of linear warm-up, or their share if below 1."})
    weight_decay: float = field(
        default=0.01, metadata={"help": "Weight decay, on everything but biases and norms (paper: 0.01)."}
    )
    adam_epsilon: float = field(default=1e-6, metadata={"help": "Adam's epsilon (the paper's code: 1e-6)."})
    logging_steps: float = field(default=0.05, metadata={"help": "Steps between logs, or their share if below 1."})
    logging_nan_inf_filter: bool = field(
        default=False, metadata={"help": "Hide losses that are not finite; costs a device synchronisation a step."}
    )
    eval_strategy: str = field(default="epoch", metadata={"help": "When to evaluate: no, steps or epoch."})
    save_strategy: str = field(default="epoch", metadata={"help": "When to save a checkpoint: as eval_strategy."})
    save_total_limit: int | None = field(
        default=1, metadata={"help": "How many checkpoints to keep beside the best while training."}
    )
    include_num_input_tokens_seen: str = field(
        default="non_padding", metadata={"help": "Which tokens to count: all, non_padding or no."}
    )
    load_best_model_at_end: bool = field(default=True, metadata={"help": "Keep the best checkpoint, not the last."})

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
