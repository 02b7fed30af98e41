"""Training arguments that pretraining and fine-tuning share: those with other defaults than in transformers, the
checks of all, and those that determine the weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mybert.common.errors import UserError, did_you_mean
from mybert.settings import declare
from mybert.settings.declare import flag_of, in_words, is_within

TRACKERS = (
    *("azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub", "dvclive", "flyte", "kubeflow", "mlflow", "neptune"),
    *("swanlab", "tensorboard", "trackio", "wandb"),
)
"""Those of transformers."""


@dataclass
class TrainingOptions:
    """Fields that pretraining and fine-tuning share; subclasses add theirs.

    They are declared here because importing TrainingArguments takes seconds, and `--help` must be fast.

    Attributes:
        arguments_class: of a subclass, the class with all fields of TrainingArguments, as module:class.
        unsupported: fields of TrainingArguments that are refused, with a remedy or reason.
    """

    arguments_class: ClassVar[str]
    unsupported: ClassVar[Mapping[str, str]] = {
        "resume_from_checkpoint": "use --resume",
        "neftune_noise_alpha": "its noise assumes padded batches",
        "use_liger_kernel": "it does not support MyBERT",
        "label_names": "the model's heads define them",
        **dict.fromkeys(
            ("push_to_hub", "hub_model_id", "hub_token", "hub_private_repo", "hub_revision", "hub_always_push"),
            "`mybert push` uploads the finished model, verified",
        ),
    }

    max_steps: int = declare.training(-1, "Number of optimizer steps; -1: train for --num-train-epochs.")
    weight_decay: float = declare.training(0.01, "Weight decay of all weights except biases and norms (paper: 0.01).")
    adam_epsilon: float = declare.training(1e-6, "Adam's epsilon (the paper's code: 1e-6).")
    bf16: bool = declare.hardware(
        False, "Compute in bfloat16 where that is faster than float32; weights stay in float32."
    )
    seed: int = declare.seeds(42, "Random seed (0 or more).")
    logging_nan_inf_filter: bool = declare.output(
        False, "Hide losses that are not finite; costs a device synchronisation per step."
    )
    report_to: str | list[str] | None = declare.output(
        "none",
        "Experiment trackers to log to; tensorboard, wandb, mlflow and trackio need `pip install '.[tracking]'` in "
        "the clone.",
        choices=("none", "all", *TRACKERS),
    )

    @classmethod
    def check_values(cls, given: Any) -> None:
        """Raises a UserError for values out of range, unsupported or contradictory; before large imports, and again
        before transformers completes them.

        Args:
            given: has the fields of TrainingArguments. None stands for a value that is chosen later.
        """
        for name, remedy in {**TrainingOptions.unsupported, **cls.unsupported}.items():
            if getattr(given, name, None):
                raise UserError(f"{name} is not supported: {remedy}")
        for name in _CONFIGURATIONS:
            value = getattr(given, name)
            if isinstance(value, str) and Path(value).suffix and value[0] != "{" and not Path(value).is_file():
                raise UserError(f"{flag_of(name)} {value}: there is no such file{did_you_mean(value)}")
        if given.train_sampling_strategy == "group_by_length":
            raise UserError(
                "train_sampling_strategy group_by_length is not supported: nothing is computed for padding, so that "
                "rows of similar length gain nothing"
            )
        if given.bf16 and given.fp16:
            raise UserError("--bf16 and --fp16 exclude each other; remove one of them")
        for name, good, expected in (
            ("max_steps", given.max_steps == -1 or given.max_steps >= 1, "1 or more, or -1 to count epochs"),
            ("seed", 0 <= given.seed < 2**32, "0 or more and below 2**32"),
            ("data_seed", given.data_seed is None or 0 <= given.data_seed < 2**64, "0 or more and below 2**64"),
            *((name, _is_good(getattr(given, name), within), in_words(within)) for name, within in _INTERVALS.items()),
            ("num_train_epochs", given.max_steps > 0 or _is_good(given.num_train_epochs, "(0, inf)"), "above 0"),
        ):
            if not good:
                raise UserError(f"{name}: expected {expected}, found {getattr(given, name)}")


DECISIVE = (
    *("num_train_epochs", "max_steps", "seed", "data_seed", "dataloader_drop_last", "train_sampling_strategy"),
    *("optim", "optim_args", "optim_target_modules", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs"),
    *("warmup_steps", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
    *("label_smoothing_factor", "bf16", "fp16", "auto_find_batch_size", "average_tokens_across_devices"),
    *("eval_strategy", "eval_steps", "eval_delay", "eval_on_start", "load_best_model_at_end"),
    *("metric_for_best_model", "greater_is_better", "ignore_data_skip"),
)
"""The training arguments that determine the weights of a finished run."""


def decisive_arguments(arguments: Any) -> dict[str, Any]:
    """The values of `DECISIVE`, and `sequences_per_step`, which may be divided otherwise among devices and batches."""
    in_all = arguments.train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size
    return {name: getattr(arguments, name) for name in DECISIVE} | {"sequences_per_step": in_all}


_CONFIGURATIONS = ("deepspeed", "fsdp_config", "accelerator_config")
"""Arguments that are JSON, or the name of a file of JSON; deepspeed takes base64, too."""
_COUNTS = ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps")
_INTERVALS = {
    **dict.fromkeys(_COUNTS, "[1, inf)"),
    **dict.fromkeys(("save_total_limit", "dataloader_num_workers"), "[0, inf)"),
    **dict.fromkeys(("learning_rate", "weight_decay", "adam_epsilon", "max_grad_norm", "warmup_steps"), "[0, inf)"),
    **dict.fromkeys(("logging_steps", "save_steps", "eval_steps"), "(0, inf)"),
    **dict.fromkeys(("label_smoothing_factor", "adam_beta1", "adam_beta2"), "[0, 1)"),
}


def _is_good(value: float | None, interval: str) -> bool:
    return value is None or is_within(value, interval)
