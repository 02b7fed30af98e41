"""Load checkpoints with the head of a task.

`config.finetuned` of a fine-tuned checkpoint holds the name of its task, the options, and the names of its `inputs`.
"""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, get_origin

from torch import nn
from transformers import PreTrainedModel

from modeling_mybert import MyBertConfig
from mybert.common.errors import UserError, short, short_list
from mybert.common.json_io import read_json_object
from mybert.inference.checkpoint import SENTENCE_SETTINGS, checkpoint_file, explain_unreadable, load_model
from mybert.inference.checkpoint_tokenizer import (
    check_max_length,
    load_tokenizer,
    refuse_other_vocabulary,
    trained_tokens,
)
from mybert.inference.logits import Model
from mybert.inference.onnx_model import OnnxModel, onnx_file
from mybert.rows.labels import MULTI, REGRESSION
from mybert.tasks import ALIASES, TASKS, refuse_other_head, task_class, task_of_architecture
from mybert.tasks.base import Task
from mybert.tasks.settings import EvaluateSettings, PredictorSettings, TaskSettings
from mybert.tasks.text_classification import TextClassification
from tokenization import MyBertTokenizer

logger = logging.getLogger(__name__)


class Finetuned(NamedTuple):
    """A model with the head of a task, in evaluation mode on its device."""

    model: Model
    tokenizer: MyBertTokenizer
    task: Task


def new_model(task: Task, checkpoint: str) -> PreTrainedModel:
    """The checkpoint's encoder with a new head, or with its own head if that has the same shape."""
    return load_model(task.head, checkpoint, new_head=True, config=task.config)[0]


def load_finetuned(settings: EvaluateSettings | PredictorSettings) -> Finetuned:
    """Loads the checkpoint of `mybert evaluate` or `predict`, with its own options unless others are given."""
    config, tokenizer = load_config(settings.model)
    _name_labels_once(config, settings.model)
    stored = _stored_options(config, settings.model)
    name = settings.task or stored.get("task")
    kind = task_class(name) if name else task_of_architecture(config.architectures, settings.model)
    if name:
        refuse_other_head(kind, config.architectures, settings.model)
    if stored.get("task") != kind.name:
        stored = {}
    _check_values(stored, kind, settings.model)
    task = make_task(kind, settings, config, tokenizer, stored)
    if isinstance(stored.get("inputs"), list):
        needed = {*task.inputs} - task.optional
        inputs = tuple(name for name in task.inputs if name in needed or name in stored["inputs"])
        task = dataclasses.replace(task, trained_inputs=inputs)
    if isinstance(task, TextClassification):
        task = _with_activation(task.loaded(settings.model), config.problem_type, settings.model)
    if (path := onnx_file(settings.model)) is not None:
        if settings.dtype != "float32" or settings.device not in ("auto", "cpu"):
            raise UserError(
                f"{settings.model} is an ONNX model, which runs on the CPU in float32; leave out --device and --dtype"
            )
        return Finetuned(OnnxModel(path, task.config), tokenizer, task)
    model, _, _ = load_model(
        task.head,
        settings.model,
        device=settings.device,
        dtype=settings.dtype,
        remedy=f"fine-tune it with `mybert finetune --task {task.name}`",
        config=task.config,
    )
    return Finetuned(model, tokenizer, task)


def _with_activation(task: TextClassification, problem: str | None, name: str) -> TextClassification:
    """A task with one label or one number, whose scores are those of sentence-transformers' `CrossEncoder`.

    Its folder names the activation of the logits. Without a name, or with one that changes nothing, the scores are
    those of transformers' pipeline: a softmax for labels, nothing for a regression, else a sigmoid for one number.

    Args:
        problem: `problem_type` in the configuration of checkpoint `name`.
    """
    if task.config.problem_type == MULTI:
        return task
    file = checkpoint_file(name, SENTENCE_SETTINGS)
    stored = {} if file is None else read_json_object(file, "copy it again")
    inner = getattr(task.config, "sentence_transformers", None)  # of versions 4 and 5
    named = stored.get("activation_fn") or (inner.get("activation_fn") if isinstance(inner, dict) else None)
    named = named or getattr(task.config, "sbert_ce_default_activation_function", None)  # of version 3
    remedy, is_number = "score with sentence-transformers", task.config.problem_type == REGRESSION
    if named is None:
        return dataclasses.replace(task, activation=nn.Sigmoid()) if is_number and not problem else task
    from mybert.inference.sentence_layers import torch_activation  # here, since few checkpoints name one

    activation = torch_activation(named, f"checkpoint {name}", remedy)
    if is_number or isinstance(activation, nn.Sigmoid):
        return dataclasses.replace(task, activation=activation)
    if isinstance(activation, nn.Identity | nn.Softmax):
        return task
    raise UserError(f"checkpoint {name}: the activation {named} of its labels gives no probabilities; {remedy}")


def load_config(name: str) -> tuple[MyBertConfig, MyBertTokenizer]:
    with explain_unreadable(name):
        config = MyBertConfig.from_pretrained(name)
        tokenizer = load_tokenizer(name)
    refuse_other_vocabulary(name, tokenizer, config)
    if config.type_vocab_size == 1:  # both texts of a pair are of the only type
        tokenizer.model_input_names = [each for each in tokenizer.model_input_names if each != "token_type_ids"]
    return config, tokenizer


def make_task(
    kind: type[Task],
    settings: Any,
    config: MyBertConfig,
    tokenizer: MyBertTokenizer,
    stored: Mapping[str, Any],
) -> Task:
    """A task with the given options; others come from the checkpoint or are defaults."""
    own = {field.name for field in dataclasses.fields(kind.Options)}
    for field in dataclasses.fields(TaskSettings):
        if field.name not in own and getattr(settings, field.name) not in (None, []):
            raise UserError(f"--{field.name.replace('_', '-')} has no effect on {kind.name}; leave it out")
    default = {"max_length": min(kind.Options.defaults["max_length"], trained_tokens(config, tokenizer))}
    options = kind.Options.of(vars(settings), stored, default)
    if settings.stride is not None and getattr(options, "long_texts", None) == "truncate":
        raise UserError("--stride has no effect without --long-texts window; add that, or leave it out")
    check_max_length(options.max_length, config, settings.model)
    return kind(options, config).with_tokenizer(tokenizer, settings.model)


def _name_labels_once(config: MyBertConfig, name: str) -> None:
    """Repairs configurations of others: `label2id` may be null, names may be numbers or truth values, in any order."""
    given: Any = config.id2label
    names = {number: str(label) for number, label in sorted(given.items())}
    labels = list(names.values())
    if list(names) != list(range(len(labels))):
        numbers = short_list(map(str, names))
        raise UserError(
            f"checkpoint {name}: `id2label` in its config.json numbers the labels {numbers}, expected 0 to "
            f"{len(labels) - 1}; correct it"
        )
    config.id2label, config.label2id = names, {label: number for number, label in names.items()}
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise UserError(f"checkpoint {name}: `id2label` in its config.json has {short(twice)} twice; rename one")


def _stored_options(config: MyBertConfig, name: str) -> dict[str, Any]:
    """Task and options of a fine-tuned checkpoint."""
    options = getattr(config, "finetuned", None)
    options = dict(options) if isinstance(options, dict) else {}
    if "task" in options and options["task"] not in [*TASKS, *ALIASES]:
        raise UserError(
            f"checkpoint {name}: `finetuned` in its config.json has task = {short(options['task'])}, expected one of "
            f"{', '.join(TASKS)}; correct or remove it"
        )
    return options


def _check_values(stored: Mapping[str, Any], kind: type[Task], name: str) -> None:
    """Raises if a stored value is none of its option."""
    place = f"checkpoint {name}: `finetuned` in its config.json"
    for field in dataclasses.fields(kind.Options):
        expected: Any = list if get_origin(field.type) is list else field.type
        if field.name in stored and not isinstance(stored[field.name], expected):
            shown = short(stored[field.name])
            raise UserError(f"{place} has {field.name} = {shown}, a value of another type; correct or remove it")
    try:
        kind.Options.of(stored)
    except UserError as error:
        raise UserError(f"{place}: {error}; correct or remove it") from error
