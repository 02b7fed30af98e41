"""`mybert search`: queries and their results; the texts nearest to a query in a file of vectors."""

import codecs
import dataclasses
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from mybert.artifacts.manifest import check_maker, identity, json_line, write_manifest
from mybert.artifacts.staging import manifest_beside, staged_file
from mybert.common.errors import UserError, excerpt, short
from mybert.common.json_io import parse_json
from mybert.common.tables import print_table
from mybert.embedding.embedder import Embedder
from mybert.embedding.settings import EncodingSettings, SearchSettings, check_vectors
from mybert.embedding.vector_files import read_vectors
from mybert.io.files import STDIN, arriving_lines, is_unicode, open_file
from mybert.io.record_formats import rename_taken

logger = logging.getLogger(__name__)
OF_QUERY = ("query_number", "query", "rank")
"""Columns of a result before those of the text."""
_SHOWN_CHARACTERS = 200


Answers = Callable[[list[str], int], list[list[dict[str, Any]]]]
"""From queries, and the number of queries before them, to the results of each, the best first."""


def search(settings: SearchSettings, answers: Answers | None = None) -> list[dict[str, Any]]:
    """Finds the texts that are nearest to each query; prints them and writes `settings.output`.

    Queries are encoded with the model and settings in the manifest of the vectors. The model is loaded once; lines of
    standard input are answered as they arrive.

    Args:
        answers: of an index; None: the vectors of a file are compared with those of the queries.

    Returns:
        Results in the order of the queries, the best first: `query_number` (from 0), `query`, `rank` (from 1), `score`
        (-1 to 1 for vectors) and the columns of the vector file (`text_number` alone for .npy) or the passage.

    Raises:
        UserError: the vectors or a query cannot be read, the vectors are of words, or they were made by another model.
    """
    results, count = [], 0
    if STDIN in settings.query and len(settings.query) > 1:
        raise UserError(f"{STDIN} reads all queries from standard input; leave it or the other queries out")
    given = [] if STDIN in settings.query else _checked(settings.query, 1)
    answers = answers or _of_vectors(settings)
    for queries in [given] if given else _arriving():
        for query, hits in zip(queries, answers(queries, count), strict=True):
            shown = [
                {"query_number": count, "query": query, "rank": rank, **record} for rank, record in enumerate(hits, 1)
            ]
            columns = ["score", "passage" if settings.is_index else "row", "text"]
            if shown:
                print_table(query, (_shown(one, settings.is_index) for one in shown), columns)
            else:
                print(f"{short(query)}: nothing is found")
            sys.stdout.flush()  # a program that waits for the answer writes the next query after it
            results += shown
            count += 1
    if settings.output:
        _write(settings.output, settings, results)
    if settings.vectors.endswith(".npy"):
        no_texts = "has no texts; rows count from 0. `mybert embed` writes the texts to .parquet and .jsonl"
        print(f"{settings.vectors} {no_texts}")
    return results


def _of_vectors(settings: SearchSettings) -> Answers:
    """The answers of a file of vectors."""
    path = Path(settings.vectors)
    embedder, pooling = _load(settings, path)

    def answers(queries: list[str], before: int) -> list[list[dict[str, Any]]]:
        encoded = normalize(torch.from_numpy(_vectors(embedder, queries, pooling, settings, before)))
        nearest = _nearest(path, encoded, settings.top_k)
        return [
            [{"score": score, **rename_taken(record, (*OF_QUERY, "score"))} for score, record in one]
            for one in nearest
        ]

    return answers


def _arriving() -> Iterator[list[str]]:
    """The queries of standard input as they arrive, at least one; blank lines of a terminal are left out."""
    count, is_terminal = 0, sys.stdin.isatty()
    if is_terminal:
        print("one query per line; Ctrl-D ends", file=sys.stderr)
    with open_file(STDIN) as file:
        for lines in arriving_lines(file):
            lines[0] = lines[0] if count else lines[0].removeprefix(codecs.BOM_UTF8)
            texts = [line.decode(errors="surrogateescape") for line in lines if line.strip() or not is_terminal]
            if texts:
                yield _checked(texts, count + 1)
            count += len(texts)
    if not count:
        raise UserError("standard input holds no query")


def _checked(queries: list[str], first: int) -> list[str]:
    for number, query in enumerate(queries, first):
        if not query.strip() or not is_unicode(query):
            raise UserError(f"query {number}: {'not UTF-8' if query.strip() else 'empty'}; correct or remove it")
    return queries


def _load(settings: SearchSettings, path: Path) -> tuple[Embedder, str | None]:
    """Loads the model that made the vectors, and returns it with their pooling."""
    check_vectors(str(path))
    beside = manifest_beside(path)
    try:
        manifest = parse_json(beside.read_bytes()) if beside.is_file() else {}
        made = manifest.get("settings", {})
        recorded = manifest.get("inputs", {}).get("model", {})
    except (ValueError, AttributeError) as error:
        raise UserError(f"{beside} is damaged; run `mybert embed` again") from error
    name = settings.model or recorded.get("path")
    if not name:
        raise UserError(f"{path} has no manifest ({beside.name}); name the model that made the vectors by --model")
    pooling = made.get("pooling")
    if pooling == "words":
        raise UserError(f"{path} holds vectors of words; make vectors of texts by `mybert embed --pooling mean`")
    check_maker(path, recorded, name, "run `mybert embed` again")
    fields = {field.name for field in dataclasses.fields(EncodingSettings)} - {"prompt", "prompt_name"}
    encoding = {key: value for key, value in made.items() if key in fields}
    own = {"model": name, "device": settings.device, "prompt": settings.prompt, "prompt_name": settings.prompt_name}
    embedder = Embedder(EncodingSettings(**encoding | own))
    needed = embedder.modules.document_prompt() if pooling is None else None
    if needed and made and made.get("prompt") is made.get("prompt_name") is None:
        logger.warning(
            "%s was made without the prompt %r that %s has for documents; better results have the vectors of "
            "`mybert embed --prompt-name %s`",
            *(path, needed, name, needed),
        )
    if pooling is None:
        embedder.modules.warn_of_similarity(name)
    return embedder, pooling


def _vectors(
    embedder: Embedder, queries: list[str], pooling: str | None, settings: SearchSettings, before: int
) -> np.ndarray:
    """(queries, width); `before` is the number of queries before these."""
    prompt = embedder.default_prompt
    if settings.prompt is None and settings.prompt_name is None:
        prompt = embedder.modules.query_prompt()
    encoded, most = embedder.encode(queries, prompt), embedder.max_length - 2
    for number, ids in enumerate(encoded, before + 1):
        if len(ids) > most and embedder.long_texts == "refuse":
            raise UserError(
                f"query {number}: {len(ids) + 2} tokens, more than {most + 2}; shorten it, or run `mybert embed` "
                "again with --long-texts window"
            )
    return embedder.vectors(encoded, pooling, prompt=prompt)


def _nearest(path: Path, queries: torch.Tensor, top_k: int) -> list[list[tuple[float, dict[str, Any]]]]:
    """The `top_k` best (score, columns) of each query, best first; of equal scores the first in the file."""
    best: list[list[tuple[float, dict[str, Any]]]] = [[] for _ in queries]
    for block, columns_of in read_vectors(path):
        if block.shape[1] != queries.shape[1]:
            raise UserError(
                f"{path} has vectors of {block.shape[1]} dimensions, the model's have {queries.shape[1]}; name the "
                "model that made them by --model"
            )
        scores = queries @ normalize(torch.tensor(block)).T
        least_of_block = scores.topk(min(top_k, len(block))).values[:, -1:]
        for nearest, row, is_candidate in zip(best, scores, scores >= least_of_block, strict=True):
            places = is_candidate.nonzero()[:, 0]  # in the order of the file, which `topk` does not keep
            values, order = row[places].sort(descending=True, stable=True)
            top = zip(values[:top_k].tolist(), places[order[:top_k]].tolist(), strict=True)
            least = nearest[-1][0] if len(nearest) == top_k else float("-inf")
            nearest += [(score, columns_of(place)) for score, place in top if score > least]
            nearest.sort(key=lambda result: -result[0])
            del nearest[top_k:]
    return best


def _shown(result: dict[str, Any], is_passage: bool) -> tuple[float, str, str]:
    text, marks = str(result.get("text", "-")), result["highlights"] if is_passage else []
    begin = marks[0][0] - _SHOWN_CHARACTERS // 2 if marks else 0  # with the first word of the query
    for start, end in reversed(marks):
        text = f"{text[:start]}[{text[start:end]}]{text[end:]}"
    place = result.get("text_number", "-")
    if result.get("id") is not None:
        place = f"{result['id']}:{result['start']}-{result['end']}" if is_passage else result["id"]
    elif "line" in result:
        place = f"{result.get('source')}:{result['line']}"
    return result["score"], str(place), _excerpt(text, begin)


def _excerpt(text: str, begin: int) -> str:
    """About `_SHOWN_CHARACTERS` characters from `begin` on, in one line; words stay whole where there are spaces."""
    words = text[max(begin, 0) :].split()
    if begin > 0:
        is_part = not text[begin - 1].isspace() and len(words) > 1 and len(words[0]) < _SHOWN_CHARACTERS // 4
        words[: int(is_part)] = ["…"]
    line = " ".join(words)
    return line if len(line) <= _SHOWN_CHARACTERS else f"{excerpt(line, _SHOWN_CHARACTERS)} …"


def _write(output: str, settings: SearchSettings, results: list[dict[str, Any]]) -> None:
    with staged_file(output, [settings.vectors], overwrite=settings.overwrite) as path:
        path.write_text("".join(map(json_line, results)), encoding="utf-8", newline="\n")
        inputs = {"vectors": identity(settings.vectors)}
        write_manifest(path.parent, "search", settings=settings, inputs=inputs, counts={"results": len(results)})
