"""Load checkpoints for fine-tuning (an encoder) and for evaluation (a model with the head of a task).

`config.finetuned` of a fine-tuned checkpoint holds the task's name, its `TaskSettings` and the names of its `inputs`.
"""

from dataclasses import asdict, fields
from typing import NamedTuple, get_origin

import torch
from accelerate import PartialState
from transformers import PreTrainedModel

from modeling_mybert import MyBertConfig
from mybert.common.checkpoint_loading import (
    explain_unreadable,
    refuse_missing,
    refuse_other_shapes,
    refuse_other_vocabulary,
)
from mybert.common.devices import choose_device
from mybert.common.error_messages import short, short_list
from mybert.common.errors import UserError
from mybert.finetuning.data.labels import PROBLEMS
from mybert.finetuning.onnx_model import OnnxModel, onnx_file
from mybert.finetuning.settings import EvaluateSettings, FinetuneSettings, PredictSettings, TaskSettings
from mybert.finetuning.tasks.base import Task
from mybert.finetuning.tasks.registry import task_class
from tokenization import MyBertTokenizer

_OLD_NAMES = {"overlap": "stride"}  # settings in older checkpoints


class Finetuned(NamedTuple):
    """A model with the head of a task, in evaluation mode on its device."""

    model: PreTrainedModel | OnnxModel
    tokenizer: MyBertTokenizer
    task: Task


def new_task(settings: FinetuneSettings) -> tuple[Task, MyBertTokenizer]:
    """The task with the configuration of the checkpoint to start from, whose labels and problem are forgotten.

    Raises:
        UserError: the checkpoint cannot be used, or `max_length` is more than it can read.
    """
    config, tokenizer = _load(settings.model)
    config.problem_type = None
    if settings.attn_implementation is not None:
        config._attn_implementation = settings.attn_implementation
    if settings.dropout is not None:
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = settings.dropout
        config.classifier_dropout = None  # the same for the head
    kind = task_class(settings.task)
    task = kind(settings.with_defaults(_defaults(kind, config)), config)
    _refuse_unused(settings, task)
    _check_length(task, settings.model)
    trained, length = min(tokenizer.model_max_length, config.max_position_embeddings), task.settings.max_length
    if length > trained and PartialState().is_main_process:
        print(
            f"{settings.model} was pretrained on at most {trained} tokens at once: the positions beyond, up to "
            f"--max-length {length}, learn from these rows alone"
        )
    tokenizer.model_max_length = max(trained, length)
    config.finetuned = {"task": settings.task, **asdict(task.settings)}
    return task, tokenizer


def new_model(task: Task, checkpoint: str) -> PreTrainedModel:
    """The checkpoint's encoder under a new head (or its own, of the same shape); the task shares its configuration.

    Raises:
        UserError: the encoder's weights are not there.
    """
    model = _load_model(task, checkpoint, head_is_new=True)
    task.config = model.config
    return model


def load_finetuned(settings: EvaluateSettings | PredictSettings) -> Finetuned:
    """
    Raises:
        UserError: the checkpoint cannot be used, or has no head for the task.
    """
    config, tokenizer = _load(settings.model)
    _name_labels_once(config, settings.model)
    remembered = _remembered(config, settings.model)
    name = settings.task or remembered.get("task") or _task_of_architecture(config, settings.model)
    kind = task_class(name)
    if remembered.get("task") != name:
        remembered = {}
    task = kind(settings.with_defaults(remembered, _defaults(kind, config)), config)
    _refuse_unused(settings, task)
    _check_length(task, settings.model)
    if isinstance(remembered.get("inputs"), list):
        needed = {*task.inputs} - task.optional
        task.trained_inputs = [name for name in task.inputs if name in needed or name in remembered["inputs"]]
    asked = PROBLEMS.get(settings.problem)
    if config.problem_type is None:
        config.problem_type = asked or ("regression" if config.num_labels == 1 else "single_label_classification")
    elif asked not in (None, config.problem_type):
        raise UserError(f"--problem {settings.problem}: {settings.model} was made for {config.problem_type}")
    if (path := onnx_file(settings.model)) is not None:
        if settings.dtype != "float32" or settings.device not in ("auto", "cpu"):
            raise UserError(f"{settings.model} is an ONNX model: it runs on the CPU in float32 (--dtype, --device)")
        return Finetuned(OnnxModel(path, config), tokenizer, task)
    model = _load_model(task, settings.model, head_is_new=False)
    task.config = model.config
    model = model.eval().to(choose_device(settings.device), getattr(torch, settings.dtype))
    return Finetuned(model, tokenizer, task)


def _load(name: str) -> tuple[MyBertConfig, MyBertTokenizer]:
    with explain_unreadable(name):
        config = MyBertConfig.from_pretrained(name)
        tokenizer = MyBertTokenizer.from_pretrained(name)
    refuse_other_vocabulary(name, tokenizer, config)
    return config, tokenizer


def _name_labels_once(config: MyBertConfig, name: str) -> None:
    """Others may have left `label2id` null, and made names of numbers and truth values.

    Raises:
        UserError: two labels have one name.
    """
    labels = [str(label) for label in config.id2label.values()]
    config.id2label = dict(zip(config.id2label, labels, strict=True))
    config.label2id = {label: number for number, label in config.id2label.items()}
    if len(config.label2id) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise UserError(f"checkpoint {name}: `id2label` in its config.json has {short(twice)} twice; rename one")


def _remembered(config: MyBertConfig, name: str) -> dict:
    """
    Raises:
        UserError: a value is of another type than its setting.
    """
    found = getattr(config, "finetuned", None)
    if not isinstance(found, dict):
        return {}
    found = {_OLD_NAMES.get(key, key): value for key, value in found.items()}
    if "label_pieces" in found:
        found["label_all_tokens"] = found.pop("label_pieces") == "all"
    types = {field.name: list if get_origin(field.type) is list else field.type for field in fields(TaskSettings)}
    for key, kind in {**types, "task": str}.items():
        if key in found and not isinstance(found[key], kind):
            raise UserError(f"checkpoint {name}: `finetuned` in its config.json has {key} = {short(found[key])}")
    return found


def _load_model(task: Task, name: str, head_is_new: bool) -> PreTrainedModel:
    with explain_unreadable(name):
        model, report = task.head.from_pretrained(
            name, config=task.config, output_loading_info=True, ignore_mismatched_sizes=True
        )
    heads = tuple(f"{child}." for child, _ in model.named_children() if child != model.base_model_prefix)
    new = (*heads, f"{model.base_model_prefix}.pooler.") if head_is_new else ()
    refuse_other_shapes(name, [found for found in report["mismatched_keys"] if not found[0].startswith(new)])
    remedy = "" if head_is_new else f"fine-tune it with `mybert finetune --task {task.name}`"
    refuse_missing(name, report["missing_keys"], new, remedy)
    return model


def _defaults(kind: type[Task], config: MyBertConfig) -> dict:
    """Those of the task; a model of few positions reads less at once."""
    return {**kind.defaults, "max_length": min(kind.defaults["max_length"], config.max_position_embeddings)}


def _refuse_unused(settings: TaskSettings, task: Task) -> None:
    """Of what the user gave, which the task's own settings complete."""
    for field in fields(TaskSettings):
        of_all = field.name in ("columns", "max_length")
        if not of_all and field.name not in task.uses and getattr(settings, field.name) not in (None, []):
            raise UserError(f"--{field.name.replace('_', '-')} has no effect on {task.name}; leave it out")
    if settings.stride is not None and task.settings.long_texts == "truncate":
        raise UserError("--stride has no effect without --long-texts window; add that, or leave it out")


def _check_length(task: Task, name: str) -> None:
    positions = task.config.max_position_embeddings
    if task.settings.max_length > positions:
        raise UserError(f"--max-length {task.settings.max_length}: {name} has {positions} positions")


def _task_of_architecture(config: MyBertConfig, name: str) -> str:
    """The task of a checkpoint that was fine-tuned elsewhere."""
    endings = {
        "ForSequenceClassification": "text-classification",
        "ForTokenClassification": "token-classification",
        "ForQuestionAnswering": "question-answering",
        "ForMultipleChoice": "multiple-choice",
    }
    found = config.architectures
    found = [found] if isinstance(found, str) else [name for name in found or () if isinstance(name, str)]
    for architecture in found:
        for ending, task in endings.items():
            if architecture.endswith(ending):
                return task
    what = short_list(found or ["a model of no name"])
    raise UserError(
        f"checkpoint {name} was fine-tuned for no task (it is {what}): `mybert finetune --model {name} …` does that; "
        "or name by --task what its head is for"
    )
