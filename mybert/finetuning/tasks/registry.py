"""The tasks by name. A new task is a module with a `Task` and its `Options`, and an entry here."""

from mybert.common.error_messages import short_list
from mybert.common.errors import UserError
from mybert.finetuning.tasks.base import Task
from mybert.finetuning.tasks.multiple_choice import MultipleChoice
from mybert.finetuning.tasks.options import TaskOptions
from mybert.finetuning.tasks.question_answering import QuestionAnswering
from mybert.finetuning.tasks.text_classification import TextClassification
from mybert.finetuning.tasks.token_classification import TokenClassification

_CLASSES: tuple[type[Task], ...] = (
    TextClassification,
    TokenClassification,
    QuestionAnswering,
    MultipleChoice,
)
TASKS = {task.name: task for task in _CLASSES}
ALIASES = {alias: task.name for task in TASKS.values() for alias in vars(task).get("aliases", ())}
OPTIONS = tuple(dict.fromkeys(task.Options for task in TASKS.values() if task.Options is not TaskOptions))


def task_class(name: str) -> type[Task]:
    """
    Raises:
        UserError: there is no such task.
    """
    name = ALIASES.get(name.lower(), name)
    if name not in TASKS:
        raise UserError(f"--task: expected {', '.join(TASKS)}, found {name!r}")
    return TASKS[name]


def task_of_architecture(architectures: list[str], source: str) -> type[Task]:
    """The task of a checkpoint that was fine-tuned elsewhere, by the class of its model.

    Raises:
        UserError: none of the classes has the head of a task.
    """
    for architecture in architectures:
        for task in TASKS.values():
            if architecture.endswith(task.head.__name__.removeprefix("MyBert")):
                return task
    found = short_list(architectures or ["a model without a name"])
    raise UserError(
        f"checkpoint {source} is not fine-tuned (it is {found}): fine-tune it with `mybert finetune --model {source} "
        "…`, or name the task of its head by --task"
    )
