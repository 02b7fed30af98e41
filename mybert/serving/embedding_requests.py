"""Embedding requests and responses in the formats of OpenAI and text-embeddings-inference (TEI), and searches."""

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from mybert.common.errors import UserError, short
from mybert.common.text_windows import window_count
from mybert.embedding.vector_files import json_vectors, vector_column
from mybert.retrieval.records import UnusableQuery
from mybert.serving.requests import Body, Refused, Work, check_fields, check_parameters, field, json_bytes, texts_in
from mybert.serving.served import CHARACTERS_PER_TOKEN, ServedEncoder, ServedIndex

_MOST = 1000  # results of a search


def embed(served: ServedEncoder, body: Body) -> Work:
    """TEI's `/embed`: a list of vectors, of length 1 unless `normalize` is false."""
    check_parameters(body)
    items = texts_in(body, "inputs", served)
    ids = _token_ids(served, items, field(body, "truncate", bool, False))
    finish = _finish(served, body, field(body, "normalize", bool, True))
    return _embedding_work(served, ids, lambda results: f"[{','.join(_as_json(finish(results)))}]".encode())


def openai_embeddings(served: ServedEncoder, body: Body) -> Work:
    """OpenAI's `/v1/embeddings`: vectors of length 1, as numbers or in base64."""
    items = texts_in(body, "input", served)
    encoding = field(body, "encoding_format", str, "float")
    if encoding not in ("float", "base64"):
        raise Refused(422, f"encoding_format: expected float or base64, found {short(encoding, 40)}")
    ids = _token_ids(served, items, truncate=False)
    finish, model = _finish(served, body, normalize=True), json.dumps(served.name)
    used = sum(len(one) + 2 for one in ids)

    def answer(results: list[Any]) -> bytes:
        vectors = finish(results)
        if encoding == "base64":
            texts = [f'"{base64.b64encode(vector.astype("<f4").tobytes()).decode()}"' for vector in vectors]
        else:
            texts = _as_json(vectors)
        item = '{{"object":"embedding","index":{},"embedding":{}}}'
        data = ",".join(item.format(number, text) for number, text in enumerate(texts))
        usage = f'{{"prompt_tokens":{used},"total_tokens":{used}}}'
        return f'{{"object":"list","data":[{data}],"model":{model},"usage":{usage}}}'.encode()

    return _embedding_work(served, ids, answer)


def similarity(served: ServedEncoder, body: Body) -> Work:
    """TEI's `/similarity`: cosine similarities of a sentence and others."""
    parameters = check_parameters(body, "truncate")
    inputs = field(body, "inputs", dict)
    source = field(inputs, "source_sentence", str)
    others = texts_in(inputs, "sentences", served)
    ids = _token_ids(served, [source, *others], field(parameters, "truncate", bool, False))

    def answer(results: list[Any]) -> bytes:
        vectors = _normalized(np.stack(results))
        return json_bytes((vectors[1:] @ vectors[0]).astype(float).tolist())

    return _embedding_work(served, ids, answer)


def _embedding_work(served: ServedEncoder, ids: list[np.ndarray], answer: Callable[[list[Any]], bytes]) -> Work:
    size, overlap = served.max_length - 2, served.embedder.stride
    tokens = [window_count(len(one), size, overlap) * min(len(one) + 2, size + 2) for one in ids]
    return Work(sum(tokens), lambda served: (ids, tokens), answer)


def _token_ids(served: ServedEncoder, items: list[Any], truncate: bool) -> list[np.ndarray]:
    ids, room = served.token_ids(items), served.max_length - 2
    if truncate or served.settings.long_texts == "truncate":
        return [served.embedder.cut(one) for one in ids]
    if served.settings.long_texts == "refuse":
        for number, one in enumerate(ids):
            if len(one) > room:
                raise Refused(413, f"text {number}: more than {served.max_length} tokens; shorten it")
    return ids


def _finish(served: ServedEncoder, body: Body, normalize: bool) -> Callable[[list[Any]], np.ndarray]:
    """Converts results to float32 vectors (texts, dimensions) as the request specifies."""
    width = served.embedder.width
    size = field(body, "dimensions", int, width)
    if not 1 <= size <= width:
        raise Refused(422, f"dimensions: expected 1 to {width}, found {size}")
    return lambda results: (_normalized if normalize else np.asarray)(np.stack(results)[:, :size])


def _normalized(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _as_json(vectors: np.ndarray) -> list[str]:
    return json_vectors(vector_column(np.ascontiguousarray(vectors)))


def search(served: ServedIndex, body: Body) -> Work:
    """`results` of an index for a `query`, with `top_k`, `mode`, `where` and `rerank` as in `mybert search`."""
    check_fields(body, "query", "top_k", "mode", "where", "rerank")
    query, top_k = field(body, "query", str), field(body, "top_k", int, 5)
    mode, where = field(body, "mode", str, "hybrid"), field(body, "where", dict, {})
    rerank = field(body, "rerank", bool, served.settings.reranker is not None)
    if not 1 <= top_k <= _MOST:
        raise Refused(422, f"top_k: expected 1 to {_MOST}, found {top_k}")
    if rerank and served.settings.reranker is None:
        raise Refused(422, "rerank: the service has no reranker; start it with --reranker")
    if (most := CHARACTERS_PER_TOKEN * served.max_length) < len(query):
        raise Refused(413, f"query: {len(query):,} characters, more than {most:,}; shorten it")
    tokens = 1 + len(query) // CHARACTERS_PER_TOKEN
    arguments = query, top_k, mode, where, served.settings.reranker if rerank else None

    def answer(results: list[Any]) -> bytes:
        (outcome,) = results
        if isinstance(outcome, UnusableQuery):
            raise Refused(422, str(outcome))
        if isinstance(outcome, UserError):
            message = str(outcome).replace(served.settings.model, served.name)  # no folders of this machine
            raise Refused(503, message, "Unhealthy", {"retry-after": "5"})
        return json_bytes({"results": outcome})

    return Work(tokens, lambda _: ([arguments], [tokens]), answer)
