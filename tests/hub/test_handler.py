"""handler.py of a published model, called as the container of Inference Endpoints does, beside transformers' BERT."""

import json
import random
from types import SimpleNamespace

import pytest
import torch
from hub_server import REPO
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tiny_models import HEADS, TinyModels, tiny_config

import modeling_mybert
from mybert.release.hub.bundle import make_bundle
from mybert.release.hub.handler import PIPELINES, EndpointHandler
from mybert.release.settings import PushSettings
from tokenization import MyBertTokenizer

TEXT, PAIR = "ann sings in rome", {"text": "the film is great", "text_pair": "the song is dull"}
INPUTS = {
    "MyBertModel": TEXT,
    "MyBertForPreTraining": "the [MASK] is great",
    "MyBertForMaskedLM": "the [MASK] is great",
    "MyBertForNextSentencePrediction": PAIR,
    "MyBertForSequenceClassification": PAIR,
    "MyBertForTokenClassification": TEXT,
    "MyBertForQuestionAnswering": {"question": "who sings", "context": "ann sings in rome"},
    "MyBertForMultipleChoice": {"text": "the film", "choices": ["is great", "sings in"]},
}
PARAMETERS = {
    "MyBertForMaskedLM": {"top_k": 3},
    "MyBertForSequenceClassification": {"top_k": None},
    "MyBertForQuestionAnswering": {"top_k": 2},
}

# The steps of check_and_register_custom_pipeline_from_directory in huggingface-inference-toolkit; then transformers'
# BERT, without remote code, from the same folder.
SERVE = """
import importlib.util, json, sys, torch, transformers
transformers.logging.set_verbosity_error()
found = {}
for head, (folder, inputs, parameters) in json.loads(open(sys.argv[1]).read()).items():
    spec = importlib.util.spec_from_file_location("handler", folder + "/handler.py")
    sys.path.insert(0, folder)
    handler = importlib.util.module_from_spec(spec)
    sys.modules["handler"] = handler
    spec.loader.exec_module(handler)
    predict = handler.EndpointHandler(folder)
    one, many = ({"inputs": x, "parameters": parameters} for x in (inputs, [inputs, inputs]))
    found[head] = {"one": predict(one), "many": predict(many), "none": predict({"inputs": []}), "errors": []}
    code = {"custom_generate": folder, "trust_remote_code": True}
    for wrong in (
        *({}, None, [inputs], {"inputs": {"no": 1}}, {"inputs": inputs, "parameters": "top_k"}),
        {"inputs": inputs, "parameters": code},
    ):
        try:
            predict(wrong)
        except Exception as error:
            found[head]["errors"].append(str(error))
    name = head.removeprefix("My")
    if hasattr(transformers, name):
        bert = getattr(transformers, name).from_pretrained(folder).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        texts = {"text": [inputs]} if isinstance(inputs, str) else inputs
        if "choices" in texts:
            texts = {"text": [texts["text"]] * 2, "text_pair": texts["choices"]}
        if "question" in texts:
            texts = {"text": texts["question"], "text_pair": texts["context"]}
        batch = tokenizer(**texts, return_tensors="pt")
        if name == "BertForMultipleChoice":
            batch = {key: x.unsqueeze(0) for key, x in batch.items()}
        with torch.no_grad():
            found[head]["bert"] = [x.tolist() for x in bert(**batch).to_tuple()]
print(json.dumps(found))
"""


@pytest.fixture
def served(tmp_path, run_foreign) -> dict:
    """By head: what the handler of its bundle answers, and the outputs of transformers' BERT."""
    tokenizer, jobs = MyBertTokenizer(TinyModels(tmp_path).pieces), {}
    torch.manual_seed(0)
    for head in PIPELINES:
        folder, bundled, cls = tmp_path / head, tmp_path / f"bundle of {head}", getattr(modeling_mybert, head)
        model = cls(tiny_config(len(tokenizer), num_hidden_layers=1, initializer_range=0.3))
        if head in ("MyBertForNextSentencePrediction", "MyBertForMultipleChoice"):  # scores are float32 all the same
            model = model.bfloat16()
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        make_bundle(PushSettings(str(folder), REPO), bundled)
        jobs[head] = (str(bundled), INPUTS[head], PARAMETERS.get(head, {}))
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    found = json.loads(run_foreign(SERVE, tmp_path / "jobs.json")[-1])
    return {head: SimpleNamespace(**answers) for head, answers in found.items()}


def probabilities(logits: list[float], rounding: float = 1e-5):
    return pytest.approx(torch.tensor(logits).softmax(-1).tolist(), abs=rounding)


def test_the_handler_of_every_head_answers_like_transformers_bert(served):
    assert served.keys() == PIPELINES.keys() == INPUTS.keys()
    assert all(found.none == [] for found in served.values())
    one = {head: found.one for head, found in served.items()}
    bert = {head: found.bert for head, found in served.items()}
    for head, found in served.items():
        assert len(found.many) == 2 and type(found.many[0]) is type(found.one), head
        assert len(found.errors) == 6, head
        assert all("'inputs'" in error for error in found.errors[:3]), head
        assert "parameters: expected an object" in found.errors[4], head
        assert "custom_generate, trust_remote_code would load code" in found.errors[5], head
    assert torch.allclose(torch.tensor(one["MyBertModel"]), torch.tensor(bert["MyBertModel"][0]), atol=1e-5)
    for head in ("MyBertForPreTraining", "MyBertForMaskedLM"):
        expected = torch.tensor(bert[head][0][0][2]).softmax(-1).topk(len(one[head]))
        assert [entry["token"] for entry in one[head]] == expected.indices.tolist()
        assert [entry["score"] for entry in one[head]] == pytest.approx(expected.values.tolist(), abs=1e-5)
    assert len(one["MyBertForMaskedLM"]) == 3, "top_k"
    for head in ("MyBertForNextSentencePrediction", "MyBertForMultipleChoice"):
        assert [entry["score"] for entry in one[head]] == probabilities(bert[head][0][0], 2**-7)  # of bfloat16
    assert [entry["label"] for entry in one["MyBertForNextSentencePrediction"]] == ["IsNext", "NotNext"]
    assert [entry["label"] for entry in one["MyBertForMultipleChoice"]] == ["is great", "sings in"]
    scores = {entry["label"]: entry["score"] for entry in one["MyBertForSequenceClassification"]}
    assert [scores["LABEL_0"], scores["LABEL_1"]] == probabilities(bert["MyBertForSequenceClassification"][0][0])
    for entry in one["MyBertForTokenClassification"]:
        row = torch.tensor(bert["MyBertForTokenClassification"][0][0][entry["index"]]).softmax(-1)
        assert (entry["entity"], entry["score"]) == (
            f"LABEL_{row.argmax()}",
            pytest.approx(row.max().item(), abs=1e-5),
        )
    assert len(one["MyBertForTokenClassification"]) == 4, "words"
    for entry in one["MyBertForQuestionAnswering"]:
        context = INPUTS["MyBertForQuestionAnswering"]["context"]
        assert entry["answer"] == context[entry["start"] : entry["end"]] and 0 <= entry["score"] <= 1


VECTORS = """
import json
sys.path.insert(0, sys.argv[1])
from handler import EndpointHandler
handler = EndpointHandler(sys.argv[1])
found = [handler(json.loads(request)) for request in sys.argv[2:]]
try:
    handler({"inputs": [{"text": "a"}]})
except ValueError as error:
    print(json.dumps([*found, str(error)]))
"""


def test_the_handler_of_a_sentence_encoder_answers_with_its_vectors(tmp_path, run_foreign):
    modules = [Transformer(str(TinyModels(tmp_path)("encoder"))), Pooling(32, "cls"), Dense(32, 8), Normalize()]
    model = SentenceTransformer(modules=modules, prompts={"query": "the "}, device="cpu")
    model.save(str(tmp_path / "vectors"))
    bundle = make_bundle(PushSettings(str(tmp_path / "vectors"), REPO), tmp_path / "bundle")
    assert "sentence-transformers>=" in (bundle.folder / "requirements.txt").read_text()
    texts = [TEXT, "who is great"]
    requests = [{"inputs": TEXT}, {"inputs": texts}, {"inputs": texts, "parameters": {"prompt_name": "query"}}]
    *found, error = json.loads(run_foreign(VECTORS, bundle.folder, *map(json.dumps, requests))[-1])
    expected = [model.encode(TEXT), model.encode(texts), model.encode(texts, prompt_name="query")]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other), atol=1e-5, rtol=0)
    assert "expected a text or a list of texts" in error


@pytest.mark.parametrize("name", ["pairs", "chooser"])
@pytest.mark.parametrize("lengths", [(90, 400), (400, 90), (401, 401), (8, 8)])
def test_one_of_two_long_texts_is_shortened_and_the_scores_stay_the_same(name, lengths, tmp_path, monkeypatch):
    """The tokenizers library takes time and memory of the product of both lengths."""
    folder = TinyModels(tmp_path)(name)
    tokenizer = MyBertTokenizer.from_pretrained(folder, model_max_length=32)
    tokenizer.save_pretrained(folder)
    handler = EndpointHandler(folder)
    texts = [" ".join(random.Random(n).choices(["the", "singer", "great,"], k=n)) for n in lengths]
    seen, call = [], type(handler.tokenizer).__call__

    def spy(self, *given, **options):
        given = [*given, *(options[key] for key in ("text", "text_pair") if key in options)]
        seen.extend([[given]] if isinstance(given[0], str) else [list(zip(*given, strict=True))])
        return call(self, *given, **{key: value for key, value in options.items() if "text" not in key})

    monkeypatch.setattr(type(handler.tokenizer), "__call__", spy)
    if name == "chooser":
        found = handler({"inputs": {"text": texts[0], "choices": [texts[1], "sea"]}})
    else:
        found = handler({"inputs": [{"text": texts[0], "text_pair": texts[1]}], "parameters": {"top_k": None}})[0]
    monkeypatch.undo()
    pairs = [pair for batch in seen for pair in batch if len(pair) == 2]
    assert pairs and all(min(map(len, pair)) < 800 for pair in pairs)
    model = getattr(modeling_mybert, f"MyBertFor{HEADS[name][0]}").from_pretrained(folder).eval()
    pairs = [texts, [texts[0], "sea"]] if name == "chooser" else [texts]
    batch = tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        inputs = {key: x.unsqueeze(0) for key, x in batch.items()} if name == "chooser" else batch
        expected = model(**inputs).logits[0].softmax(-1).tolist()
    assert sorted(entry["score"] for entry in found) == pytest.approx(sorted(expected), abs=1e-6)


def test_a_text_without_spaces_is_shortened_too_but_not_if_a_request_sets_the_truncation(tmp_path):
    folder = TinyModels(tmp_path)("pairs")
    MyBertTokenizer.from_pretrained(folder, model_max_length=32).save_pretrained(folder)
    handler = EndpointHandler(folder)
    handler._pipeline = lambda inputs, **_: inputs
    pair = {"text": "漢字、" * 200, "text_pair": "漢字" * 200}
    assert handler({"inputs": [pair]}) == [{**pair, "text_pair": "漢字" * 16}]
    assert handler({"inputs": pair, "parameters": {"truncation": True}}) == {**pair, "text_pair": "漢字" * 16}
    for parameters in ({"truncation": False}, {"truncation": True, "max_length": 64}):  # the model may read more
        assert handler({"inputs": pair, "parameters": parameters}) == pair
