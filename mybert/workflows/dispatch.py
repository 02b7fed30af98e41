"""The commands that retrieval shares with others: `mybert finetune`, `evaluate` and `search`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mybert.common.errors import needing
from mybert.tasks import SEARCH_TASKS

if TYPE_CHECKING:
    from mybert.embedding.settings import SearchSettings
    from mybert.finetuning.arguments import FinetuningArguments
    from mybert.finetuning.settings import FinetuneSettings
    from mybert.tasks.settings import EvaluateSettings


def finetune(settings: "FinetuneSettings", arguments: "FinetuningArguments | None" = None) -> Path:
    """Trains the model of `settings.task`; see `mybert.finetuning.run` and `mybert.retrieval.training`."""
    if settings.task in SEARCH_TASKS:
        with needing("retrieval", f"--task {settings.task}"):
            from mybert.retrieval.training import train

        return train(settings, arguments)
    from mybert.finetuning.run import finetune

    return finetune(settings, arguments)


def evaluate(settings: "EvaluateSettings") -> Path:
    """Scores a model; see `mybert.evaluation.evaluate` and `mybert.retrieval.evaluation`."""
    if settings.documents:
        from mybert.retrieval.evaluation import evaluate_retrieval

        return evaluate_retrieval(settings)
    from mybert.evaluation.evaluate import evaluate

    return evaluate(settings)


def search_command(settings: "SearchSettings") -> Path | None:
    """As `search`; returns the output file, if there is one."""
    search(settings)
    return Path(settings.output) if settings.output else None


def search(settings: "SearchSettings") -> list[dict[str, Any]]:
    """Finds what is nearest to each query; see `mybert.embedding.search` and `mybert.retrieval.index`."""
    from mybert.embedding.search import OF_QUERY
    from mybert.embedding.search import search as search_queries
    from mybert.io.record_formats import rename_taken

    if not settings.is_index:
        return search_queries(settings)
    from mybert.retrieval.index import Index

    index = Index(settings.vectors, model=settings.model, device=settings.device)
    where: dict[str, list[str]] = {}
    for pair in settings.where:  # a column given twice may have either value
        name, _, value = pair.partition("=")
        where.setdefault(name, []).append(value)
    mode = settings.mode or "hybrid"

    def answers(queries: list[str], before: int) -> list[list[dict[str, Any]]]:
        results = [index.search(query, settings.top_k, mode, where, settings.reranker) for query in queries]
        return [[rename_taken(hit.record(), OF_QUERY) for hit in hits] for hits in results]

    return search_queries(settings, answers)
