"""`mybert finetune`: the heads of `mybert.finetuning`, and the retrievers and rerankers of `mybert.retrieval`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mybert.common.errors import needing
from mybert.finetuning.settings import FinetuneSettings
from mybert.tasks import SEARCH_TASKS

if TYPE_CHECKING:
    from mybert.finetuning.arguments import FinetuningArguments


def finetune(settings: FinetuneSettings, arguments: FinetuningArguments | None = None) -> Path:
    """Trains the model of `settings.task`; see `mybert.finetuning.run` and `mybert.retrieval.training`."""
    if settings.task in SEARCH_TASKS:
        with needing("retrieval", f"--task {settings.task}"):
            from mybert.retrieval.training import train

        return train(settings, arguments)
    from mybert.finetuning.run import finetune

    return finetune(settings, arguments)
