"""samples.jsonl, accuracy by kind of token and nearest neighbours, against transformers and brute force."""

import copy
import json
import math
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from json_files import read_lines
from torch.nn.functional import cosine_similarity

from mybert.pretraining import samples
from mybert.pretraining.data.batching import HeldOutDataset
from mybert.pretraining.evaluation import accuracy_by_group, is_word, kind_of, nearest_neighbours
from mybert.pretraining.samples import Samples, write_sample


@pytest.fixture
def model(make_trainer):
    return make_trainer().model.eval()


def samples_of(tokenizer, *texts) -> Samples:
    """Of examples without labels; a text is a list of one or two segments."""
    rows = [tokenizer(*text) for text in texts]
    columns = {name: [row[name] for row in rows] for name in ("input_ids", "token_type_ids")}
    return Samples(HeldOutDataset(datasets.Dataset.from_dict(columns)), tokenizer)


def test_of_all_examples_the_most_readable_are_shown(model, tokenizer, monkeypatch):
    monkeypatch.setattr(samples, "_WORDS", 1)
    found = samples_of(tokenizer, ["w4 hello w5 w7 w8"], ["well known token"]).ask(model, torch.device("cpu"))
    assert [(word["before"], word["word"], word["after"]) for word in found["words"]] == [("well", "known", "token")]


def test_characters_of_chinese_text_are_asked(model, tokenizer):
    (word,) = samples_of(tokenizer, ["我们学习"]).ask(model, torch.device("cpu"))["words"]
    assert (word["before"], word["word"], word["after"]) == ("我 们", "学", "习")


def test_the_probability_of_a_masked_word_is_that_of_the_model(model, tokenizer):
    texts = ["well known hello w3", "w4 w5 hello tokenize w1", "tokenizers w2 , token", "w7 w8 well"]
    found = samples_of(tokenizer, *[(text, "w9 w9") for text in texts]).ask(model, torch.device("cpu"))
    assert [word["word"] for word in found["words"]] == ["known", "hello", "token", "well"]  # no part of a word
    for word in found["words"]:
        inputs = tokenizer(f"{word['before']} [MASK] {word['after']}", return_tensors="pt")
        place = int((inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero())
        with torch.no_grad():
            shares = model(**inputs).prediction_logits[0, place].softmax(-1)
        assert word["probability"] == pytest.approx(shares[tokenizer.vocab[word["word"]]].item(), abs=1e-5)
        assert word["guesses"][0][0] == tokenizer.convert_ids_to_tokens(int(shares.argmax()))


def test_the_probability_of_a_pair_is_that_of_its_right_answer(model, pairs, tokenizer):
    rows = pairs(37, seed=9)
    found = Samples(HeldOutDataset(rows), tokenizer).ask(model, torch.device("cpu"))
    assert {pair["is_next"] for pair in found["pairs"]} == {True, False}
    for pair in found["pairs"]:
        inputs = tokenizer(pair["a"], pair["b"], return_tensors="pt")
        (row,) = {r["next_sentence_label"] for r in rows if r["input_ids"] == inputs["input_ids"][0].tolist()}
        with torch.no_grad():
            shares = model(**inputs).seq_relationship_logits[0].softmax(-1)
        assert pair["is_next"] == (row == 0)
        assert pair["probability"] == pytest.approx(shares[row].item(), abs=1e-5)


def test_every_evaluation_asks_the_same_and_a_repeated_step_replaces_its_line(
    make_trainer, pairs, tokenizer, tmp_path
):
    trainer = make_trainer(output="run", max_steps=4, eval_strategy="steps", eval_steps=2)
    columns = pairs(37, seed=9).to_dict()
    for number, ids in enumerate(columns["input_ids"]):
        ids[2] = tokenizer.convert_tokens_to_ids(["well", "known", "hello", "token"][number % 4])
    trainer.eval_dataset = HeldOutDataset(datasets.Dataset.from_dict(columns))
    trainer.train()
    lines = read_lines(tmp_path / "run/samples.jsonl")
    assert [line["step"] for line in lines] == [2, 4]
    first, last = ([{k: word[k] for k in ("before", "word", "after")} for word in line["words"]] for line in lines)
    assert {word["word"] for word in first} == {"well", "known", "hello", "token"}
    assert first == last
    first, last = ([{k: pair[k] for k in ("a", "b", "is_next")} for pair in line["pairs"]] for line in lines)
    assert len(first) == 6 and first == last
    write_sample(tmp_path / "run", {"step": 2, "words": []})
    lines = read_lines(tmp_path / "run/samples.jsonl")
    assert [(line["step"], line["words"]) for line in lines] == [(2, [])]


def test_the_best_model_is_not_asked_in_place_of_that_of_the_last_step(make_trainer, tmp_path):
    """The metric is the same at every step, so that the best model is the first."""
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_mlm_tokens", "learning_rate": 1e-2}
    steps = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    trainer = make_trainer(max_steps=4, **best, **steps)
    trainer.train()
    before = (tmp_path / "run/samples.jsonl").read_bytes()
    trainer.evaluate()
    assert (tmp_path / "run/samples.jsonl").read_bytes() == before


def test_a_model_that_computes_nan_is_not_asked(make_trainer, tmp_path):
    trainer = make_trainer(max_steps=2, eval_strategy="steps", eval_steps=2)
    trainer.train()
    before = (tmp_path / "run/samples.jsonl").read_bytes()
    torch.nn.init.constant_(trainer.model.cls.predictions.bias, math.nan)
    trainer.evaluate()
    assert (tmp_path / "run/samples.jsonl").read_bytes() == before


def test_samples_of_earlier_steps_survive_a_failure_while_writing(tmp_path, monkeypatch):
    write_sample(tmp_path, {"step": 1, "words": "one\u2028two\x85"})
    monkeypatch.setattr(Path, "write_text", half_written)
    with pytest.raises(KeyboardInterrupt):
        write_sample(tmp_path, {"step": 2})
    monkeypatch.undo()
    write_sample(tmp_path, {"step": 3})
    lines = (tmp_path / "samples.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    assert [json.loads(line)["step"] for line in lines] == [1, 3]


def half_written(path, text, **options):
    """`Path.write_text` of a process that is stopped while writing."""
    path.write_bytes(text.encode()[:-3])
    raise KeyboardInterrupt


def test_accuracy_by_group_adds_up_to_that_of_the_evaluation(make_trainer, tokenizer):
    trainer = make_trainer(report_to=[])
    metrics = trainer.evaluate()
    counts = trainer.objective.token_counts().numpy()
    assert counts[0].sum() == metrics["eval_mlm_tokens"]
    assert counts[1].sum() / counts[0].sum() == pytest.approx(metrics["eval_mlm_accuracy"])
    for groups in accuracy_by_group(counts, tokenizer).values():
        assert sum(group["tokens"] for group in groups) == metrics["eval_mlm_tokens"]
        right = sum(group["tokens"] * group["accuracy"] for group in groups)
        assert right == pytest.approx(counts[1].sum())


@pytest.mark.parametrize(
    ("piece", "kind", "shown"),
    [
        ("file", "word or start of a word", True),
        ("of", "word or start of a word", False),
        ("हिन्दी", "word or start of a word", True),
        ("我", "single character", True),
        ("a", "single character", False),
        ("##ing", "continuation of a word", False),
        ("2024", "number", False),
        ("##7", "number", False),
        (",", "punctuation or symbol", False),
    ],
)
def test_the_kind_of_a_token_and_whether_it_is_shown_as_a_word(piece, kind, shown):
    assert (kind_of(piece), is_word(piece)) == (kind, shown)


def test_neighbours_have_the_largest_cosine(tokenizer):
    torch.manual_seed(0)
    embeddings = torch.randn(len(tokenizer), 8)
    letters = [tokenizer.vocab[word] for word in ("well", "known", "hello", "token")]
    frequency = np.zeros(len(tokenizer))
    frequency[letters] = [9, 8, 7, 6]
    assert nearest_neighbours(embeddings, frequency, tokenizer) == {}  # too few words
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_tokens(["alpha", "beta", "gamma", "delta"])
    embeddings = torch.randn(len(tokenizer), 8)
    words = letters + [tokenizer.convert_tokens_to_ids(word) for word in ("alpha", "beta", "gamma", "delta")]
    frequency = np.zeros(len(tokenizer))
    frequency[words] = range(9, 1, -1)
    found = nearest_neighbours(embeddings, frequency, tokenizer)
    for word, near in found.items():
        own = embeddings[tokenizer.convert_tokens_to_ids(word)]
        cosines = {
            tokenizer.convert_ids_to_tokens(other): cosine_similarity(own, embeddings[other], dim=0).item()
            for other in words
            if tokenizer.convert_ids_to_tokens(other) != word
        }
        best = sorted(cosines, key=cosines.get, reverse=True)[:5]
        assert [other for other, _ in near] == best
        assert near[0][1] == pytest.approx(cosines[best[0]], abs=1e-4)
