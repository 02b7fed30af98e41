"""`mybert distill`: students of every kind, resume, records and mistakes."""

import re
import shutil

import pytest
import torch
from safetensors.torch import load_file
from trained_runs import read_log

from modeling_mybert import MyBertForPreTraining
from mybert import cli
from mybert.artifacts.manifest import fingerprint, read_manifest
from mybert.distillation.run import build_pair
from mybert.distillation.settings import DistillSettings
from mybert.distillation.teacher import Comparison, load_teacher
from mybert.release.card.card_data import CardData
from mybert.release.card.sections import training_rows
from mybert.reports.write import write_report
from tokenization import MyBertTokenizer


def test_the_help_leaves_out_the_options_of_text(capsys):
    with pytest.raises(SystemExit):
        cli.main(["distill", "--help"])
    shown = capsys.readouterr().out
    assert "--teacher" in shown and not re.search(r"--(text|language|uncased|cased|errors)\b", shown)


def test_a_student_starts_from_evenly_spaced_layers_of_its_teacher(teachers, corpus, tokenizer):
    settings = DistillSettings(teacher=str(teachers["bert"]), corpus=str(corpus), output="unused")
    student, _ = build_pair(settings, tokenizer, 16)
    teacher = MyBertForPreTraining.from_pretrained(teachers["bert"])
    assert student.config.num_hidden_layers == len(student.bert.encoder.layer) == 2  # half, if nothing is given
    assert settings.layers == 2
    for own, other in zip(student.bert.encoder.layer, (0, 3), strict=True):
        for name, weight in teacher.bert.encoder.layer[other].state_dict().items():
            assert torch.equal(own.state_dict()[name], weight)
    embeddings = teacher.bert.embeddings.word_embeddings.weight
    assert torch.equal(student.bert.embeddings.word_embeddings.weight, embeddings)
    assert torch.equal(student.cls.seq_relationship.weight, teacher.cls.seq_relationship.weight)


@pytest.mark.slow
def test_a_student_comes_closer_to_its_teacher_and_its_folder_names_it(run, teachers):
    output = run(max_steps=20, eval_steps=20, eval_on_start=True, logging_steps=10, learning_rate=3e-3)
    for name, share in (("eval_cosine_loss", 0.9), ("eval_soft_loss", 0.7)):
        losses = [log[name] for log in read_log(output, name)]
        assert losses[-1] < share * losses[0]
    first = read_log(output, "loss")[0]
    parts = {"soft_loss": 5, "mlm_loss": 2, "nsp_loss": 2, "cosine_loss": 1}  # the weights of DistilBERT
    assert first["loss"] == pytest.approx(sum(weight * first[name] for name, weight in parts.items()), rel=1e-4)
    manifest = read_manifest(output)
    assert manifest["stage"] == "distill"
    assert manifest["inputs"]["teacher"] == {"path": str(teachers["bert"]), "sha256": fingerprint(teachers["bert"])}
    assert manifest["metrics"]["soft_loss"] == pytest.approx(losses[-1])
    rows = dict(training_rows(CardData.of(output)))
    assert teachers["bert"].name in rows["teacher"].replace("\\", "")
    assert rows["distillation losses"] == "soft=5 hard=2 cosine=1"
    assert rows["layers kept of the initial weights"] == "2"


def test_the_teacher_is_scored_on_the_masked_tokens_of_the_student(run, tmp_path, capsys):
    same = read_manifest(run(output=tmp_path / "same", max_steps=1, layers=4, learning_rate=1e-12))["metrics"]
    names = ("mlm_loss", "mlm_accuracy")
    assert [same[f"teacher_{name}"] for name in names] == pytest.approx([same[name] for name in names], rel=1e-5)
    output = run(max_steps=2, layers=2)
    small = read_manifest(output)["metrics"]
    assert [small[f"teacher_{name}"] for name in names] == pytest.approx([same[name] for name in names], rel=1e-5)
    assert small["mlm_loss"] != pytest.approx(same["mlm_loss"], rel=1e-3)
    assert "teacher mlm accuracy" in capsys.readouterr().out
    report = write_report(output).read_text(encoding="utf-8")
    assert re.search(rf"teacher [^.;]* {same['mlm_accuracy']:.1%}", report)


@pytest.mark.slow
def test_a_run_that_was_cut_off_resumes_to_the_same_weights(run, tmp_path):
    arguments = {"max_steps": 4, "save_steps": 2, "eval_strategy": "no"}
    whole = run(output=tmp_path / "whole", **arguments)
    cut = tmp_path / "cut"
    shutil.copytree(whole, cut)
    for name in ("checkpoint-4", "model.safetensors"):
        path = cut / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    run(output=cut, resume=True, **arguments)
    for name, weight in load_file(whole / "model.safetensors").items():
        assert torch.equal(load_file(cut / "model.safetensors")[name], weight), name


def test_lengths_and_batches_may_change_during_a_distillation(run):
    schedule = {"length_schedule": ["8:0.5", "32"], "max_tokens_per_batch": 64, "start_tokens_per_batch": 16}
    output = run(max_steps=8, logging_steps=1, eval_strategy="no", **schedule)
    tokens = [log["tokens"] for log in read_log(output, "soft_loss")]
    steps = [after - before for before, after in zip([0, *tokens], tokens, strict=False)]
    assert len(steps) == 8
    assert sum(steps[:4]) < sum(steps[4:])


@pytest.mark.slow
def test_relations_teach_a_narrower_student_from_whole_texts(run, tokenizer, monkeypatch):
    seen = []
    inputs_of = Comparison.student_inputs

    def record(self, student, inputs):
        found = inputs_of(self, student, inputs)
        seen.append((inputs["input_ids"], found["input_ids"]))
        return found

    monkeypatch.setattr(Comparison, "student_inputs", record)
    output = run(teacher="encoder", size="tiny", relation_heads=4, max_steps=8, eval_steps=4)
    assert any((masked == tokenizer.mask_token_id).any() for masked, _ in seen)
    assert not any((whole == tokenizer.mask_token_id).any() for _, whole in seen)
    losses = [log["eval_relations_loss"] for log in read_log(output, "eval_relations_loss")]
    assert losses[-1] < losses[0]
    assert read_manifest(output)["settings"]["losses"] == ["relations=1"]
    assert "mlm_accuracy" not in read_manifest(output)["metrics"]  # no masked token was predicted


@pytest.mark.slow
def test_accumulated_batches_give_the_gradient_of_one_batch(run, tmp_path):
    shared = {
        "max_steps": 1,
        "logging_steps": 1,
        "dropout": 0.0,
        "eval_strategy": "no",
        "losses": ["soft=1", "hard=1"],
    }
    one = run(output=tmp_path / "one", per_device_train_batch_size=16, **shared)
    two = run(output=tmp_path / "two", per_device_train_batch_size=8, gradient_accumulation_steps=2, **shared)
    logs = [read_log(folder, "loss")[0] for folder in (one, two)]
    for name in ("soft_loss", "mlm_loss", "grad_norm"):
        assert logs[0][name] == pytest.approx(logs[1][name], rel=1e-3), name


def test_the_loss_of_a_step_does_not_depend_on_its_number_of_batches(run, tmp_path):
    """96 examples are 3 batches: with two a step, the last step has one."""
    shared = {
        "losses": ["relations=1", "hard=1"],
        "per_device_train_batch_size": 32,
        "num_train_epochs": 1,
        "max_steps": -1,
    }
    shared |= {"logging_steps": 1, "dropout": 0.0, "eval_strategy": "no", "learning_rate": 1e-12}
    each = run(output=tmp_path / "each", **shared)
    pairs = run(output=tmp_path / "pairs", gradient_accumulation_steps=2, **shared)
    each, pairs = (read_log(folder, "loss") for folder in (each, pairs))
    for name in ("relations_loss", "grad_norm"):
        assert pairs[1][name] == pytest.approx(each[2][name], rel=1e-4), name


def test_evaluation_does_not_depend_on_its_batches_or_the_order_of_the_losses(run, tmp_path):
    """24 examples are one batch, or two of 23 and 1."""
    shared = {"max_steps": 1, "learning_rate": 1e-12}
    one, two = (
        read_manifest(run(output=tmp_path / str(size), per_device_eval_batch_size=size, **shared, **more))["metrics"]
        for size, more in ((24, {}), (23, {"losses": ["cosine=1", "soft=5", "hard=2"]}))
    )
    for name in ("soft_loss", "cosine_loss"):
        assert one[name] == pytest.approx(two[name], rel=1e-5)


def test_a_teacher_may_have_more_rows_than_tokens(run, teachers, tmp_path):
    model = MyBertForPreTraining.from_pretrained(teachers["bert"])
    rows = model.config.vocab_size
    model.resize_token_embeddings(rows + 7, mean_resizing=False)
    model.cls.predictions.bias.data[rows:] = -100
    padded = tmp_path / "padded"
    MyBertTokenizer.from_pretrained(teachers["bert"]).save_pretrained(padded)
    model.save_pretrained(padded)
    shared = {"size": "tiny", "max_steps": 1, "learning_rate": 1e-12, "losses": ["soft=1"]}
    expected = read_manifest(run(output=tmp_path / "expected", **shared))["metrics"]
    found = read_manifest(run(output=tmp_path / "found", teacher=str(padded), **shared))["metrics"]
    for name in ("soft_loss", "teacher_mlm_loss"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4)


@pytest.mark.parametrize(("trained", "warned"), [(12, True), (16, False), (None, False)])
def test_examples_that_are_longer_than_those_of_the_teacher_give_a_warning(
    trained, warned, teachers, tmp_path, caplog
):
    teacher = shutil.copytree(teachers["bert"], tmp_path / "teacher")
    MyBertTokenizer.from_pretrained(teacher, model_max_length=trained or 512).save_pretrained(teacher)
    settings = DistillSettings(teacher=str(teacher), corpus="corpus", output="unused")
    load_teacher(settings, MyBertTokenizer.from_pretrained(teachers["bert"]), 16)
    message = (
        "a sequence of 16 tokens, but the teacher .* was trained on .* at most 12 .*`mybert corpus … --max-length 12`"
    )
    assert bool(re.search(message, caplog.text)) == warned == bool(caplog.records)
