"""What may not change when a training is resumed: else its steps would not be those of one run."""

from pathlib import Path

from transformers import TrainingArguments

from mybert.common.errors import UserError

_OF_A_STEP = (
    *("optim", "optim_args", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("max_grad_norm", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "bf16", "fp16"),
    *("seed", "data_seed", "sequences_per_step"),
)


def choices_of(arguments: TrainingArguments, *more: str) -> dict:
    """Name and value of the arguments, and of those named in `more`, that decide what a step computes."""
    given = arguments.to_dict()  # choices of transformers' by their plain names
    given["sequences_per_step"] = (
        arguments.train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size
    )
    return {name: given[name] for name in (*_OF_A_STEP, *more)}


def check_unchanged(manifest: dict, choices: dict, inputs: dict[str, dict]) -> None:
    """
    Args:
        manifest: of the run to go on with.
        choices: name and value of the settings and arguments that decide its steps.
        inputs: each one's name and what `identity` says of it; the same bytes may stand elsewhere now.

    Raises:
        UserError: the run was started with something else.
    """
    for name, value in choices.items():
        if (before := manifest.get("choices", {}).get(name)) != value:
            flag = name if name == "sequences_per_step" else f"--{name.replace('_', '-')}"
            raise UserError(
                f"--resume: {flag} is {value!r}, the run was started with {before!r}; say the same again, or begin "
                "another run with --overwrite or in another folder"
            )
    started = manifest.get("inputs", {})
    for name in sorted(started.keys() | inputs.keys()):
        if _content(started.get(name, {})) != _content(inputs.get(name, {})):
            raise UserError(
                f"--resume: --{name} {inputs.get(name, {}).get('path')} is not the one that the run was started with; "
                "name that one, or begin another run with --overwrite or in another folder"
            )


def check_optimizer(checkpoint: Path) -> None:
    """
    Raises:
        UserError: a training that goes on from `checkpoint` would start with a new optimizer.
    """
    if not any(checkpoint.glob("optimizer*")):
        raise UserError(f"--resume: {checkpoint} has no optimizer state; was it saved with save_only_model?")


def _content(identity: dict) -> str | None:
    return identity.get("sha256", identity.get("path"))
