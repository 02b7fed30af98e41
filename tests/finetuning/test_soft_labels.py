"""`mybert finetune --teacher`: soft labels of every task, unlabelled rows, and mistakes."""

import json
import math

import numpy as np
import pytest
import torch
from json_files import write_lines
from tiny_models import LABELLED
from torch import Tensor

import mybert
from modeling_mybert import MyBertConfig, MyBertForPreTraining, MyBertForSequenceClassification
from mybert.artifacts.manifest import fingerprint, read_manifest
from mybert.finetuning.arguments import FinetuningArguments
from mybert.finetuning.recipes import planned_runs
from mybert.finetuning.run_data import load_data, new_task
from mybert.finetuning.settings import FinetuneSettings
from mybert.finetuning.soft_labels import TEACHER_LOGITS, SoftLabels, store_logits
from mybert.finetuning.training import Job, build_trainer
from mybert.training.objective import soft_loss
from mybert.training.stopping import StopOnSignal
from tokenization import MyBertTokenizer

CONTEXT = "the good film the bad book"
TARGETS = {"label", "tags", "answers"}


@pytest.fixture(scope="module", params=["classifier", "multi", "regression", "tagger", "reader", "chooser"])
def trained(request, tiny_checkpoint, tmp_path_factory):
    """Of each head: options, and a teacher after two steps."""
    task, rows = LABELLED[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    unlabelled = [{name: value for name, value in row.items() if name not in TARGETS} for row in rows]
    for name, content in (("train", rows), ("unlabelled", unlabelled)):
        write_lines(folder / f"{name}.jsonl", content)
    settings = {"task": task, "train": str(folder / "train.jsonl"), "validation_share": 0, "max_length": 32}
    trainer = trainer_of(folder, model=str(tiny_checkpoint), **settings)
    trainer.train()
    trainer.save_model(str(folder / "teacher"))
    return folder, settings


def trainer_of(folder, batch: int = 8, **settings):
    settings = FinetuneSettings(output=str(folder / "out"), **settings)
    choices = {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False, "learning_rate": 1e-2}
    choices |= {"max_steps": 2, "num_train_epochs": 1, "per_device_train_batch_size": batch}
    arguments = FinetuningArguments(output_dir=str(folder / "out"), use_cpu=True, disable_tqdm=True, **choices)
    task, tokenizer = new_task(settings)
    task, data = load_data(settings, task, tokenizer, verbose=False)
    job = Job(settings, arguments, task, tokenizer, data, task.main_metric, StopOnSignal("t"))
    trainer = build_trainer(job, *planned_runs(settings, arguments))
    trainer.args.output_dir = settings.output
    return trainer


def loss_of(trainer, rows: list[int]) -> tuple[Tensor, dict]:
    """The loss of one step on these features, and the batch."""
    loader = trainer.get_train_dataloader()
    features = [loader.dataset[row] for row in rows]
    batches, count = trainer.get_batch_samples(iter([trainer.data_collator(features)]), 1, torch.device("cpu"))
    trainer.metrics.start_step(batches)
    batch = dict(batches[0])
    return trainer.compute_loss(trainer.model, dict(batch), num_items_in_batch=count), batch


def test_a_student_equal_to_its_teacher_has_the_loss_of_the_labelled_rows_alone(trained):
    folder, settings = trained
    teacher = str(folder / "teacher")
    unlabelled = str(folder / "unlabelled.jsonl")
    both = trainer_of(folder, model=teacher, teacher=teacher, unlabelled=unlabelled, soft_share=0.75, **settings)
    alone = trainer_of(folder, model=teacher, **settings)
    assert len(both.train_dataset) == 2 * len(alone.train_dataset) == 12
    found, batch = loss_of(both, [0, 1, 2, 6, 7, 8])
    expected, _ = loss_of(alone, [0, 1, 2])
    assert torch.isfinite(batch[TEACHER_LOGITS]).any()
    problem = both.model.config.problem_type
    if problem == "regression":  # unlabelled rows have the teacher's value, which the student gives
        torch.testing.assert_close(found, 0.25 * expected / 2, rtol=1e-3, atol=1e-5)
    elif problem != "multi_label_classification":
        torch.testing.assert_close(found, 0.25 * expected, rtol=1e-3, atol=1e-5)
    with torch.no_grad():  # another student has a soft loss
        for weight in both.model.bert.encoder.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)) * 0.2)
    names = ("input_ids", "attention_mask", "token_type_ids")
    outputs = both.model(**{name: batch[name] for name in names if name in batch})
    assert both.objective._soft_labels.loss(outputs, batch[TEACHER_LOGITS]) > 1e-4
    assert math.isfinite(both.train().training_loss)


def test_rows_that_may_be_longer_than_those_of_the_teacher_give_a_warning(trained, caplog):
    folder, settings = trained
    teacher = str(folder / "teacher")
    for length in (32, 33):
        caplog.clear()
        trainer_of(folder, model=teacher, teacher=teacher, **settings | {"max_length": length})
        message = f"--max-length 33: the teacher {teacher} was trained on sequences of at most 32 tokens"
        assert (message in caplog.text) == (length == 33)


def test_the_stored_logits_of_a_teacher_are_read_back_and_used_again(trained, monkeypatch):
    folder, settings = trained
    teacher = str(folder / "teacher")
    settings |= {"model": teacher, "teacher": teacher, "unlabelled": str(folder / "unlabelled.jsonl")}
    computed = trainer_of(folder, **settings).train_dataset
    (folder / "out").mkdir(exist_ok=True)
    store_logits(computed, folder / "out")
    monkeypatch.setattr(SoftLabels, "of_teacher", lambda *_: 1 / 0)
    stored = trainer_of(folder, resume=True, **settings).train_dataset
    for one, other in zip(stored.to_list(), computed.to_list(), strict=True):
        np.testing.assert_array_equal(one.pop(TEACHER_LOGITS), other.pop(TEACHER_LOGITS))  # NaN equals NaN
        assert one == other


def test_the_soft_loss_of_classes_is_the_summed_divergence_at_the_temperature():
    teacher, student = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    expected = soft_loss(student, teacher, 2.0).sum().item()  # compared with its formula in tests/distillation
    soft = SoftLabels("classes", None, 2.0, 0.5)
    assert soft.loss({"logits": student}, teacher).item() == pytest.approx(expected, rel=1e-5)
    assert soft.items(teacher) == 4
    absent = torch.full((4, 1), torch.nan)  # an added choice, of which the teacher says nothing
    widened = {"logits": torch.cat([student, torch.ones(4, 1)], 1)}
    assert soft.loss(widened, torch.cat([teacher, absent], 1)).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_a_student_learns_from_unlabelled_rows_what_its_teacher_knows(
    finetune, write_rows, opinions, classifier, tmp_path
):
    texts = [{"text": row["text"]} for row in opinions]
    wrong = [row | {"label": {"good": "bad", "bad": "good"}[row["label"]]} for row in opinions[3:5]]
    words = ("--train", write_rows("train.jsonl", wrong), "--validation", write_rows("dev.jsonl", opinions))
    words += ("--teacher", classifier, "--unlabelled", write_rows("texts.jsonl", texts), "--num-train-epochs", 3)
    assert finetune("text-classification", *words) == 0
    assert read_manifest(tmp_path / "out")["metrics"]["validation"]["accuracy"] > 0.9
    inputs = read_manifest(tmp_path / "out")["inputs"]
    assert inputs["teacher"] == {"path": str(classifier), "sha256": fingerprint(classifier)}
    assert inputs["unlabelled"]["path"].endswith("texts.jsonl")


def test_the_teacher_is_scored_on_rows_of_its_student(finetune, write_rows, opinions, classifier, tmp_path, capsys):
    dev = [*opinions[3:20], opinions[0] | {"label": {"good": "bad", "bad": "good"}[opinions[0]["label"]]}]
    words = ("--train", write_rows("train.jsonl", opinions[:8]), "--validation", write_rows("dev.jsonl", dev))
    assert finetune("text-classification", *words, "--teacher", classifier, "--max-steps", 1) == 0
    expected = mybert.evaluate(model=classifier, data=words[3], output=tmp_path / "scores", bootstrap=0).metrics
    assert 0.5 < expected["accuracy"] < 1
    found = json.loads((tmp_path / "out/results.json").read_text())
    assert found["teacher"] == {"validation": pytest.approx(expected)}
    assert f"validation, teacher {classifier}: accuracy {expected['accuracy']:.1%}\n" in capsys.readouterr().out
    report = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert f"its teacher {expected['accuracy']:.1%}" in report


def test_layers_keeps_evenly_spaced_layers_of_the_checkpoint(
    finetune, write_rows, opinions, tiny_checkpoint, tmp_path
):
    torch.manual_seed(0)
    deep = MyBertForPreTraining(MyBertConfig.from_pretrained(tiny_checkpoint, num_hidden_layers=3))
    deep.save_pretrained(tmp_path / "deep")
    MyBertTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path / "deep")
    rows = write_rows("train.jsonl", opinions[:8])
    words = ("text-classification", "--train", rows, "--max-steps", 1, "--learning-rate", 1e-12)
    assert finetune(*words, "--layers", 2, model=tmp_path / "deep") == 0
    found = MyBertForSequenceClassification.from_pretrained(tmp_path / "out").bert.encoder.layer
    for layer, number in zip(found, (0, 2), strict=True):
        torch.testing.assert_close(layer.state_dict(), deep.bert.encoder.layer[number].state_dict())
