"""`mybert adapt` on a tiny model: the adapted model, its records, exact resume, and bad input."""

import contextlib
import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from forked import exit_status
from json_files import write_lines
from tiny_domain import PIECES, UNUSED, write_documents
from trained_runs import have_same_weights
from trained_runs import read_results as results
from trained_runs import weights_of as weights

from modeling_mybert import MyBertForPreTraining, MyBertModel
from mybert.adaptation import preparation
from mybert.adaptation.settings import AdaptSettings
from mybert.artifacts.manifest import read_manifest
from mybert.common.errors import UserError
from mybert.pretraining.arguments import PretrainingArguments
from mybert.pretraining.planning import candidates
from mybert.workflows import adapt as workflow
from mybert.workflows.adapt import adapt
from tokenization import MyBertTokenizer


@pytest.fixture(scope="module")
def run(bert, texts, tmp_path_factory):
    """Runs `adapt` with few steps; returns the output folder."""

    def run(name: str = "", steps: int = 4, **settings) -> Path:
        output = tmp_path_factory.mktemp("out") / "adapted" if not name else Path(name)
        choices = {"inputs": texts["domain"], "model": str(bert), "new_words": 5, "eval_characters": 300}
        choices |= {"max_length": 32, "num_proc": 1, "output": str(output), **settings}
        more = {"max_steps": steps, "per_device_train_batch_size": 4, "save_steps": 2, "eval_strategy": "no"}
        return adapt(AdaptSettings(**choices), PretrainingArguments(output_dir=str(output), report_to=[], **more))

    return run


@pytest.fixture(scope="module")
def adapted(run, texts) -> Path:
    return run(replay=texts["general"])


def test_new_words_take_the_unused_places_and_then_new_rows(adapted):
    tokenizer, adaptation = MyBertTokenizer.from_pretrained(adapted), results(adapted)["adaptation"]
    words = [word["piece"] for word in adaptation["new_words"]]
    assert set(words) >= {"tanker", "barrel", "texaco"}
    places = [*(PIECES.index(name) for name in UNUSED), len(PIECES), len(PIECES) + 1]
    assert tokenizer.convert_tokens_to_ids(words) == places
    assert MyBertForPreTraining.from_pretrained(adapted).config.vocab_size == len(PIECES) + 2 == len(tokenizer)
    assert adaptation["vocabulary_size"] == {"before": len(PIECES), "after": len(PIECES) + 2}
    old = MyBertTokenizer(PIECES)
    text = "the price of oil in 1987 rises, hydrocarbons fall"
    assert tokenizer(text)["input_ids"] == old(text)["input_ids"]
    assert len(tokenizer("tanker barrel")["input_ids"]) == 4


def test_the_comparison_covers_both_held_out_texts(adapted):
    held_out = results(adapted)["adaptation"]["held_out"]
    for text in ("domain", "general"):
        for when in ("before", "after"):
            scores = held_out[text][when]
            assert 0 < scores["bits_per_character"] < 20
            assert 0 <= scores["masked_word_accuracy"] <= 1
    assert held_out["domain"]["after"]["tokens_per_word"] < held_out["domain"]["before"]["tokens_per_word"]
    manifest = json.loads((adapted / "manifest.json").read_text())
    assert manifest["complete"] is True
    assert manifest["adaptation"] == held_out
    assert manifest["inputs"].keys() >= {"model", "input-0", "replay-0"}
    assert manifest["counts"]["documents_held_out"] == 2
    assert not (adapted / "work").exists()


def test_transformers_bert_reads_the_adapted_folder_to_the_same_outputs(adapted):
    ours, theirs = (cls.from_pretrained(adapted).eval() for cls in (MyBertModel, transformers.BertModel))
    tokenizer = transformers.BertTokenizer.from_pretrained(adapted)
    texts = ["the tanker barrel", "texaco hydrocarbons rises"]
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    assert "tanker" in tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    assert inputs["input_ids"].tolist() == MyBertTokenizer.from_pretrained(adapted)(texts, padding=True)["input_ids"]
    with torch.no_grad():
        real = inputs["attention_mask"].bool()
        difference = ours(**inputs).last_hidden_state[real] - theirs(**inputs).last_hidden_state[real]
    assert difference.abs().max() < 1e-5


@pytest.mark.parametrize("place", ["training", "comparison"])
def test_an_interrupted_run_continues_to_the_same_model(place, adapted, run, texts, tmp_path, monkeypatch):
    output = str(tmp_path / "adapted")
    with monkeypatch.context() as patch:
        if place == "comparison":
            patch.setattr(workflow, "_compare", lambda *_: 1 / 0)
        else:
            steps = iter(range(3))
            step = workflow.pretrain.__globals__["RunTrainer"].training_step
            trainer = workflow.pretrain.__globals__["RunTrainer"]
            patch.setattr(trainer, "training_step", lambda *a, **k: (next(steps), step(*a, **k))[1])
        with pytest.raises((ZeroDivisionError, StopIteration, RuntimeError)):
            run(output, replay=texts["general"])
    assert json.loads((Path(output) / "manifest.json").read_text())["complete"] is False
    with pytest.raises(UserError, match="--new-words"):
        run(output, replay=texts["general"], resume=True, new_words=7)
    assert have_same_weights(run(output, replay=texts["general"], resume=True), adapted)
    assert [path.name for path in tmp_path.iterdir()] == ["adapted"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_time_budget_that_is_too_short_leaves_what_was_there(bert, adapted, texts, tmp_path, monkeypatch, overwrite):
    output = tmp_path / "adapted"
    if overwrite:
        shutil.copytree(adapted, output)
    monkeypatch.setattr(candidates, "_LEAST_SECONDS", 0.4)
    monkeypatch.setattr(workflow, "time", SimpleNamespace(monotonic=lambda: time.monotonic() - 60))  # preparation
    where = {"output": str(output), "overwrite": overwrite}
    settings = AdaptSettings(texts["domain"], model=str(bert), new_words=5, num_proc=1, time_budget="1s", **where)
    with pytest.raises(UserError, match="--time-budget 1 s"):
        adapt(settings, PretrainingArguments(output_dir=settings.output, report_to=[]))
    assert [path.name for path in tmp_path.iterdir()] == ["adapted"] * overwrite
    assert not overwrite or weights(output).keys() == weights(adapted).keys()


@pytest.mark.parametrize("function", ["_build_corpus", "_choose_words"])
def test_a_preparation_that_was_killed_is_continued(function, adapted, run, texts, tmp_path, monkeypatch):
    output = str(tmp_path / "adapted")
    with monkeypatch.context() as patch:
        patch.setattr(preparation, function, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        assert exit_status(lambda: run(output, replay=texts["general"])) == -signal.SIGKILL
    with pytest.raises(UserError, match="--resume"):
        run(output, replay=texts["general"])
    made = json.loads((tmp_path / "adapted" / "work" / "counts.json").read_text())
    with monkeypatch.context() as patch:
        again = [] if function == "_choose_words" else ["_choose_words"]
        for name in ["_write_texts", *again]:  # not computed again
            patch.setattr(preparation, name, lambda *_: 1 / 0)
        assert have_same_weights(run(output, replay=texts["general"], resume=True), adapted)
    assert made.items() <= json.loads((tmp_path / "adapted" / "manifest.json").read_text())["counts"].items()


@pytest.mark.parametrize("next_run", ["resume", "failure", "overwrite"])
def test_the_model_that_a_killed_run_was_replacing_is_removed_or_restored(
    next_run, adapted, run, texts, tmp_path, monkeypatch
):
    output = shutil.copytree(adapted, tmp_path / "adapted")
    with monkeypatch.context() as patch:
        patch.setattr(workflow, "_train", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        assert exit_status(lambda: run(str(output), replay=texts["general"], overwrite=True)) == -signal.SIGKILL
    assert weights(output).keys() == weights(adapted).keys(), "it stays until it is replaced"
    if next_run == "failure":
        monkeypatch.setattr(workflow, "_train", lambda *_: 1 / 0)
    failing = pytest.raises(ZeroDivisionError) if next_run == "failure" else contextlib.nullcontext()
    with failing:
        run(str(output), replay=texts["general"], **{"overwrite" if next_run == "overwrite" else "resume": True})
    assert [path.name for path in tmp_path.iterdir()] == ["adapted"]
    assert have_same_weights(output, adapted)
    assert read_manifest(output)["complete"] and not (output / "work").exists()


def test_words_of_add_tokens_move_behind_the_new_words_with_their_vectors(run, bert, tmp_path):
    tokenizer, model = MyBertTokenizer.from_pretrained(bert), MyBertForPreTraining.from_pretrained(bert)
    tokenizer.add_tokens(["xylo-1", "b-2"])
    model.resize_token_embeddings(len(tokenizer) + 3, mean_resizing=False)  # three rows without a token
    for part in (tokenizer, model):
        part.save_pretrained(tmp_path / "model")
    folder = run(model=str(tmp_path / "model"), freeze="all")
    after = MyBertTokenizer.from_pretrained(folder)
    text = "the xylo-1 and b-2 oil"
    assert after.tokenize(text) == tokenizer.tokenize(text) == text.split()
    tables = [MyBertForPreTraining.from_pretrained(path) for path in (tmp_path / "model", folder)]
    tables = [model.get_input_embeddings().weight for model in tables]
    assert len(tables[0]) == len(tables[1]) == len(after) + 1 == len(tokenizer) + 3
    for word in ("xylo-1", "b-2", "oil"):
        rows = [table[x.get_vocab()[word]] for table, x in zip(tables, (tokenizer, after), strict=True)]
        assert torch.equal(*rows)
    assert {"tanker", "barrel", "texaco"} <= after.get_vocab().keys()


def test_a_finished_run_has_nothing_to_resume_and_loses_its_work_folder(run, adapted, texts, tmp_path):
    shutil.copytree(adapted, tmp_path / "adapted")
    (tmp_path / "adapted" / "work").mkdir()
    run(str(tmp_path / "adapted"), replay=texts["general"], resume=True)
    assert sorted(path.name for path in (tmp_path / "adapted").iterdir()) == sorted(p.name for p in adapted.iterdir())


def test_without_new_words_the_vocabulary_stays(run):
    folder = run(new_words=0)
    assert MyBertTokenizer.from_pretrained(folder).get_vocab() == MyBertTokenizer(PIECES).get_vocab()
    assert results(folder)["adaptation"]["new_words"] == []
    assert "general" not in results(folder)["adaptation"]["held_out"]


def test_new_words_of_a_file_are_added_and_normalised(run, tmp_path, capsys):
    (tmp_path / "words.txt").write_bytes("Élan \n\nthe\r##lines\t\r\n[MASK]\rtanker\r".encode())
    folder = run(words=str(tmp_path / "words.txt"))
    printed = capsys.readouterr().out
    assert "2 of 5 words are already in the vocabulary, for example 'the'\n" in printed
    assert (
        "2 of 3 words of --words are not in the training text; their vectors are hardly trained: elan, ##lines\n"
        in (printed)
    )
    assert MyBertTokenizer.from_pretrained(folder).tokenize("pipelines, elan") == ["pipe", "##lines", ",", "elan"]


def test_frozen_old_weights_keep_their_values_and_new_rows_train(run, bert):
    before, folder = weights(bert), run(freeze="all")
    after = weights(folder)
    new = MyBertTokenizer.from_pretrained(folder).convert_tokens_to_ids(
        [word["piece"] for word in results(folder)["adaptation"]["new_words"]]
    )
    rows = torch.ones(len(PIECES), dtype=torch.bool)
    rows[[index for index in new if index < len(PIECES)]] = False
    for name, value in before.items():
        if value.shape[:1] == rows.shape and ("embeddings" in name or "predictions" in name):
            assert torch.equal(value[rows], after[name][: len(PIECES)][rows])
        else:
            assert torch.equal(value, after[name]), name
    table = after["bert.embeddings.word_embeddings.weight"]
    start = before["bert.embeddings.word_embeddings.weight"]
    tanker = MyBertTokenizer.from_pretrained(folder).convert_tokens_to_ids("tanker")
    pieces = MyBertTokenizer(PIECES)("tanker", add_special_tokens=False)["input_ids"]
    distance = (table[tanker] - start[pieces].mean(0)).norm()
    assert 0 < distance < 0.1 * table[tanker].norm()  # four small steps from the mean of the pieces


def test_the_length_is_that_of_the_model_and_the_modules_of_a_sentence_encoder_are_left_behind(
    run, bert, tmp_path, capsys
):
    encoder = shutil.copytree(bert, tmp_path / "encoder")
    (encoder / "modules.json").write_text("[]")
    folder = run(model=str(encoder), max_length=None, steps=2)
    printed = capsys.readouterr().out
    assert "using --max-length 64, the length that" in printed
    assert MyBertTokenizer.from_pretrained(folder).model_max_length == 64
    (line,) = [line for line in printed.splitlines() if "modules.json" in line]
    assert str(encoder) in line and "examples/train_sentence_embeddings.py" in line
    assert not (folder / "modules.json").exists()


def test_a_frozen_encoder_keeps_its_layers_and_low_rank_updates_are_merged_into_plain_weights(run, bert):
    before, frozen, updated = weights(bert), weights(run(freeze="encoder")), weights(run(lora_rank=2))
    assert all(torch.equal(before[name], frozen[name]) for name in before if ".encoder." in name)
    assert before.keys() == updated.keys()
    name, positions = "bert.encoder.layer.0.output.dense.weight", "bert.embeddings.position_embeddings.weight"
    assert 1 <= torch.linalg.matrix_rank(updated[name] - before[name], atol=1e-6) <= 2
    assert torch.equal(before[positions], updated[positions]) and not torch.equal(before[positions], frozen[positions])


def test_rows_of_a_task_are_read_as_text(run, tmp_path):
    rows = [{"tokens": ["the", "bundesbank", "rises", str(n)], "tags": ["O", "B-ORG", "O", "O"]} for n in range(6)]
    write_lines(tmp_path / "train.jsonl", rows)
    folder = run(inputs=[], task_data=str(tmp_path / "train.jsonl"), task="ner", validation_share=0)
    assert [word["piece"] for word in results(folder)["adaptation"]["new_words"]] == ["bundesbank"]


def test_a_text_in_a_script_that_the_vocabulary_lacks_in_part_is_reported(run, tmp_path, capsys):
    words = [["танкер", "нефть", f"{a}{b}"] for a in "абвгд" for b in "абвгд"]
    inputs = write_documents(tmp_path / "texts.jsonl", [" ".join(row) for row in words])
    folder = run(inputs=inputs)  # with the two frequent words in the vocabulary
    assert {word["piece"] for word in results(folder)["adaptation"]["new_words"]} == {"танкер", "нефть"}
    assert "33% of the words of the text are [UNK] with the vocabulary of " in capsys.readouterr().out


def test_the_model_card_has_the_words_and_the_scores(adapted, tmp_path):
    from mybert.release.card.model_card import write_card
    from mybert.release.hub.bundle import make_bundle
    from mybert.release.settings import PushSettings

    settings = PushSettings(str(adapted), "me/adapted")
    card = write_card(make_bundle(settings, tmp_path / "bundle"), settings, "v1", "Checked.").content
    adaptation = results(adapted)["adaptation"]
    assert "- 5 new words, with their former word pieces: " in card
    assert "AutoModelForMaskedLM" in card
    assert "AutoModelForNextSentencePrediction" not in card  # its head is not trained on single texts
    assert "heads for masked language modelling and" not in card and "next sentences" not in card
    assert "A BERT encoder with a masked language modelling head" in card
    assert "- The training did not include its next sentence prediction head." in card
    assert all(word["piece"] in card for word in adaptation["new_words"])
    for text, found in adaptation["held_out"].items():
        before, after = (found[when]["bits_per_character"] for when in ("before", "after"))
        assert f"| {text} text: bits per character | {before:.4g} | {after:.4g} |" in card
    assert "domain.jsonl" not in card  # a file of this machine
    assert re.search(r"- general text, mixed in: a local source, .*SHA-256 \w+…", card)
