"""`/search` of an index."""

from typing import Any, NamedTuple

from mybert.common.errors import UserError, short
from mybert.embedding.settings import MODES
from mybert.serving.checkpoint import CHARACTERS_PER_TOKEN, ServedCheckpoint
from mybert.serving.forms import Body, Refused, Work, field, json_bytes

_MOST = 1000  # results


class Query(NamedTuple):
    """The arguments of `Index.search`."""

    query: str
    top_k: int
    mode: str
    where: dict[str, Any]
    reranker: str | None


def search(served: ServedCheckpoint, body: Body) -> Work:
    """`query`, with `top_k`, `mode`, `where` and `rerank` as in `mybert search`; the answer has `results`."""
    query, top_k = field(body, "query", str), field(body, "top_k", int, 5)
    mode, where = field(body, "mode", str, "hybrid"), field(body, "where", dict, {})
    rerank = field(body, "rerank", bool, served.settings.reranker is not None)
    if not query.strip():
        raise Refused(422, "query: expected some words, found none")
    if not 1 <= top_k <= _MOST:
        raise Refused(422, f"top_k: expected 1 to {_MOST}, found {top_k}")
    if mode not in MODES:
        raise Refused(422, f"mode: expected {' or '.join(MODES)}, found {short(mode, 40)}")
    if rerank and served.settings.reranker is None:
        raise Refused(422, "rerank: the service has no reranker; start it with --reranker")
    if (most := CHARACTERS_PER_TOKEN * served.max_length) < len(query):
        raise Refused(413, f"query: {len(query):,} characters, more than {most:,}; shorten it")
    tokens = 1 + len(query) // CHARACTERS_PER_TOKEN
    one = Query(query, top_k, mode, where, served.settings.reranker if rerank else None)

    def answer(results: list) -> bytes:
        (found,) = results
        if isinstance(found, UserError):
            raise Refused(422, str(found))
        return json_bytes({"results": found})

    return Work(tokens, lambda _: ([one], [tokens]), answer)
