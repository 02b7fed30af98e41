"""Options of pretraining and fine-tuning whose defaults differ from transformers.TrainingArguments."""

from dataclasses import dataclass

from mybert.common.settings import setting


@dataclass
class TrainingOptions:
    """Fields that pretraining and fine-tuning share; subclasses add theirs.

    They are declared here because importing TrainingArguments takes seconds, and `--help` must be fast.
    """

    max_steps: int = setting(-1, "Number of optimizer steps; -1: train for --num-train-epochs.")
    weight_decay: float = setting(0.01, "Weight decay of all weights except biases and norms (paper: 0.01).")
    adam_epsilon: float = setting(1e-6, "Adam's epsilon (the paper's code: 1e-6).")
    bf16: bool = setting(False, "Compute in bfloat16 where that is faster than float32; weights stay in float32.")
    seed: int = setting(42, "Random seed (0 or more).")
    logging_nan_inf_filter: bool = setting(
        False, "Hide losses that are not finite; costs a device synchronisation per step."
    )
    report_to: str | list[str] | None = setting(
        "none",
        "Experiment trackers to log to: tensorboard, wandb, mlflow, trackio; needs `pip install '.[tracking]'` in the "
        "clone.",
    )
