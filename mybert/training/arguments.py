"""Check and complete TrainingArguments before training."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from accelerate.state import AcceleratorState
from transformers import TrainingArguments
from transformers.integrations.integration_utils import get_reporting_integration_callbacks
from transformers.utils import logging

from mybert.common.errors import UserError
from mybert.common.machine import launched_processes, threads
from mybert.inference.cpu.processor import has_bfloat16_products

logger = logging.get_logger(__name__)

_HIGH_LEARNING_RATE = 0.01
_MIN_HIDDEN_SIZE = 256
"""Smaller models train in minutes in any precision."""


class RunArguments(TrainingArguments):
    """TrainingArguments that are checked and completed; the other base class has `check_values`.

    The device has no index on the CPU, where every process has the same one.
    """

    check_values: ClassVar[Any]  # of the other base class

    def __post_init__(self) -> None:
        settle_arguments(self)
        self.check_values(self)  # before transformers fills values in
        super().__post_init__()
        warn_of_arguments(self)

    @property
    def device(self) -> torch.device:
        """transformers 5.17 loads the optimizer of several processes to this device; torch knows no "cpu:0"."""
        device = super().device
        return torch.device("cpu") if device.type == "cpu" else device


def settle_arguments(arguments: TrainingArguments) -> None:
    """Disables progress bars in files, enables bfloat16 and several processes on the CPU, and reads `--fsdp true`.

    bfloat16 is used where it is faster than float32: a recipe does not know the machine.

    Called before transformers checks the arguments, which takes a text in `fsdp` for the name of an option.
    """
    os.environ.setdefault("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "true")  # --torch-compile compiles a layer
    if str(arguments.fsdp).lower() in ("true", "false"):
        arguments.fsdp = str(arguments.fsdp).lower() == "true"  # type: ignore[assignment]  # as transformers reads it
    if arguments.disable_tqdm is None:
        arguments.disable_tqdm = not sys.stderr.isatty()
    several = launched_processes() > 1  # without `use_cpu` each would train by itself
    if (arguments.bf16 or several) and not torch.accelerator.is_available():
        arguments.use_cpu = True
    accelerator = None if arguments.use_cpu else torch.accelerator.current_accelerator(check_available=True)
    device = accelerator or torch.device("cpu")
    if arguments.bf16 and device.type in ("cpu", "cuda") and not bfloat16_is_faster(device):
        arguments.bf16 = False
        if int(os.environ.get("RANK", 0)) == 0:
            print("training in float32 in place of --bf16, since bfloat16 is not faster on this machine")


def warn_of_arguments(given: TrainingArguments) -> None:
    """Warns about a high learning rate and fp16 on a CPU."""
    rate = 0.0 if given.learning_rate is None else given.learning_rate  # None: chosen later
    if given.process_index == 0 and rate > _HIGH_LEARNING_RATE:
        usual = "BERT is trained with 1e-5 to 2e-3"
        logger.warning_once("--learning-rate %g is so high that training may diverge: %s", rate, usual)
    if given.process_index == 0 and given.fp16 and given.device.type == "cpu":
        logger.warning_once("--fp16 has no effect on a CPU, which trains in float32; see --bf16")


def prepare_launch(arguments: TrainingArguments, output: str, command: str) -> None:
    """Checks the launch and the trackers, and sets the number of threads and how batches are copied to a GPU."""
    if arguments.output_dir not in (None, "trainer_output", output):
        raise UserError(f"--output-dir {arguments.output_dir}: name the output folder with --output")
    if arguments.n_gpu > 1:
        raise UserError(
            f"{arguments.n_gpu} GPUs in one process: start one process per GPU with `torchrun --nproc-per-node "
            f"{arguments.n_gpu} -m mybert {command} …`, or choose one with CUDA_VISIBLE_DEVICES"
        )
    with explain_unusable("--report-to: "):
        for tracker in get_reporting_integration_callbacks(arguments.report_to):
            tracker()  # raises an error if it is not installed
    threads.share()
    arguments.dataloader_pin_memory &= arguments.device.type == "cuda"  # torch warns where it has no effect
    config: Any = arguments.accelerator_config
    config.non_blocking |= arguments.dataloader_pin_memory


@contextlib.contextmanager
def explain_unusable(option: str = "") -> Iterator[None]:
    """Converts errors of transformers and torch about arguments into a UserError that begins with the option."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, ImportError) as error:
        raise UserError(f"{option}{error}") from error


def advise_half(arguments: TrainingArguments, hidden_size: int) -> None:
    """Prints a notice if training is in float32 and the device is much faster in bfloat16."""
    if arguments.bf16 or arguments.fp16 or arguments.process_index != 0 or hidden_size < _MIN_HIDDEN_SIZE:
        return
    if bfloat16_is_faster(arguments.device):
        gain = "several times as fast on this GPU" if arguments.device.type == "cuda" else "about twice as fast here"
        print(f"training in float32; --bf16 is {gain}")


def set_bf16(arguments: TrainingArguments, value: bool) -> None:
    """Changes the precision of arguments that transformers has completed."""
    arguments.bf16, arguments.mixed_precision = value, "bf16" if value else "no"
    AcceleratorState._reset_state()  # an earlier run with these arguments has fixed another precision


def bfloat16_is_faster(device: torch.device) -> bool:
    """Whether products in bfloat16 are faster than in float32 on this device."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and has_bfloat16_products()
