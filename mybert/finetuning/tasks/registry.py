"""The tasks by name."""

import importlib

from mybert.common.errors import UserError
from mybert.finetuning.settings import TASKS
from mybert.finetuning.tasks.base import Task

_CLASSES = {
    "text-classification": ("mybert.finetuning.tasks.text_classification", "TextClassification"),
    "token-classification": ("mybert.finetuning.tasks.token_classification", "TokenClassification"),
    "question-answering": ("mybert.finetuning.tasks.question_answering", "QuestionAnswering"),
    "multiple-choice": ("mybert.finetuning.tasks.multiple_choice", "MultipleChoice"),
}


def task_class(name: str) -> type[Task]:
    """
    Raises:
        UserError: there is no such task.
    """
    if name not in _CLASSES:
        raise UserError(f"--task: expected {', '.join(TASKS)}, found {name!r}")
    module, attribute = _CLASSES[name]
    return getattr(importlib.import_module(module), attribute)
