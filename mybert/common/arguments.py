"""Checks and adjustments of transformers.TrainingArguments."""

import math
import sys
from collections.abc import Mapping

import torch
from transformers import Trainer, TrainingArguments
from transformers.utils import logging

from mybert.common.devices import feed_without_waiting
from mybert.common.errors import UserError

logger = logging.get_logger(__name__)

_HIGH_LEARNING_RATE = 0.01


def settle_arguments(arguments: TrainingArguments) -> None:
    """Called before `TrainingArguments.__post_init__`: no progress bars in log files, and `--bf16` works on a CPU."""
    if arguments.disable_tqdm is None:
        arguments.disable_tqdm = not sys.stderr.isatty()
    if arguments.bf16 and not torch.accelerator.is_available():
        arguments.use_cpu = True  # transformers rejects bf16 on a CPU without it


def prepare_launch(arguments: TrainingArguments, output: str, command: str) -> None:
    """Checks how a training was started, and configures the transfer of batches to a GPU.

    Args:
        output: the folder named by `--output`.
        command: for example `pretrain`.

    Raises:
        UserError: `--output-dir` names another output, or one process has several GPUs.
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
    """Creates data loader, optimizer and scheduler once, so that arguments that do not fit fail before training.

    Raises:
        Exception: whatever transformers or torch raise.
    """
    trainer.get_train_dataloader()
    if not (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):  # these prepare the model first
        trainer.create_optimizer_and_scheduler(num_training_steps=100)
        trainer.optimizer = trainer.lr_scheduler = None


def check_arguments(arguments: TrainingArguments, unsupported: Mapping[str, str]) -> None:
    """Rejects unsupported arguments and values out of range; warns about a high learning rate and fp16 on a CPU.

    Args:
        unsupported: names of arguments that must not be set, each with the remedy.

    Raises:
        UserError: an argument is unsupported or out of its range.
    """
    unsupported = {
        "resume_from_checkpoint": "use --resume",
        "neftune_noise_alpha": "it adds noise to padded batches only",
        "use_liger_kernel": "it has no kernels for MyBERT",
        "label_names": "each head defines the names of its labels",
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
    if given.process_index == 0 and given.learning_rate > _HIGH_LEARNING_RATE:
        usual = "BERT is trained with 1e-5 to 2e-3"
        logger.warning_once("--learning-rate %g is so high that training may diverge: %s", given.learning_rate, usual)
    if given.process_index == 0 and given.fp16 and given.device.type == "cpu":
        logger.warning_once("--fp16 has no effect on a CPU, which trains in float32; see --bf16")
