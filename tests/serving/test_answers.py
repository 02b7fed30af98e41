"""Answers equal what the checkpoint predicts offline, in the forms of real clients."""

import base64
import shutil

import numpy as np
import pytest
from huggingface_hub import InferenceClient
from json_files import change_json
from prometheus_client.parser import text_string_to_metric_families
from scipy.special import expit

from mybert import Embedder, Predictor
from mybert.serving.prediction_requests import predict
from tokenization import MyBertTokenizer

TEXTS = ["a great film!", "Ann sings in Rome, the sea is very dull", "東", "sea"]
CONTEXT = "Ann sings in Rome. Bert is in the sea."
ROWS = {
    "classifier": [*TEXTS, {"text": "the song"}],
    "multi": TEXTS,
    "regression": TEXTS,
    "windowed": [" ".join(TEXTS), "sea"],
    "pairs": [["a film", "the film"], {"text": "a", "text_pair": "b"}],
    "tagger": [*TEXTS, {"tokens": ["Ann", "sings"]}],
    "reader": [["Who sings?", CONTEXT], {"question": "Where?", "context": CONTEXT}],
    "chooser": [{"context": "Ann", "choices": ["sings", "the sea"]}, {"context": "in", "choices": ["Rome", "a", "b"]}],
}


def near(found, expected) -> bool:
    """Whether JSON values are equal, floats up to rounding."""
    if isinstance(expected, float):
        return found == pytest.approx(expected, abs=1e-5)
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(near(found[name], expected[name]) for name in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(near, found, expected))
    return found == expected


@pytest.fixture(scope="module")
def embedder(models):
    return Embedder(str(models("filler")), device="cpu", normalize=True)


@pytest.fixture
def client(serve):
    import openai  # takes a second, of the worker that runs these tests only

    return openai.OpenAI(base_url=f"{serve('filler').url}/v1", api_key="none", max_retries=0)


@pytest.fixture
def online(monkeypatch):
    """Lets the client of Hugging Face reach this machine, which HF_HUB_OFFLINE forbids."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


@pytest.mark.parametrize("name", ROWS)
def test_rows_have_the_predictions_of_the_predictor(serve, models, name):
    found = serve(name).post("/predict", {"rows": ROWS[name]})
    rows = [tuple(row) if isinstance(row, list) else row for row in ROWS[name]]
    assert found.status_code == 200, found.text
    assert near(found.json()["predictions"], Predictor(models(name), device="cpu")(rows))


def test_the_client_of_openai_gets_the_vectors_of_the_embedder(client, embedder):
    expected = embedder.texts(TEXTS)
    for options in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
        found = client.embeddings.create(model="any", input=TEXTS, **options)
        vectors = [one.embedding for one in found.data]
        if options.get("encoding_format") == "base64":
            vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors]
        assert np.abs(np.array(vectors) - expected).max() < 1e-6
        assert [one.index for one in found.data] == [0, 1, 2, 3]
        assert found.usage.prompt_tokens == found.usage.total_tokens == sum(embedder.lengths(TEXTS))
    (model,) = client.models.list().data
    assert client.embeddings.create(model=model.id, input="sea").model == model.id


def test_token_arrays_have_the_vectors_of_their_texts(client, embedder, models):
    from openai import UnprocessableEntityError

    tokenizer = MyBertTokenizer.from_pretrained(models("filler"))
    expected = embedder.texts(TEXTS)
    for special in (False, True):
        ids = [tokenizer.encode(text, add_special_tokens=special) for text in TEXTS]
        found = client.embeddings.create(model="any", input=ids)
        assert np.abs(np.array([one.embedding for one in found.data]) - expected).max() < 1e-6
        one = client.embeddings.create(model="any", input=ids[0]).data[0].embedding
        assert np.abs(np.array(one) - expected[0]).max() < 1e-6
    with pytest.raises(UnprocessableEntityError, match="token ids: expected 0 to"):
        client.embeddings.create(model="any", input=[[10**30]])


def test_fewer_dimensions_are_the_first_ones_at_length_1(client, embedder):
    expected = embedder.texts(["sea"])[0, :5]
    found = client.embeddings.create(model="any", input="sea", dimensions=5).data[0].embedding
    assert np.abs(np.array(found) - expected / np.linalg.norm(expected)).max() < 1e-6


def test_embed_normalizes_and_truncates_as_asked(serve, models):
    plain = Embedder(str(models("filler")), device="cpu")
    service = serve("filler")
    found = service.post("/embed", {"inputs": TEXTS, "normalize": False}).json()
    assert np.abs(np.array(found) - plain.texts(TEXTS)).max() < 1e-5
    long = "sea " * 100
    assert service.post("/embed", {"inputs": long}).status_code == 413
    for text, read in (
        (long, "sea " * 62),
        ("the" * 500 + " sea", "the" * 500 + " sea"),
        ("a" * 50 + "é" * 3000, None),
    ):
        cut = service.post("/embed", {"inputs": text, "truncate": True, "normalize": False}).json()
        expected = plain.vectors([plain.encode([read or text])[0][:62]])
        assert np.abs(np.array(cut) - expected).max() < 1e-5
    words = " ".join("seas" * (1 + number % 9) for number in range(500))  # cut after any character of a word
    expected = plain.vectors([plain.encode([words])[0][:62]])
    for start in range(0, 40, 3):
        text = " " * (1024 - start) + words
        cut = service.post("/embed", {"inputs": text, "truncate": True, "normalize": False}).json()
        assert np.abs(np.array(cut) - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("name", "row", "problem"),
    [
        ("classifier", {"url": "sea"}, "it has no column for 'text' (looked for text, "),
        ("classifier", {}, "there are none"),
        ("pairs", {"premise": "sea", "sentence2": "song"}, "'premise' and 'sentence2' are no usual pair"),
    ],
)
def test_a_row_without_the_columns_of_the_model_is_refused_without_naming_an_option(serve, name, row, problem):
    found = serve(name).post("/predict", {"rows": [row]})
    assert found.status_code == 422 and problem in found.json()["error"] and "--columns" not in found.text


def test_options_beside_rows_are_refused(serve):
    found = serve("classifier").post("/predict", {"rows": ["sea"], "parameters": {"threshold": 0.5}})
    assert found.status_code == 422 and found.json()["error"] == "'parameters' is not supported; expected rows"


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"truncation_direction": "Left"}, 422),
        ({"truncation_direction": "Right", "prompt_name": None}, 200),
        ({"prompt_name": "query"}, 422),
    ],
)
def test_parameters_of_text_embeddings_inference_that_change_the_result_are_not_ignored(serve, more, status):
    found = serve("filler").post("/embed", {"inputs": "sea " * 100, "truncate": True, **more})
    assert found.status_code == status
    assert status == 200 or found.json()["error"].startswith(next(iter(more)))


def test_windows_of_long_texts_have_the_vector_of_the_embedder(serve, models):
    expected = Embedder(str(models("encoder")), device="cpu", long_texts="window", normalize=True).texts(["a b " * 80])
    found = serve("encoder", long_texts="window").post("/embed", {"inputs": "a b " * 80}).json()
    assert np.abs(np.array(found) - expected).max() < 1e-6


def test_the_client_of_hugging_face_gets_vectors_and_similarities(serve, embedder, online):
    vectors, url = embedder.texts(TEXTS), serve("filler").url
    found = InferenceClient(url).feature_extraction(TEXTS[0], normalize=True)
    assert np.abs(found - vectors[0]).max() < 1e-6
    found = InferenceClient(f"{url}/similarity").sentence_similarity(TEXTS[0], other_sentences=TEXTS[1:])
    assert found == pytest.approx((vectors[1:] @ vectors[0]).tolist(), abs=1e-5)


def test_predict_and_rerank_follow_text_embeddings_inference(serve, models):
    scores = Predictor(models("classifier"), device="cpu")(TEXTS[0])["scores"]
    best_first = sorted(scores, key=scores.get, reverse=True)
    one = serve("classifier").post("/predict", {"inputs": TEXTS[0]}).json()
    several = serve("classifier").post("/predict", {"inputs": [[TEXTS[0]], [TEXTS[1]]]}).json()
    assert [label["label"] for label in one] == [label["label"] for label in several[0]] == best_first
    pair = serve("pairs").post("/predict", {"inputs": ["a film", "the film"]}).json()
    assert near(
        {one["label"]: one["score"] for one in pair},
        Predictor(models("pairs"), device="cpu")(("a film", "the film"))["scores"],
    )
    for name in ("classifier", "multi"):  # three classes, several labels
        assert serve(name).post("/rerank", {"query": "a", "texts": ["b"]}).status_code == 424
    expected = Predictor(models("regression"), device="cpu")([("sea", text) for text in TEXTS])
    logits = {number: one["score"] for number, one in enumerate(expected)}
    raw = serve("regression").post("/rerank", {"query": "sea", "texts": TEXTS, "raw_scores": True}).json()
    assert near({one["index"]: one["score"] for one in raw}, logits)
    ranked = serve("regression").post("/rerank", {"query": "sea", "texts": TEXTS, "return_text": True}).json()
    assert [one["index"] for one in ranked] == sorted(logits, key=logits.get, reverse=True)
    assert near([one["score"] for one in ranked], [float(expit(logits[one["index"]])) for one in ranked])
    assert [one["text"] for one in ranked] == [TEXTS[one["index"]] for one in ranked]


def test_a_score_that_has_passed_through_a_sigmoid_passes_through_no_other_one(serve, models):
    if not (folder := models.folder / "scorer").exists():
        shutil.copytree(models("regression"), folder)
        change_json(folder / "config.json", problem_type=None)
    for body in ({"query": "sea", "texts": TEXTS}, {"query": "sea", "texts": TEXTS, "raw_scores": True}):
        found = [serve(name).post("/rerank", body).json() for name in ("scorer", "regression")]
        assert [one["index"] for one in found[0]] == [one["index"] for one in found[1]]
        assert near(*([one["score"] for one in each] for each in found))


def test_a_head_with_two_classes_ranks_by_the_second_one(serve, models):
    expected = [one["scores"]["yes"] for one in Predictor(models("pairs"), device="cpu")([("sea", t) for t in TEXTS])]
    found = serve("pairs").post("/rerank", {"query": "sea", "texts": TEXTS}).json()
    assert [one["index"] for one in found] == sorted(range(len(TEXTS)), key=lambda i: -expected[i])
    assert near([one["score"] for one in found], [expected[one["index"]] for one in found])
    raw = serve("pairs").post("/rerank", {"query": "sea", "texts": TEXTS, "raw_scores": True}).json()
    assert near([float(expit(one["score"])) for one in raw], [one["score"] for one in found])


@pytest.mark.parametrize(
    ("name", "path"), [("regression", "/v2/rerank"), ("pairs", "/v1/rerank"), ("pairs", "/rerank")]
)
def test_rerank_follows_cohere(serve, name, path):
    best = serve(name).post("/rerank", {"query": "sea", "texts": TEXTS}).json()[:2]
    documents = [TEXTS[0], {"text": TEXTS[1]}, *TEXTS[2:]]
    body = {"model": "any", "query": "sea", "documents": documents, "top_n": 2}
    found = serve(name).post(path, body).json()
    assert found["id"]
    assert near(found["results"], [{"index": one["index"], "relevance_score": one["score"]} for one in best])
    found = serve(name).post(path, body | {"return_documents": True}).json()["results"]
    assert [one["document"]["text"] for one in found] == [TEXTS[one["index"]] for one in best]
    for wrong in ({"top_n": 0}, {"documents": [1]}, {"documents": "sea"}):
        assert serve(name).post(path, body | wrong).status_code == 422


@pytest.mark.parametrize("name", ROWS)
def test_the_tokens_of_a_request_are_counted_as_often_as_the_model_reads_them(serve, name):
    served = serve(name).service.served
    context = "sea ann in rome " * 40
    more = {
        "reader": [["who " * many, context] for many in (1, 20, 50, 59)],
        "chooser": [{"context": "a b", "choices": ["a " * 9, "b"] * 9}],
        "pairs": [["a " * 20, "b " * 20]],
    }
    for row in [*ROWS[name], *more.get(name, ["sea " * 30, "sea ann " * 60])]:
        work = predict(served, {"rows": [row]})
        read = sum(work.encode(served)[1])
        limit = {"classifier": 64, "multi": 64, "regression": 64, "reader": 8 * 64}.get(name)  # of 8 windows
        assert read <= work.tokens and (read == limit or work.tokens <= 1.6 * read + 3), row


def test_facts_and_metrics(serve):
    service = serve("classifier")
    service.post("/predict", {"rows": ["sea", "a film"]})
    facts = service.client.get("/info").json()
    assert facts["model_type"]["classifier"]["label2id"] == {"bad": 0, "good": 1, "odd": 2}
    assert service.client.get("/health").status_code == 200
    families = {one.name: one for one in text_string_to_metric_families(service.client.get("/metrics").text)}
    answers = {
        tuple(s.labels.values()): s.value for s in families["mybert_requests"].samples if s.name.endswith("total")
    }
    assert answers["/predict", "200"] >= 1
    rows = next(s.value for s in families["mybert_batch_rows"].samples if s.name.endswith("sum"))
    assert rows >= 2 and families["mybert_tokens_in_progress"].samples[0].value == 0
