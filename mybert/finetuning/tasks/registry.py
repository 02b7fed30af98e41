"""The tasks by name. Their modules are imported when they are used."""

import pkgutil
from typing import TYPE_CHECKING

from mybert.common.errors import UserError

if TYPE_CHECKING:
    from mybert.finetuning.tasks.base import Task

TASKS = {  # value of --task → module:class
    "text-classification": "mybert.finetuning.tasks.text_classification:TextClassification",
    "token-classification": "mybert.finetuning.tasks.token_classification:TokenClassification",
    "question-answering": "mybert.finetuning.tasks.question_answering:QuestionAnswering",
    "multiple-choice": "mybert.finetuning.tasks.multiple_choice:MultipleChoice",
}


def task_class(name: str) -> "type[Task]":
    """The class of a task.

    Raises:
        UserError: there is no such task.
    """
    if name not in TASKS:
        raise UserError(f"--task: expected {', '.join(TASKS)}, found {name!r}")
    return pkgutil.resolve_name(TASKS[name])
