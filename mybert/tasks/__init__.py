"""The tasks by name. A new task is a module with a `Task`, its options in `options`, and an entry here."""

import pkgutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mybert.common.errors import UserError, short_list

if TYPE_CHECKING:
    from mybert.tasks.base import Task

TASKS = {  # name: module and class
    "text-classification": "mybert.tasks.text_classification:TextClassification",
    "token-classification": "mybert.tasks.token_classification:TokenClassification",
    "question-answering": "mybert.tasks.question_answering:QuestionAnswering",
    "multiple-choice": "mybert.tasks.multiple_choice:MultipleChoice",
}
ALIASES = {
    **dict.fromkeys(("classification", "sequence-classification", "sentiment", "sts", "nli"), "text-classification"),
    **dict.fromkeys(("ner", "pos", "tagging"), "token-classification"),
    **dict.fromkeys(("qa", "squad"), "question-answering"),
    "swag": "multiple-choice",
}
SEARCH_TASKS = ("retrieval", "reranking")
"""Tasks of `mybert finetune` alone, which `mybert.retrieval` trains: their rows are queries and passages."""


def task_class(name: str) -> "type[Task]":
    """The task with this name or alias."""
    name = ALIASES.get(name.lower(), name)
    if name not in TASKS:
        raise UserError(f"--task: expected {', '.join([*TASKS, *ALIASES])}, found {name!r}")
    return pkgutil.resolve_name(TASKS[name])


def task_of_architecture(saved: Sequence[str] | None, source: str) -> "type[Task]":
    """The task of a checkpoint that was fine-tuned elsewhere, by the `architectures` of its configuration."""
    if (task := _task_with_head(saved)) is not None:
        return task
    names = short_list(map(str, saved or ["a model without a name"]))
    raise UserError(
        f"checkpoint {source} is not fine-tuned (it is {names}): fine-tune it with `mybert finetune --model {source} "
        "…`, or name the task of its head by --task"
    )


def refuse_other_head(task: "type[Task]", saved: Sequence[str] | None, source: str) -> None:
    """Raises a UserError if a checkpoint with these `architectures` has the head of another task than --task."""
    other = _task_with_head(saved)
    if other is not None and other.head is not task.head:
        raise UserError(f"--task {task.name}: checkpoint {source} has the head of {other.name}; leave --task out")


def _task_with_head(saved: Sequence[str] | None) -> "type[Task] | None":
    for architecture in map(str, saved or ()):
        for task in map(task_class, TASKS):
            if architecture.endswith(task.head.__name__.removeprefix("MyBert")):
                return task
    return None
