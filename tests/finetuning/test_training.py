"""Resuming a fine-tuning after it was killed or stopped at any point."""

import os
import re
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from json_files import write_lines
from safetensors.torch import load_file
from trained_runs import read_log
from trained_runs import read_results as results

from mybert import cli
from mybert.finetuning import report, training
from mybert.finetuning.soft_labels import SoftLabels
from mybert.inference import task_checkpoint
from mybert.training import metrics, sealed_checkpoints
from mybert.training.trainer import RunTrainer


def same_weights(one: Path, other: Path) -> bool:
    expected, found = (load_file(folder / "model.safetensors") for folder in (one, other))
    return all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.fixture(scope="module")
def words(tmp_path_factory, opinions) -> tuple:
    """Five steps per epoch; no later evaluation is better than the first."""
    folder, other = tmp_path_factory.mktemp("data"), {"good": "bad", "bad": "good"}
    wrong = [{**row, "label": other[row["label"]]} for row in opinions[40:]]  # so that the loss of validation rises
    train, dev = write_lines(folder / "train.jsonl", opinions[:40]), write_lines(folder / "dev.jsonl", wrong)
    return ("text-classification", "--train", train, "--validation", dev, "--learning-rate", "1e-7")


@pytest.fixture(scope="module")
def finished() -> dict:
    return {}


@pytest.fixture
def whole(finetune, words, finished, tmp_path_factory):
    """A function that returns the folder of an uninterrupted run with some options; it is run once."""

    def run(*more) -> Path:
        if more not in finished:
            finished[more] = tmp_path_factory.mktemp("whole") / "run"
            assert finetune(*words, *more, output=finished[more]) == 0
        return finished[more]

    return run


@pytest.fixture
def no_more_steps(monkeypatch):
    """A function that makes every later training step an error."""

    def forbid():
        def step(*_, **__):
            raise AssertionError("nothing was left to train")

        monkeypatch.setattr(RunTrainer, "training_step", step)

    return forbid


def killed(*_, **__):
    raise KeyboardInterrupt


def test_saving_is_no_training_time(finetune, words, tmp_path, monkeypatch):
    saved = []
    seal = sealed_checkpoints.seal
    monkeypatch.setattr(sealed_checkpoints, "seal", lambda folder: (seal(folder), saved.append(folder)))
    clock = SimpleNamespace(perf_counter=lambda: time.perf_counter() + 3600 * len(saved))  # each takes an hour
    monkeypatch.setattr(metrics, "time", clock)
    assert finetune(*words, "--num-train-epochs", 2) == 0
    assert len(saved) == 2
    assert results(tmp_path / "out")["runs"][0]["seconds"] < 3600


@pytest.mark.parametrize(("more", "expected"), [((), [5, 10, 10]), (("--load-best-model-at-end", "false"), [5, 10])])
def test_the_trained_model_is_evaluated_again_only_if_an_earlier_one_is_kept(
    finetune, words, tmp_path, monkeypatch, more, expected
):
    evaluated = []
    evaluate = RunTrainer.evaluation_loop
    monkeypatch.setattr(
        RunTrainer,
        "evaluation_loop",
        lambda self, *args, **kwargs: (evaluated.append(self.state.global_step), evaluate(self, *args, **kwargs))[1],
    )
    assert finetune(*words, "--num-train-epochs", 2, *more) == 0
    assert evaluated == expected
    found = {event["step"]: event["eval_loss"] for event in read_log(tmp_path / "out", "eval_loss")}
    assert results(tmp_path / "out")["runs"][0]["metrics"]["loss"] == found[5 if len(expected) == 3 else 10]


def test_a_split_without_any_label_is_described(finetuned):
    train, test = [{"text": word, "labels": [word]} for word in ("good", "bad")], {"text": "the film", "labels": []}
    folder = finetuned("text-classification", train * 4, "--num-train-epochs", 1, test=[test] * 2)
    assert results(folder)["data"]["test"]["balance"] == {}


@pytest.mark.parametrize(
    "more",
    [
        ("--num-train-epochs", 2),
        ("--num-train-epochs", 2, "--load-best-model-at-end", "false"),
        ("--num-train-epochs", 9, "--patience", 1),
    ],
)
def test_a_run_killed_after_its_last_step_is_finished_by_resume_even_if_moved(
    finetune, words, whole, tmp_path, monkeypatch, no_more_steps, capsys, more
):
    more = (*more, "--save-total-limit", 2)  # with 1, Trainer deletes the last checkpoint at the end
    with monkeypatch.context() as patch:
        patch.setattr(training, "_results", killed)
        assert finetune(*words, *more) == 130
    moved = (tmp_path / "out").rename(tmp_path / "moved")
    first, last = (load_file(path) for path in sorted(moved.glob("runs/*/checkpoint-*/model.safetensors"))[::-1])
    assert any(not torch.equal(first[name], last[name]) for name in first)
    whole(*more)
    no_more_steps()
    assert finetune(*words, *more, "--resume", output="moved") == 0
    expected, resumed = results(whole(*more))["runs"][0], results(moved)["runs"][0]
    kept = 10 if "--load-best-model-at-end" in more else 5
    assert ("scores of the checkpoint of step 5, the best by macro F1\n" in capsys.readouterr().out) == (kept == 5)
    assert (resumed["steps"], resumed["best_step"]) == (expected["steps"], expected["best_step"]) == (10, kept)
    assert resumed["metrics"] == expected["metrics"]
    assert same_weights(whole(*more), moved)


def remove_some(path, *args, **kwargs):
    """Removes other folders, and of the checkpoints of a finished run one file each, until none is whole."""
    path = Path(path)
    if not (path.parent / "model").exists():
        return RMTREE(path, *args, **kwargs)
    (path / "trainer_state.json").unlink()
    if not list(path.parent.glob("checkpoint-*/trainer_state.json")):
        raise KeyboardInterrupt


def move_some(folder, target):
    (folder / "config.json").replace(target / "config.json")
    raise KeyboardInterrupt


RMTREE = shutil.rmtree
AT_THE_END = {
    "checkpoints are removed": (shutil, "rmtree", remove_some),
    "the model is scored": (report, "evaluate_rows", killed),
    "the model is moved": (report, "_move_files", move_some),
}


@pytest.mark.parametrize(("module", "name", "kill"), AT_THE_END.values(), ids=AT_THE_END)
def test_a_run_killed_after_its_training_is_finished_by_resume(
    finetune, words, whole, tmp_path, monkeypatch, no_more_steps, module, name, kill
):
    more = ("--num-train-epochs", 2)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, kill)
        assert finetune(*words, *more) == 130
    expected = whole(*more)
    no_more_steps()
    for _ in range(2):  # the second time, the run is finished
        assert finetune(*words, *more, "--resume") == 0
    assert same_weights(expected, tmp_path / "out")
    scores = [results(folder)["validation"]["metrics"] for folder in (tmp_path / "out", expected)]
    assert scores[0] == scores[1]
    assert results(tmp_path / "out")["runs"][0]["steps"] == 10
    assert sorted(os.listdir(tmp_path / "out")) == sorted(os.listdir(expected))
    assert not list(tmp_path.glob("out/runs/*/checkpoint-*"))


STEPS = ("--eval-strategy", "steps", "--save-strategy", "steps", "--eval-steps", 2, "--save-steps", 2)
SIGNALS = {
    "in its last step": ("training_step", 5, 5, ()),
    "of several seeds": ("training_step", 8, 8, ("--seeds", 2)),
    "in the last step": ("training_step", 10, 10, ("--save-total-limit", 2)),
    "in the last step, inside an epoch": ("training_step", 7, 7, ("--max-steps", 7)),
    "between checkpoints": ("training_step", 3, 3, STEPS),
    "while a checkpoint is made": ("training_step", 4, 4, STEPS),
    "while it is evaluated": ("prediction_step", 5, 5, ()),
    "while the last one is evaluated": ("prediction_step", 10, 10, ()),
    "with weights alone saved": ("prediction_step", 5, 6, ("--save-only-model", "true")),
}


@pytest.mark.parametrize(("where", "step", "saved", "more"), SIGNALS.values(), ids=SIGNALS)
def test_sigterm_saves_and_the_resumed_run_has_the_weights_of_an_uninterrupted_one(
    finetune, words, whole, tmp_path, monkeypatch, where, step, saved, more
):
    more = ("--num-train-epochs", 2, "--learning-rate", "5e-3", "--dropout", 0.1, *more)
    expected = whole(*more)
    steps, act, train = [], getattr(RunTrainer, where), RunTrainer.training_step

    def terminate(self, *args, **kwargs):
        if self.state.global_step + (where == "training_step") == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return act(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(RunTrainer, where, terminate)
        with pytest.raises(SystemExit) as ended:
            finetune(*words, *more)
    assert ended.value.code == 143 and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert list(tmp_path.glob(f"out/runs/*/checkpoint-{saved}/optimizer.pt"))
    monkeypatch.setattr(RunTrainer, "training_step", lambda *args: steps.append(0) or train(*args))
    assert finetune(*words, *more, "--resume") == 0
    runs = [results(folder)["runs"] for folder in (expected, tmp_path / "out")]
    assert len(steps) == sum(run["steps"] for run in runs[0]) - saved
    assert same_weights(expected, tmp_path / "out")
    for pair in zip(*runs, strict=True):
        kept = [(run["metrics"], run["best_step"]) for run in pair]
        losses = [[(log["step"], log["eval_loss"]) for log in run["log"] if "eval_loss" in log] for run in pair]
        assert kept[0] == kept[1] and losses[0] == losses[1]


def test_sigterm_outside_of_training_ends_the_run_before_the_next(finetune, words, tmp_path, monkeypatch):
    write = training._results

    def terminate(*args):
        os.kill(os.getpid(), signal.SIGTERM)
        return write(*args)

    with monkeypatch.context() as patch:
        patch.setattr(training, "_results", terminate)
        with pytest.raises(SystemExit) as ended:
            finetune(*words, "--num-train-epochs", 1, "--seeds", 2)
    assert ended.value.code == 143
    assert len(list(tmp_path.glob("out/runs/*/results.json"))) == 1
    assert finetune(*words, "--num-train-epochs", 1, "--seeds", 2, "--resume") == 0
    assert len(results(tmp_path / "out")["runs"]) == 2


def test_of_equal_scores_the_lowest_loss_is_kept(finetuned, opinions):
    """Trainer keeps the first step of the best score."""
    words = ("--num-train-epochs", 4, *STEPS)
    folder = finetuned("text-classification", opinions[:40], *words, validation=opinions[40:44])
    (run,) = results(folder)["runs"]
    scores = [(log["eval_accuracy"], -log["eval_loss"], log["step"]) for log in run["log"] if "eval_loss" in log]
    ties = [score for score in scores if score[0] == max(scores)[0]]
    assert len(ties) > 1 and ties[0] != max(ties)
    assert run["best_step"] == max(ties)[-1]


def test_the_best_step_is_kept_if_fewer_are_saved_than_evaluated(finetune, words, tmp_path):
    steps = ("--eval-strategy", "steps", "--eval-steps", 1, "--save-strategy", "steps", "--num-train-epochs", 2)
    for every in (1, 5):
        assert finetune(*words, *steps, "--save-steps", every, output=f"every-{every}") == 0
        assert results(tmp_path / f"every-{every}")["best"]["best_step"] == 1
    assert same_weights(tmp_path / "every-1", tmp_path / "every-5")


@pytest.fixture
def killed_at_7(finetune, monkeypatch):
    """A function that runs the command and kills it at step 7."""
    train = RunTrainer.training_step

    def step(self, *args):
        return killed() if self.state.global_step == 7 else train(self, *args)

    def run(*words):
        with monkeypatch.context() as patch:
            patch.setattr(RunTrainer, "training_step", step)
            assert finetune(*words) == 130

    return run


def test_a_moved_run_keeps_its_best_model(finetune, words, whole, killed_at_7, tmp_path):
    more = ("--num-train-epochs", 9, *STEPS[:6], "--save-steps", 100, "--patience", 4)
    killed_at_7(*words, *more)
    moved = (tmp_path / "out").rename(tmp_path / "moved")
    assert finetune(*words, *more, "--resume", output="moved") == 0
    assert [results(folder)["best"]["best_step"] for folder in (whole(*more), moved)] == [2, 2]
    assert same_weights(whole(*more), moved)


def test_a_resumed_run_with_a_teacher_equals_one_never_interrupted(
    finetune, write_rows, opinions, classifier, killed_at_7, tmp_path, monkeypatch
):
    texts = write_rows("texts.jsonl", [{"text": row["text"]} for row in opinions[16:]])
    data = ("--train", write_rows("train.jsonl", opinions[:8]), "--validation", write_rows("dev.jsonl", opinions))
    words = ("text-classification", *data, "--teacher", classifier, "--unlabelled", texts, "--num-train-epochs", 2)
    assert finetune(*words, output="whole") == 0
    killed_at_7(*words)
    monkeypatch.setattr(SoftLabels, "of_teacher", lambda *_: 1 / 0)  # its predictions are read from the folder
    assert finetune(*words, "--resume") == 0
    assert not (tmp_path / "out/teacher_logits.parquet").exists()
    assert same_weights(tmp_path / "whole", tmp_path / "out")


@pytest.mark.parametrize("name", ["trainer_state.json", "model.safetensors"])
def test_a_damaged_checkpoint_is_named_and_the_previous_one_used(
    finetune, words, whole, killed_at_7, tmp_path, capsys, name
):
    more = ("--num-train-epochs", 2, *STEPS, "--save-total-limit", 9)
    killed_at_7(*words, *more)
    file = next(tmp_path.glob(f"out/runs/*/checkpoint-6/{name}"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert finetune(*words, *more, "--resume") == 0
    assert re.search(f"checkpoint-6 is damaged: {name} .*resuming from checkpoint-4", capsys.readouterr().out)
    assert same_weights(whole(*more), tmp_path / "out")


def terminate_the_second_at_8():
    train = RunTrainer.training_step

    def step(self, *args, **kwargs):
        if self.state.global_step + 1 == 8 and self.args.process_index == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return train(self, *args, **kwargs)

    RunTrainer.training_step = step


@pytest.fixture
def train_in(start_processes, words, tiny_checkpoint, tmp_path):
    """A function that trains in some processes, and returns their exit statuses and what they print."""
    fixed = ("--model", tiny_checkpoint, "--bootstrap", 0, "--use-cpu", "true", "--num-train-epochs", 3)

    def call(count: int, output: str, *more, fault=None) -> tuple[list[int | None], str]:
        argv = ["finetune", "--task", *words, *fixed, "--output", tmp_path / output, *more]
        return start_processes(argv, count=count, fault=fault)

    return call


LAST = ("--load-best-model-at-end", "false")


def test_two_processes_of_which_one_is_terminated_resume_to_the_same_weights(train_in, tmp_path):
    shape = ("--per-device-train-batch-size", 4, "--learning-rate", "5e-3", *LAST)
    assert train_in(2, "whole", *shape)[0] == [0, 0]
    statuses, text = train_in(2, "out", *shape, fault=terminate_the_second_at_8)  # five per epoch
    assert statuses == [143, 143] and text.count("stopped and saved after step 8 of 15") == 1, text
    assert train_in(2, "out", *shape, "--resume")[0] == [0, 0]
    assert same_weights(tmp_path / "whole", tmp_path / "out")


def test_two_processes_train_the_model_of_one(train_in, tmp_path):
    for count in (1, 2):
        shape = ("--per-device-train-batch-size", 8 // count, "--learning-rate", "1e-3", "--dropout", 0, *LAST)
        statuses, text = train_in(count, f"of-{count}", *shape)
        assert statuses == [0] * count, text
    one, two = (load_file(tmp_path / f"of-{count}" / "model.safetensors") for count in (1, 2))
    torch.testing.assert_close(two, one, atol=1e-4, rtol=0)


def test_two_processes_both_load_the_best_model_for_its_score(train_in, tmp_path):
    statuses, text = train_in(2, "out", "--learning-rate", "5e-3")
    assert statuses == [0, 0] and "Could not locate the best model" not in text, text
    found = results(tmp_path / "out")
    (run,), scores = found["runs"], found["validation"]["metrics"]
    assert run["best_step"] < run["steps"]
    shared = scores.keys() & run["metrics"].keys()
    assert {name: run["metrics"][name] for name in shared} == pytest.approx({name: scores[name] for name in shared})


@pytest.mark.parametrize("more", [("--calibrate",), ("--load-best-model-at-end", "false", "--bf16", "true")])
def test_a_run_builds_its_model_once_and_scores_it_as_it_is_saved(finetune, words, tmp_path, monkeypatch, more):
    built, load = [], task_checkpoint.load_model
    monkeypatch.setattr(task_checkpoint, "load_model", lambda *args, **kw: built.append(0) or load(*args, **kw))
    assert finetune(*words, "--num-train-epochs", 2, *more) == 0
    assert len(built) == 1
    saved = ("--model", tmp_path / "out", "--data", words[4], "--output", tmp_path / "scores", "--bootstrap", 0)
    assert cli.main(["evaluate", *map(str, saved)]) == 0
    found, expected = results(tmp_path / "out")["validation"]["metrics"], results(tmp_path / "scores")["metrics"]
    assert found == pytest.approx(expected, rel=1e-4)
