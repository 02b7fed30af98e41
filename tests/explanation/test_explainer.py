"""Attributions equal those computed by their definition with transformers' BERT; words are those of the rows."""

import json
import random
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from json_files import read_lines
from scipy.special import logsumexp, softmax
from tiny_models import WORDS
from transformers import AutoTokenizer, BertForSequenceClassification

from modeling_mybert import MyBertForSequenceClassification
from mybert import Embedder, Predictor, cli
from mybert.explanation.explainer import Explainer
from mybert.explanation.similarity import is_encoder
from mybert.inference.checkpoint import open_checkpoint

TEXTS = ["a great film", "the very dull song, Ann sings in the sea!", "zebra"]
CONTEXT = "Ann sings in Rome. Bert is in the sea."


@pytest.fixture(scope="module")
def bert(models):
    """transformers' BERT with the weights of the classifier, and its log-odds as a function of its embeddings."""
    folder = models("classifier")
    model = BertForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
    return model, AutoTokenizer.from_pretrained(folder)


def test_an_explainer_reads_the_rows_that_a_predictor_reads(models):
    explainer = Explainer(models("classifier"), method="occlusion")
    records = [{"text": text} for text in TEXTS]
    expected = [one["explanations"] for one in explainer(TEXTS)]
    for rows in (records, pd.DataFrame(records), Dataset.from_list(records), iter(TEXTS)):
        assert [one["explanations"] for one in explainer(rows)] == expected
    for row in (TEXTS[0], records[0], (TEXTS[0],)):
        assert explainer(row)["texts"] == {"text": TEXTS[0]}


@pytest.mark.parametrize("saved", ["BertForSequenceClassification", ["BertForSequenceClassification"]])
def test_the_name_of_a_head_may_be_a_list_or_a_text(saved, models, tmp_path):
    folder = shutil.copytree(models("classifier"), tmp_path / "classifier")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": saved}))
    assert not is_encoder(str(folder)) and is_encoder(str(models("encoder")))
    model = open_checkpoint(str(folder)).model
    assert isinstance(model, MyBertForSequenceClassification)
    assert model.config.architectures == ["BertForSequenceClassification"]


def log_odds(logits: torch.Tensor, label: int) -> torch.Tensor:
    others = [i for i in range(logits.shape[-1]) if i != label]
    return logits[..., label] - logits[..., others].logsumexp(-1)


def score_of_embeddings(model, states: torch.Tensor, label: int) -> torch.Tensor:
    """The score of hidden states that enter the first layer."""
    output = model.bert.encoder(states)
    return log_odds(model.classifier(model.bert.pooler(output.last_hidden_state)), label)


def test_integrated_gradients_equal_the_integral_computed_with_transformers_bert(models, bert):
    model, tokenizer = bert
    for text, found in zip(TEXTS, Explainer(models("classifier"), steps=64)(TEXTS), strict=True):
        (one,) = found["explanations"]
        label = ["bad", "good", "odd"].index(one["target"])
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        masked = ids.clone()
        masked[:, 1:-1] = tokenizer.mask_token_id
        end, start = (model.bert.embeddings(x).detach() for x in (ids, masked))
        points, weights = np.polynomial.legendre.leggauss(96)
        total = torch.zeros_like(end)
        for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
            states = (start + point * (end - start)).requires_grad_()
            total += weight * torch.autograd.grad(score_of_embeddings(model, states, label).sum(), states)[0]
        expected = ((end - start) * total).sum(-1)[0, 1:-1].detach().numpy()
        np.testing.assert_allclose([token["attribution"] for token in one["tokens"]], expected, atol=2e-4)
        assert one["score"] == pytest.approx(score_of_embeddings(model, end, label).item(), abs=1e-4)
        assert one["baseline"] == pytest.approx(score_of_embeddings(model, start, label).item(), abs=1e-4)
        assert np.abs(expected).max() > 0.05


def test_occlusion_equals_the_change_when_transformers_bert_reads_the_word_as_a_mask(models, bert):
    model, tokenizer = bert
    for text, found in zip(TEXTS, Explainer(models("classifier"), method="occlusion")(TEXTS), strict=True):
        (one,) = found["explanations"]
        label = ["bad", "good", "odd"].index(one["target"])
        encoded = tokenizer(text, return_tensors="pt")
        words = encoded.word_ids(0)
        with torch.no_grad():
            whole = log_odds(model(**encoded).logits, label)
            for number, word in enumerate(one["words"]):
                ids = encoded["input_ids"].clone()
                ids[0, [place for place, owner in enumerate(words) if owner == number]] = tokenizer.mask_token_id
                expected = float(whole - log_odds(model(ids).logits, label))
                assert word["attribution"] == pytest.approx(expected, abs=1e-4)
        assert len(one["words"]) == words[-2] + 1 and one["completeness_error"] is None


@pytest.mark.parametrize(
    ("name", "rows", "columns"),
    [
        ("classifier", TEXTS, ["text"]),
        ("multi", TEXTS, ["text"]),
        ("regression", TEXTS, ["text"]),
        ("pairs", [(TEXTS[0], TEXTS[1])], ["text", "text_pair"]),
        ("tagger", [{"tokens": ["Ann", "sings", "in", "Rome", "zebra"]}, *TEXTS], ["tokens"]),
        ("reader", [("Who sings in Rome?", CONTEXT)], ["question", "context"]),
        ("chooser", [{"context": "Ann sings", "choices": ["in Rome", "a very dull song"]}], ["context", "choice"]),
        ("encoder", [(TEXTS[0], TEXTS[1]), (TEXTS[2], TEXTS[0])], ["text"]),
    ],
)
def test_values_add_up_to_the_change_of_the_score_and_words_are_parts_of_the_texts(models, name, rows, columns):
    found = Explainer(models(name), device="cpu")(rows)
    predictions = Predictor(models(name), device="cpu")(rows) if name != "encoder" else found
    assert [one | {"texts": 0, "explanations": 0} for one in found] == [
        one | {"texts": 0, "explanations": 0} for one in predictions
    ]
    assert all("".join(row["texts"].values()) for row in found)
    explanations = [(row["texts"], one) for row in found for one in row["explanations"]]
    assert explanations and list(dict.fromkeys(w["column"] for w in explanations[0][1]["words"])) == columns
    for texts, one in explanations:
        total = sum(token["attribution"] for token in one["tokens"])
        assert total == pytest.approx(sum(word["attribution"] for word in one["words"]))
        assert total - (one["score"] - one["baseline"]) == pytest.approx(one["completeness_error"])
        assert abs(one["completeness_error"]) <= 0.01 * sum(abs(t["attribution"]) for t in one["tokens"]) + 1e-5
        for word in one["words"]:
            assert word["text"] == texts[word["column"]][word["start"] : word["end"]] != ""
        pieces = {}
        for token in one["tokens"]:
            pieces[token["word"]] = pieces.get(token["word"], "") + token["token"].removeprefix("##")
        for number, word in enumerate(one["words"]):
            assert pieces[number] in (word["text"].lower(), "[UNK]")


def test_the_score_of_each_task_is_what_it_is_said_to_be(models):
    (found,) = Explainer(models("classifier"))([TEXTS[0]])
    probability = found["score"]
    assert found["explanations"][0]["score"] == pytest.approx(np.log(probability / (1 - probability)), abs=1e-4)
    (found,) = Explainer(models("multi"), labels=["long", "sad"])([TEXTS[0]])
    for one, label in zip(found["explanations"], ("long", "sad"), strict=True):
        probability = found["scores"][label]
        assert one["target"] == label
        assert one["score"] == pytest.approx(np.log(probability / (1 - probability)), abs=1e-4)
    (found,) = Explainer(models("regression"))([TEXTS[0]])
    assert found["explanations"][0]["score"] == pytest.approx(found["score"], abs=1e-5)
    (found,) = Explainer(models("reader"))([("Who sings in Rome?", CONTEXT)])
    assert found["explanations"][0]["score"] == pytest.approx(found["score"], abs=1e-4)
    assert found["explanations"][0]["target"] == found["answer"]
    texts = (TEXTS[0], TEXTS[1])
    (found,) = Explainer(models("encoder"))([texts])
    first, second = Embedder(models("encoder"), normalize=True, device="cpu").texts(list(texts))
    assert [one["score"] for one in found["explanations"]] == pytest.approx([float(first @ second)] * 2, abs=1e-5)
    assert found["similarity"] == pytest.approx(float(first @ second), abs=1e-5)


def test_an_answer_at_the_edge_of_a_window_has_the_score_of_the_prediction(models):
    chosen = random.Random(11)
    rows = [("Who sings?", " ".join(chosen.choices([*WORDS, "zebra"], k=40))) for _ in range(8)]
    for found in Explainer(models("reader"), steps=1, max_length=18, stride=2, max_answer_length=14)(rows):
        assert found["explanations"][0]["score"] == pytest.approx(found["score"], abs=1e-3)


def test_an_entity_has_the_mean_log_odds_of_its_tags(models):
    row = {"tokens": ["Ann", "sings", "in", "Rome", "the", "sea"]}
    (found,) = Explainer(models("tagger"))([row])
    model, tokenizer = open_checkpoint(str(models("tagger"))).model, AutoTokenizer.from_pretrained(models("tagger"))
    with torch.no_grad():
        ids = tokenizer(" ".join(row["tokens"]), return_tensors="pt")
        firsts = [ids.word_ids(0).index(word) for word in range(6)]
        logits = model(**ids).logits[0, firsts].numpy()
    labels = model.config.label2id
    assert found["entities"] and len(found["explanations"]) == len(found["entities"])
    for one, entity in zip(found["explanations"], found["entities"], strict=True):
        places = range(entity["start"], entity["end"])
        chosen = [labels[found["tags"][place]] for place in places]
        odds = [logits[p, c] - logsumexp(np.delete(logits[p], c)) for p, c in zip(places, chosen, strict=True)]
        assert one["score"] == pytest.approx(float(np.mean(odds)), abs=1e-4)
        assert one["target"] == f"{entity['type']}: {entity['text']}"
    assert found["scores"] == pytest.approx(softmax(logits, axis=1).max(1).tolist(), abs=1e-4)


def test_a_row_whose_tags_are_not_explained_says_why(models, tmp_path, capsys):
    absent = next(
        label for label in open_checkpoint(str(models("tagger"))).model.config.label2id if label not in ("O", "B-PER")
    )
    row = {"tokens": ["the", "sea"]}
    (found,) = Explainer(models("tagger"), labels=[absent])([row])
    assert absent not in found["tags"] and found["explanations"] == []
    assert found["note"] == f"no predicted entity has the tag {absent}"
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    words = ["explain", str(models("tagger")), str(tmp_path / "rows.jsonl"), "--labels", absent]
    assert cli.main([*words, "--output", str(tmp_path / "why.jsonl")]) == 0
    assert re.search(r"rows with nothing to explain +│ +1 ", capsys.readouterr().out)


def test_a_text_in_windows_is_explained_window_by_window_with_every_word(models):
    text = "a great film the very dull song Ann sings in the sea great great great film film who is in Rome"
    (found,) = Explainer(models("windowed"))([text])
    spans = [[(word["start"], word["end"]) for word in one["words"]] for one in found["explanations"]]
    assert len(spans) > 1 and all(len(some) <= 10 for some in spans)
    assert sorted({span for some in spans for span in some}) == [
        (start, start + len(word)) for word, start in zip(text.split(), _starts(text), strict=True)
    ]


@pytest.mark.slow
def test_words_of_a_text_that_repeats_itself_have_the_places_of_their_own_windows(models):
    text = " ".join(["great", "film"] * 14)
    (found,) = Explainer(models("windowed"))([text])
    spans = [[(word["start"], word["end"]) for word in one["words"]] for one in found["explanations"]]
    starts, step = _starts(text), 10 - 2  # tokens of a window without [CLS] and [SEP], less the stride
    assert [some[0][0] for some in spans] == starts[::step] and spans[-1][-1][1] == len(text)
    tokens = ["in", "the"] * 70
    (found,) = Explainer(models("tagger"), labels=["B-PER", "I-PER", "B-LOC", "O"])([{"tokens": tokens}])
    for one, entity in zip(found["explanations"], found["entities"], strict=True):
        words = one["words"][0]["start"], one["words"][-1]["end"]
        first, last = (len(" ".join(tokens[:end])) for end in (entity["start"], entity["end"]))
        assert words[0] <= first and last <= words[1], "the window of an entity has its words"


def _starts(text: str) -> list[int]:
    return [i for i in range(len(text)) if (i == 0 or text[i - 1] == " ") and text[i] != " "]


def test_batches_and_steps_in_parts_change_nothing(models):
    whole = Explainer(models("classifier"), steps=20)(TEXTS)
    parts = Explainer(models("classifier"), steps=20, max_tokens_per_batch=24)(TEXTS)
    for one, other in zip(whole, parts, strict=True):
        values = [[token["attribution"] for token in row["explanations"][0]["tokens"]] for row in (one, other)]
        assert values[0] == pytest.approx(values[1], abs=1e-4)


def test_more_steps_are_used_until_the_error_is_within_the_tolerance(models):
    loose, tight = (Explainer(models("classifier"), tolerance=t)(TEXTS) for t in (0.5, 1e-9))
    steps = [[row["explanations"][0]["steps"] for row in found] for found in (loose, tight)]
    assert set(steps[0]) == {16} and max(steps[1]) == 256


def test_attention_rows_are_probabilities_of_the_models_layers_and_heads(models):
    tokens, found = Explainer(models("pairs")).attention((TEXTS[0], TEXTS[2]))
    assert tokens == ["[CLS]", "a", "great", "film", "[SEP]", "z", "##e", "##b", "##r", "##a", "[SEP]"]
    assert found.shape == (2, 4, 11, 11)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-5)


def test_the_command_writes_lines_in_order_with_errors_in_place(models, tmp_path):
    rows = tmp_path / "rows.txt"
    rows.write_text("a great film\n\nthe dull song\n")
    output = tmp_path / "why.jsonl"
    assert cli.main(["explain", str(models("classifier")), str(rows), "--output", str(output)]) == 0
    lines = read_lines(output)
    assert [line["line"] for line in lines] == [1, 2, 3] and lines[1]["error"] == "empty text"
    assert [word["text"] for word in lines[2]["explanations"][0]["words"]] == ["the", "dull", "song"]
    counts = json.loads((tmp_path / "why.jsonl.manifest.json").read_text())["counts"]
    assert counts["rows"] == 3 and counts["explained scores"] == 2
    errors = [abs(line["explanations"][0]["completeness_error"]) for line in (lines[0], lines[2])]
    assert counts["completeness error, largest"] == max(errors)
