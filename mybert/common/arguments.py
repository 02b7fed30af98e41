"""What pretraining and fine-tuning change in transformers' TrainingArguments, and refuse before anything is read."""

import math
import sys
from collections.abc import Mapping

import torch
from transformers import Trainer, TrainingArguments

from mybert.common.devices import feed_without_waiting
from mybert.common.errors import UserError


def settle_arguments(arguments: TrainingArguments) -> None:
    """Before transformers checks them: no bars in files, where they bury the lines; bfloat16 on a CPU by one flag."""
    if arguments.disable_tqdm is None:
        arguments.disable_tqdm = not sys.stderr.isatty()
    if arguments.bf16 and not torch.accelerator.is_available():
        arguments.use_cpu = True  # which transformers asks for before it believes that bfloat16 is meant


def prepare_launch(arguments: TrainingArguments, output: str, command: str) -> None:
    """What every training asks for before anything is read, and how its batches come to a GPU.

    Args:
        output: the folder that `--output` names.
        command: for example `pretrain`.

    Raises:
        UserError: another output is named too, or one process is given several GPUs.
    """
    if arguments.output_dir not in (None, "trainer_output", output):
        raise UserError(f"--output-dir {arguments.output_dir}: the output folder is named by --output")
    if arguments.n_gpu > 1:
        raise UserError(
            f"{arguments.n_gpu} GPUs in one process: start one process for each with `torchrun --nproc-per-node "
            f"{arguments.n_gpu} -m mybert.cli {command} …`, or choose one with CUDA_VISIBLE_DEVICES"
        )
    feed_without_waiting(arguments)


def try_optimizer(trainer: Trainer) -> None:
    """Makes optimizer, scheduler and loader once, and forgets them: what cannot be made is to be known at the start.

    Raises:
        Exception: whatever transformers or torch raise where arguments do not fit together.
    """
    trainer.get_train_dataloader()
    if not (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):  # which prepare the model before
        trainer.create_optimizer_and_scheduler(num_training_steps=100)
        trainer.optimizer = trainer.lr_scheduler = None


def check_arguments(arguments: TrainingArguments, unsupported: Mapping[str, str]) -> None:
    """
    Args:
        unsupported: names of arguments that must be left out, and what to do in their place.

    Raises:
        UserError: one of these is given, or a value is out of its range.
    """
    unsupported = {
        "resume_from_checkpoint": "use --resume",
        "neftune_noise_alpha": "its noise is for padded batches",
        "use_liger_kernel": "MyBERT is none of the models that it knows",
        "label_names": "the heads name their labels themselves",
        **unsupported,
    }
    for name, remedy in unsupported.items():
        if getattr(arguments, name):
            raise UserError(f"{name} is not supported: {remedy}")
    given = arguments
    for name, good, expected in (
        ("max_steps", given.max_steps == -1 or given.max_steps >= 1, "1 or more, or -1 to count epochs"),
        ("num_train_epochs", given.num_train_epochs > 0 or given.max_steps > 0, "above 0"),
        ("per_device_train_batch_size", given.per_device_train_batch_size >= 1, "1 or more"),
        ("per_device_eval_batch_size", given.per_device_eval_batch_size >= 1, "1 or more"),
        ("gradient_accumulation_steps", given.gradient_accumulation_steps >= 1, "1 or more"),
        ("learning_rate", 0 <= given.learning_rate < math.inf, "0 or more"),
        ("label_smoothing_factor", 0 <= given.label_smoothing_factor < 1, "0 or more and below 1"),
        ("seed", 0 <= given.seed < 2**32, "0 or more and below 2**32"),
        ("data_seed", given.data_seed is None or 0 <= given.data_seed < 2**64, "0 or more and below 2**64"),
    ):
        if not good:
            raise UserError(f"{name}: expected {expected}, found {getattr(arguments, name)}")
