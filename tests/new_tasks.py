"""Tasks as `mybert finetune` makes them, without a checkpoint."""

from typing import Any

from modeling_mybert import MyBertConfig
from mybert.tasks import task_class


def task_of(name: str = "text-classification", config: MyBertConfig | None = None, **options) -> Any:
    """The task with these options, before it has seen rows."""
    kind = task_class(name)
    return kind(kind.Options.of(options), config or MyBertConfig())
