"""`mybert distill`: distil a teacher into a smaller encoder."""

import copy
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

from modeling_mybert import MyBertForPreTraining
from mybert.common.errors import UserError
from mybert.distillation.objective import Distillation
from mybert.distillation.settings import DistillSettings
from mybert.distillation.teacher import Comparison, load_teacher
from mybert.inference.checkpoint import keep_layers
from mybert.pretraining.arguments import PretrainingArguments
from mybert.pretraining.initialization.initial_model import build_model
from mybert.pretraining.run import Variant, pretrain
from tokenization import MyBertTokenizer

STAGE = "distill"


def distill(settings: DistillSettings, arguments: PretrainingArguments | None = None) -> Path:
    """Trains a student on a corpus to reproduce the outputs of a teacher.

    Args:
        settings: teacher, student, losses, corpus and output.
        arguments: how to train (default: `PretrainingArguments`); `settings.output` replaces their `output_dir`.

    Returns:
        The folder of the finished model, as `pretrain` writes it.

    Raises:
        UserError: teacher, corpus, settings and output do not fit together, and nothing was written; or the run
            failed, and its checkpoints are intact.
        Preempted: SIGTERM or Ctrl-C stopped the run after a checkpoint was saved.
    """
    arguments = PretrainingArguments(output_dir=settings.output) if arguments is None else copy.deepcopy(arguments)
    if arguments.fsdp:
        raise UserError("--fsdp: distillation reads weights of the student that would be sharded; leave it out")
    if arguments.ddp_find_unused_parameters is None:  # heads without a loss
        arguments.ddp_find_unused_parameters = True
    return pretrain(settings, arguments, Variant(STAGE, build_pair, ("teacher",)))


def build_pair(
    settings: DistillSettings, tokenizer: MyBertTokenizer, longest: int
) -> tuple[MyBertForPreTraining, Callable[..., Distillation]]:
    """The student before the first step, and its objective without the corpora. Sets the layers and losses that the
    settings leave open.
    """
    teacher, has_head = load_teacher(settings, tokenizer, longest)
    if settings.size is None and settings.init_from is None and settings.layers is None:
        settings.layers = max(teacher.config.num_hidden_layers // 2, 1)
    if settings.layers is None:
        student = build_model(settings, tokenizer, longest)
    else:
        whole = dataclasses.replace(settings, init_from=settings.teacher, layers=None)
        student = build_model(whole, tokenizer, longest)
        keep_layers(student, settings.layers, settings.teacher)
    comparison = Comparison.of(settings, teacher, has_head, student)
    settings.losses = [f"{name}={weight:g}" for name, weight in comparison.weights.items()]
    return student, functools.partial(Distillation, comparison)
