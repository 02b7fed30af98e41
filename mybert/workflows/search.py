"""`mybert search`: in an index of `mybert.retrieval`, or a file of vectors of `mybert.embedding`."""

from pathlib import Path
from typing import Any

from mybert.embedding.search import search as search_queries
from mybert.embedding.settings import SearchSettings


def main(settings: SearchSettings) -> Path | None:
    search(settings)
    return Path(settings.output) if settings.output else None


def search(settings: SearchSettings) -> list[dict[str, Any]]:
    """Finds what is nearest to each query; see `mybert.embedding.search` and `mybert.retrieval.index`."""
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
        found = [index.search(query, settings.top_k, mode, where, settings.reranker) for query in queries]
        return [[hit.record() for hit in hits] for hits in found]

    return search_queries(settings, answers)
