"""Runs with a time budget, on a clock that advances whenever it is read; test_faults.py kills one."""

import functools
import json
import shutil
import time

import pytest
import torch
from accelerate import Accelerator
from trained_runs import read_log, read_results, steps_saved

from mybert import cli
from mybert.common.errors import UserError
from mybert.pretraining.arguments import PretrainingArguments
from mybert.pretraining.planning import budget_plan as planning
from mybert.pretraining.planning import measurement
from mybert.pretraining.planning.measurement import Speed
from mybert.pretraining.planning.rules import budget_rules
from mybert.pretraining.settings import PretrainSettings
from mybert.training import run_progress
from mybert.training.run_progress import ClockProgress

IMPORTED = time.monotonic()


class Ticks:
    """A monotonic clock that advances by 0.1 s whenever it is read."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self) -> float:
        self.now += 0.1
        return self.now

    def process_time(self) -> float:
        return self.now


@pytest.fixture
def ticks(monkeypatch):
    ticks = Ticks()
    monkeypatch.setattr(run_progress, "time", ticks)
    speed = Speed(flops=1e9, tokens=2000.0, evaluation=1e6, parameters=10**5, encoder=4 * 10**5)
    monkeypatch.setattr(planning, "measure_speed", lambda *_: speed)
    monkeypatch.setitem(budget_rules(), "sizes", ["tiny"])
    monkeypatch.setattr(planning, "_REPORT_SECONDS", 1.0)
    return ticks


@pytest.fixture
def run(run, ticks):
    """The batch size of `PretrainingArguments` counts as not given."""
    return functools.partial(run, time_budget="30s", per_device_train_batch_size=32)


def test_the_share_of_a_clock_counts_earlier_sessions_and_never_falls(ticks):
    clock = ClockProgress(100, started=ticks.now - 10)
    clock.reserve = 20
    clock.start()
    assert clock.training_seconds == pytest.approx(70, abs=1)
    ticks.now += 35
    clock.update()
    share = clock.share(0)
    assert share == pytest.approx(0.5, abs=0.03)
    clock.reserve = 5
    clock.update()
    assert clock.share(0) >= share
    resumed = ClockProgress(100, started=ticks.now)
    resumed.load_state_dict(json.loads(json.dumps(clock.state_dict())))
    assert resumed.share(0) == clock.share(0) and resumed.seconds == pytest.approx(clock.seconds, abs=1)
    ticks.now += 1000
    resumed.update()
    assert resumed.share(0) == 1


@pytest.mark.parametrize(
    ("overhead", "per_example", "speed"),
    [(0.0, 0.01, 1000.0), (0.0, 1.0, 10.0), (0.6, 0.05, 10 * 32 / (0.6 + 0.05 * 32)), (30.0, 1.0, 0.0)],
    ids=["fast", "slow examples", "slow optimizer", "slow first step"],
)
def test_measuring_ends_in_time_on_a_machine_of_any_speed(monkeypatch, overhead, per_example, speed):
    now = [100.0]
    monkeypatch.setattr(measurement.time, "perf_counter", lambda: now[0])

    def step(first: int, count: int) -> int:
        for _ in range(10):  # operations
            now[0] += (overhead + per_example * count) / 10
            torch.zeros(1)
        return 10 * count

    found = measurement._tokens_per_second(step, 32, 10.0, "tiny")
    assert now[0] - 100 <= 10 + (overhead + per_example) / 10
    assert found == pytest.approx(speed, rel=0.05, abs=0.2)


def test_a_process_starts_before_its_imports():
    assert run_progress.process_start() < IMPORTED - 0.5, "conftest.py has imported torch before"


def test_the_command_counts_from_the_start_of_its_process(corpus_folder, tmp_path, ticks, monkeypatch, capsys):
    monkeypatch.setattr(run_progress, "process_start", lambda: ticks.now - 3600)
    words = ["--corpus", corpus_folder, "--output", tmp_path / "out", "--use-cpu", "--time-budget", "30s"]
    assert cli.main(["pretrain", *map(str, words)]) == 2
    assert "preparation, evaluation and saving take 1 h" in capsys.readouterr().err


def test_a_run_ends_with_its_budget_and_completes_every_schedule(run, ticks, capsys):
    start = ticks.now
    output = run(size="tiny", logging_steps=1)
    assert 26 < ticks.now - start <= 30
    results, logs = read_results(output), read_log(output, "loss")
    assert results["steps"] == len(logs) > 25
    rates = [log["learning_rate"] for log in logs]
    assert max(rates) == pytest.approx(results["training_arguments"]["learning_rate"], rel=0.05)
    assert rates[-1] < 0.03 * max(rates) and rates[0] < 0.5 * max(rates)
    assert results["metrics"]["mlm_tokens"] > 0
    shown = capsys.readouterr().out
    assert "expected on held-out documents" in shown and "given" in shown
    assert "3% of the steps" in shown and "sequence length" in shown and "RESULTS.md" not in shown
    plan = json.loads((output / "budget.json").read_text())
    assert plan["seconds"] == pytest.approx(30, abs=4)
    assert results["budget"]["expected"] == plan["expected"]


def test_what_is_given_stays_and_what_is_not_is_chosen(run):
    given = {"dropout": 0.2, "length_schedule": ["12:0.5", "24"], "mlm_probability": 0.2}
    results = read_results(run(learning_rate=7e-4, **given))
    used = {"learning_rate": 7e-4, "weight_decay": 0.1, "adam_epsilon": 1e-4}
    assert results["training_arguments"].items() >= used.items()
    assert results["settings"].items() >= {**given, "size": "tiny", "optimizer": "muon"}.items()
    assert results["budget"]["expected"] == {}, "the scaling law was fitted with 15% masked"


def test_only_the_first_process_writes_the_plan(run, monkeypatch):
    monkeypatch.setattr(PretrainingArguments, "process_index", 1)
    assert not (run(size="tiny", eval_strategy="no") / "budget.json").exists()


def choices_of(fsdp=(), arguments=(), **given) -> dict:
    """What the rules choose for base and examples of up to 512 tokens."""
    plan, arguments = planning.BudgetPlan({}, []), PretrainingArguments(output_dir="out", **dict(arguments))
    arguments.fsdp = [*fsdp]  # as on GPUs; the CPU refuses it
    settings = PretrainSettings(output="out", corpus="corpus", time_budget="1h", **given)
    planning._apply_rules(plan, settings, arguments, "base", 512, 1.0)
    return plan.choices


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, {"weight_decay": 0.1, "adam_epsilon": 1e-4}),
        ({"arguments": {"optim": "adafactor"}}, {}),
        ({"arguments": {"weight_decay": 0.2, "adam_epsilon": 1e-7}}, {}),
        ({"init_from": "model"}, {}),
    ],
)
def test_weight_decay_and_epsilon_are_higher_for_new_weights_trained_by_muon_only(given, chosen):
    choices = choices_of(**given)
    assert {name: choices[name] for name in ("weight_decay", "adam_epsilon") if name in choices} == chosen


def test_a_given_schedule_of_lengths_stays():
    choices = choices_of(length_schedule=["64:0.5", "512"])
    assert "length_schedule" not in choices and choices["optimizer"] == "muon"


def test_a_divided_model_is_not_trained_by_muon():
    choices = choices_of(fsdp=["full_shard"])
    assert not choices.keys() & {"optimizer", "weight_decay"}
    assert choices["learning_rate"] == budget_rules()["by_size"]["adamw_learning_rate"]["values"]["base"]


def test_a_corpus_without_held_out_documents_needs_no_evaluation(run, corpus_folder, tmp_path):
    corpus = shutil.copytree(corpus_folder, tmp_path / "corpus", ignore=shutil.ignore_patterns("validation"))
    results = read_results(run(corpus=corpus, time_budget="8s", per_device_train_batch_size=4))
    assert results["metrics"] == {} and results["steps"] == results["training_arguments"]["max_steps"] > 5
    assert results["tokens_seen"] / results["steps"] == pytest.approx(4 * 16.1, rel=0.2)


def test_a_resumed_run_reads_its_plan_and_batches_back_and_its_sessions_share_the_budget(run, ticks, tmp_path, capsys):
    arguments = {"size": "tiny", "save_steps": 10, "save_total_limit": None, "logging_steps": 1}
    run("whole", **arguments)
    cut = shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    for step in steps_saved(cut)[1:]:
        shutil.rmtree(cut / f"checkpoint-{step}")
    kept = json.loads((cut / "checkpoint-10" / "schedule.json").read_text())
    plan = json.loads((cut / "budget.json").read_text())
    (cut / "budget.json").write_text(json.dumps(plan | {"seconds": kept["progress"]["seconds"]}))
    capsys.readouterr()
    start = ticks.now
    run("cut", resume=True, **arguments)
    assert "Plan for" not in capsys.readouterr().out
    assert ticks.now - start + kept["progress"]["seconds"] == pytest.approx(30, abs=5)
    whole, logs = (read_log(tmp_path / name, "loss") for name in ("whole", "cut"))
    assert logs[:10] == whole[:10]
    decided = len(kept["sampler"]["draws"])
    assert decided
    assert [log["loss"] for log in logs[10 : 10 + decided]] == [log["loss"] for log in whole[10 : 10 + decided]]
    assert [log["step"] for log in logs] == list(range(1, len(logs) + 1))
    assert logs[-1]["learning_rate"] < 0.03 * max(log["learning_rate"] for log in logs)
    assert not list(run("cut", resume=True, **arguments).glob("damaged*"))
    assert "no step is left to train" in capsys.readouterr().out
    for damage in ("{", "[]", json.dumps(plan | {"field_of_another_version": 1})):
        (cut / "budget.json").write_text(damage)
        with pytest.raises(UserError, match=r"budget\.json is .*start again with --overwrite"):
            run("cut", resume=True, **arguments)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_steps": 10}, "--time-budget and --max-steps exclude each other"),
        ({"num_train_epochs": 1.0}, "--time-budget and --num-train-epochs exclude each other"),
        ({"time_budget": "6s"}, "is too short: preparation, evaluation and saving take .*; give [0-9]+s or more"),
        ({"time_budget": "soon"}, "--time-budget: expected a time like 90s"),
        ({"save_strategy": "epoch"}, "by steps, not by epoch"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau"}, "reduce_lr_on_plateau cannot be used with --time-budget"),
    ],
)
def test_what_contradicts_a_budget_is_refused(run, tmp_path, wrong, message):
    with pytest.raises(UserError, match=message):
        run(**wrong)
    assert not (tmp_path / "out").exists()


def test_what_is_given_to_a_resumed_run_is_compared_with_its_plan(run):
    run(size="tiny")
    for name, value in {"learning_rate": 1e-5, "dropout": 0.3}.items():
        with pytest.raises(UserError, match=f"--resume: --{name.replace('_', '-')} is .*, the run was started with"):
            run(size="tiny", resume=True, **{name: value})


def test_a_resumed_run_without_a_checkpoint_needs_time_to_train(run):
    output = run(size="tiny")
    for path in output.glob("checkpoint-*"):
        shutil.rmtree(path)
    for name, change in {"manifest.json": {"complete": False}, "budget.json": {"seconds": 28.0}}.items():
        (output / name).write_text(json.dumps(json.loads((output / name).read_text()) | change))
    with pytest.raises(UserError, match=r"--resume: 2[0-9] s of the time budget of 30 s are used.*no checkpoint"):
        run(size="tiny", resume=True)


def test_shares_of_the_steps_are_shares_of_the_time_and_a_resumed_run_may_leave_them_out(run):
    output = run(size="tiny", logging_steps=0.1, eval_steps=0.5, save_steps=0.25, save_total_limit=None)
    assert (len(read_log(output, "loss")), len(read_log(output, "eval_loss"))) == (10, 2)
    assert len(read_log(output, "update_ratio")) == len(read_log(output, "gradient_noise")) == 10
    steps = steps_saved(output)
    assert [step / steps[-1] for step in steps] == pytest.approx([0.25, 0.5, 0.75, 1], abs=0.1)
    assert json.loads((output / "budget.json").read_text())["events"].keys() == {"log", "evaluate", "save"}
    for step in steps[1:]:
        shutil.rmtree(output / f"checkpoint-{step}")
    run(size="tiny", resume=True)
    assert len(list(output.glob("checkpoint-*"))) > 1


def test_rates_and_steps_of_a_given_schedule_are_kept(run):
    def rates(**given) -> list[float]:
        output = run(size="tiny", logging_steps=1, overwrite=True, learning_rate=3e-3, warmup_steps=0.01, **given)
        return [log["learning_rate"] for log in read_log(output, "loss")]

    assert min(rates(lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs={"min_lr": 3e-4})[5:]) == (
        pytest.approx(3e-4, rel=0.05)
    )
    decay = {"num_decay_steps": 55, "decay_type": "linear"}  # of 110 expected steps
    found = rates(lr_scheduler_type="warmup_stable_decay", lr_scheduler_kwargs=decay)
    assert found.count(3e-3) / len(found) == pytest.approx(0.5, abs=0.1)


def test_the_precision_of_a_plan_replaces_that_of_an_earlier_run_of_the_same_arguments(tmp_path):
    settings = PretrainSettings("corpus", str(tmp_path))
    arguments = PretrainingArguments(output_dir=str(tmp_path))
    Accelerator(mixed_precision=arguments.mixed_precision or "no")
    planning.BudgetPlan({"bf16": True}, []).apply(settings, arguments)
    assert Accelerator(mixed_precision=arguments.mixed_precision).mixed_precision == "bf16"
