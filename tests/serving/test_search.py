"""`mybert serve INDEX`: `/search` against `Index.search`."""

import json
import shutil

import pytest
from json_files import write_lines

import mybert
from mybert import Index

DOCUMENTS = [
    {"id": f"d{number}", "title": animal, "text": f"{animal} {verb}", "lang": "en" if number % 2 else "de"}
    for number, (animal, verb) in enumerate((a, v) for a in ("cats", "dogs", "birds") for v in ("sleep", "run"))
]


@pytest.fixture(scope="module")
def index(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    write_lines(folder / "documents.jsonl", DOCUMENTS)
    mybert.build_index(models("encoder"), folder / "documents.jsonl", output=folder / "index", language="en")
    return folder / "index"


@pytest.fixture
def service(serve, index, models):
    return serve(str(index), reranker=str(models("regression")))


@pytest.mark.parametrize(
    "body",
    [
        {"query": "sleeping cat"},
        {"query": "dogs", "top_k": 2, "mode": "words", "rerank": False},
        {"query": "dogs", "mode": "dense", "rerank": False, "where": {"lang": "de"}},
    ],
)
def test_answers_are_those_of_the_index(service, index, models, body):
    reranker = None if body.get("rerank") is False else str(models("regression"))
    arguments = {name: value for name, value in body.items() if name != "rerank"}
    expected = [hit.record() for hit in Index(index, device="cpu").search(**arguments, reranker=reranker)]
    answer = service.post("/search", body)
    assert answer.status_code == 200
    assert answer.json()["results"] == json.loads(json.dumps(expected))
    assert {"id", "title", "text", "start", "end", "score", "highlights", "lang"} <= {*answer.json()["results"][0]}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "query: expected a text, found nothing"),
        ({"query": " "}, "the query is empty; write some words"),
        ({"query": "a", "top_k": 0}, "top_k: expected 1 to 1000, found 0"),
        ({"query": "a", "topk": 3}, "'topk' is not supported; expected query, top_k, mode, where, rerank"),
        ({"query": "a", "mode": "bm25"}, "mode: expected hybrid or dense or words, found 'bm25'"),
        ({"query": "a", "where": {"language": "de"}}, "no document has the column 'language'"),
    ],
)
def test_mistakes_are_refused(service, body, message):
    answer = service.post("/search", body)
    assert answer.status_code == 422 and answer.json()["error"].startswith(message)


def test_documents_that_are_added_are_found_at_once(service, index, models):
    Index(index).add([{"id": "new", "text": "zebras jump"}])
    assert service.post("/search", {"query": "zebras", "rerank": False}).json()["results"][0]["id"] == "new"
    info = service.client.get("/info").json()
    assert info["routes"] == ["/", "/search"] and info["index"]["documents"] == len(DOCUMENTS) + 1
    assert info["index"]["reranker"] == "regression"


def test_an_index_that_is_moved_or_made_again_while_it_is_served(serve, index, tiny_bert, tmp_path):
    """The new one has another model and another language."""
    moved, query = tmp_path / "index", {"query": "sleeping cats", "top_k": 2}
    shutil.copytree(index, moved)
    service = serve(str(moved))
    assert service.post("/search", query).status_code == 200
    moved.rename(tmp_path / "elsewhere")
    answer = service.post("/search", query)
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("the index index was moved or deleted")
    mybert.build_index(tiny_bert, index.parent / "documents.jsonl", output=moved, language="de")
    expected = [hit.record() for hit in Index(moved, device="cpu").search(**query)]
    assert service.post("/search", query).json()["results"] == json.loads(json.dumps(expected))
