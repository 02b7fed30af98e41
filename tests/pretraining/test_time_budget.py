"""Runs with a time budget, on a clock that advances whenever it is read; test_faults.py kills one."""

import functools
import json
import math
import multiprocessing
import os
import shutil
import time

import pytest
import torch
from accelerate import Accelerator
from json_files import change_json
from trained_runs import read_log, read_results, steps_saved

from modeling_mybert import MyBertConfig
from mybert.common.errors import UserError
from mybert.pretraining import clock as clock_module
from mybert.pretraining import courses
from mybert.pretraining.arguments import PretrainingArguments, given_options
from mybert.pretraining.clock import ClockProgress
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.planning import budget_plan as planning
from mybert.pretraining.planning import candidates, measurement
from mybert.pretraining.planning.candidates import tokens_per_batch
from mybert.pretraining.planning.measurement import StepTimes, measure_steps
from mybert.pretraining.planning.plan_command import random_corpus
from mybert.pretraining.planning.rules import budget_rules, options_by_rule
from mybert.pretraining.settings import PretrainSettings
from mybert.training.muon import MuonAdamW

IMPORTED = time.monotonic()
QUICK = {"time_budget": "8s", "per_device_train_batch_size": 4}


class Ticks:
    """A monotonic clock that advances by 0.1 s whenever it is read."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self) -> float:
        self.now += 0.1
        return self.now

    def process_time(self) -> float:
        return self.now


def measured(muon: float = 0.0, adamw: float = 0.0, half: float = 1 / 2000, asked: list | None = None):
    """A function in place of `measure_steps`, on a machine with 2,000 tokens per second in float32.

    Args:
        muon, adamw: seconds of an optimizer step.
        half: seconds of a token in bfloat16.
        asked: gets the settings and options of each call.
    """

    def measure(settings, arguments, corpus, tokens, limit, *, types, optimizers, evaluates=False) -> StepTimes:
        if asked is not None:
            asked.append((settings, tokens, types, optimizers))
        config = MyBertConfig.from_size(settings.size or "tiny", vocab_size=len(corpus.tokenizer))
        costs = corpus.shape.costs(config, 0.15, True)
        tiny = corpus.shape.costs(MyBertConfig.from_size("tiny", vocab_size=len(corpus.tokenizer)), 0.15, True)
        scale = costs.flops_per_token / tiny.flops_per_token
        steps = {"muon": muon * costs.muon_flops / tiny.muon_flops, "adamw": adamw * scale}
        gradients = {"float32": scale / 2000, "bfloat16": scale * half}
        return StepTimes(
            costs, {name: gradients[name] for name in types}, {name: steps[name] for name in optimizers}, 1e6
        )

    return measure


@pytest.fixture
def ticks(monkeypatch):
    ticks = Ticks()
    monkeypatch.setattr(clock_module, "time", ticks)
    for module in (planning, candidates):
        monkeypatch.setattr(module, "measure_steps", measured())
    monkeypatch.setattr(candidates, "bfloat16_is_faster", lambda device: False)
    monkeypatch.setitem(budget_rules(), "sizes", ["tiny"])
    monkeypatch.setattr(planning, "_REPORT_SECONDS", 1.0)
    return ticks


@pytest.fixture
def run(run, ticks):
    """The batch size of `PretrainingArguments` counts as not given."""
    return functools.partial(run, time_budget="16s", per_device_train_batch_size=32)


def test_the_share_of_a_clock_counts_earlier_sessions_and_never_falls(ticks):
    clock = ClockProgress(100, started=ticks.now - 10)
    clock.reserve = 20
    clock.start()
    assert clock.training_seconds == pytest.approx(70, abs=1)
    ticks.now += 35
    clock.update()
    share = clock.done
    assert share == pytest.approx(0.5, abs=0.03)
    clock.reserve = 5
    clock.update()
    assert clock.done >= share
    resumed = ClockProgress(100, started=ticks.now)
    resumed.load_state_dict(json.loads(json.dumps(clock.state_dict())))
    assert resumed.done == clock.done and resumed.seconds == pytest.approx(clock.seconds, abs=1)
    ticks.now += 1000
    resumed.update()
    assert resumed.done == 1


@pytest.mark.parametrize(
    ("overhead", "per_example", "seconds"),
    [(0.0, 0.01, 0.01), (0.0, 1.0, 1.0), (0.6, 0.05, (0.6 + 0.05 * 32) / 32), (30.0, 1.0, float("inf"))],
    ids=["fast", "slow examples", "slow optimizer", "slow first step"],
)
def test_measuring_ends_in_time_on_a_machine_of_any_speed(monkeypatch, overhead, per_example, seconds):
    now, spent = [100.0], {"slow": 0.0, "other": 0.0}
    monkeypatch.setattr(measurement.time, "perf_counter", lambda: now[0])

    def step(name: str, overhead: float, per_example: float, first: int, count: int) -> int:
        for _ in range(10):  # operations
            took = (overhead + per_example * count) / 10
            now[0], spent[name] = now[0] + took, spent[name] + took
            torch.zeros(1)
        return 10 * count

    steps = {"slow": functools.partial(step, "slow", overhead, per_example)}
    steps["other"] = functools.partial(step, "other", 0.0, 0.002)
    found, first = measurement._seconds(steps, 32, 10.0, "tiny"), overhead + per_example
    assert spent["slow"] <= 10 + min(first, 10) + first / 10
    assert found["slow"] == pytest.approx(seconds / 10, rel=0.05)
    assert found["other"] == pytest.approx(0.0002) and spent["other"] > 9 * 32 * 0.002, "the others are still measured"


def test_kernels_that_are_loaded_do_not_count(monkeypatch):
    now, calls = [100.0], []
    monkeypatch.setattr(measurement.time, "perf_counter", lambda: now[0])

    def step(first: int, count: int) -> int:
        now[0] += 0.01 * count + (0.0 if calls else 0.8)
        calls.append(count)
        return count

    found = measurement._seconds({"bfloat16": step}, 100, 2.0, "tiny")
    assert calls == [1, 1, 4, 16, 64, 100] and found["bfloat16"] == pytest.approx(0.01)


def test_a_process_starts_before_its_imports(monkeypatch):
    if multiprocessing.parent_process():  # this one is a fork of the process that has imported
        monkeypatch.setattr(os, "getpid", os.getppid)
    assert clock_module.process_start() < IMPORTED - 0.5, "conftest.py has imported torch before"


@pytest.mark.parametrize(
    ("age", "budget", "message"),
    [(3600, "30s", "take 1 h; 0 s are left … 50 steps (13 s); give 6190s or more"), (0, "6s", "; give … s or more")],
)
def test_a_budget_is_refused_if_nothing_is_left_of_it_since_the_start_of_the_process(
    corpus_folder, ticks, monkeypatch, assert_refused, age, budget, message
):
    monkeypatch.setattr(clock_module, "process_start", lambda: ticks.now - age)
    words = ["pretrain", "--corpus", corpus_folder, "--output", "out", "--use-cpu", "--time-budget", budget]
    assert_refused(words, f"is too short: preparation, evaluation and saving … {message}")


def test_a_run_ends_with_its_budget_and_completes_every_schedule(run, ticks, capsys):
    start = ticks.now
    output = run(size="tiny", logging_steps=1)
    assert 13 < ticks.now - start <= 16
    results, logs = read_results(output), read_log(output, "loss")
    assert results["steps"] == len(logs) > 20
    rates = [log["learning_rate"] for log in logs]
    assert max(rates) == pytest.approx(results["training_arguments"]["learning_rate"], rel=0.05)
    assert rates[-1] < 0.06 * max(rates) and rates[0] < 0.5 * max(rates)
    assert results["metrics"]["mlm_tokens"] > 0
    shown = capsys.readouterr().out
    assert "expected on held-out documents" in shown and "given" in shown
    assert "3% of the steps" in shown and "sequence length" in shown and "RESULTS.md" not in shown
    plan = json.loads((output / "budget.json").read_text())
    assert plan["seconds"] == pytest.approx(16, abs=3)
    assert results["budget"]["expected"] == plan["expected"]


def test_what_is_given_stays_and_what_is_not_is_chosen(run):
    given = {"dropout": 0.2, "length_schedule": ["12:0.5", "24"], "mlm_probability": 0.2}
    results = read_results(run(learning_rate=7e-4, **given, **QUICK))
    used = {"learning_rate": 7e-4, "weight_decay": 0.1, "adam_epsilon": 1e-4}
    assert results["training_arguments"].items() >= used.items()
    assert results["settings"].items() >= {**given, "size": "tiny", "optimizer": "muon"}.items()
    assert results["budget"]["expected"] == {}, "the scaling law was fitted with 15% masked"


def test_only_the_first_process_writes_the_plan(run, monkeypatch):
    monkeypatch.setattr(PretrainingArguments, "process_index", 1)
    assert not (run(size="tiny", eval_strategy="no", **QUICK) / "budget.json").exists()


def choices_of(optimizer: str = "muon", given=(), **settings) -> dict:
    """What the rules choose for base and examples of up to 512 tokens."""
    settings = PretrainSettings(output="out", corpus="corpus", time_budget="1h", **settings)
    return {k: v for k, (v, _) in options_by_rule(settings, given, "base", optimizer, 512).items()}


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [({}, {"weight_decay": 0.1, "adam_epsilon": 1e-4}), ({"optimizer": "adamw"}, {}), ({"init_from": "model"}, {})],
)
def test_weight_decay_and_epsilon_are_higher_for_new_weights_trained_by_muon_only(settings, chosen):
    found = choices_of(settings.pop("optimizer", "muon"), **settings)
    assert {name: found[name] for name in ("weight_decay", "adam_epsilon") if name in found} == chosen
    rates = budget_rules()["by_size"]
    by = rates["learning_rate" if chosen or "init_from" in settings else "adamw_learning_rate"]["values"]["base"]
    assert found["learning_rate"] == by * (0.25 if "init_from" in settings else 1)


@pytest.fixture
def plan_of(monkeypatch, corpus_folder):
    """A function (how the machine computes; given settings and arguments) → a plan of ten minutes."""

    def make(machine, faster=False, budget=600, given=(), passes=math.inf, **arguments) -> planning.BudgetPlan:
        monkeypatch.setitem(budget_rules()["passes"], "most", passes)
        for module in (planning, candidates):
            monkeypatch.setattr(module, "measure_steps", machine)
        monkeypatch.setattr(candidates, "bfloat16_is_faster", lambda device: faster)
        settings = PretrainSettings(output="out", corpus="corpus", time_budget=str(budget), **dict(given))
        arguments = PretrainingArguments(output_dir="out", use_cpu=True, **arguments)
        clock = ClockProgress(budget, started=time.monotonic())
        given = given_options(settings, arguments)
        return planning.make_plan(settings, arguments, Corpus.load(str(corpus_folder)), clock, given)

    return make


@pytest.mark.parametrize(
    ("muon", "adamw", "optimizer"),
    [
        (0.1, 0.0, "muon"),  # a tenth of a step more
        (3.0, 0.0, "adamw"),  # emulated products
        (3.0, 3.0, "muon"),
    ],
)
def test_muon_is_chosen_where_its_steps_are_worth_their_time(plan_of, muon, adamw, optimizer):
    plan = plan_of(measured(muon, adamw), given={"size": "tiny"})
    assert plan.choices["optimizer"] == optimizer
    assert ("weight_decay" in plan.choices) == (optimizer == "muon")
    (why,) = (why for name, _, why in plan.rows if name == "optimizer")
    assert "a token with adamw lowers the loss as 0.7 tokens with muon do" in why
    step = {"muon": muon, "adamw": adamw}[optimizer]
    batch = plan.choices["max_tokens_per_batch"]
    assert plan.speed == pytest.approx(batch / (batch / 2000 + step))
    assert plan.tokens == pytest.approx(plan.steps * batch, rel=0.01)
    worth = {"muon": 1.0, "adamw": 0.7}[optimizer]
    assert plan.expectation(plan.tokens, optimizer) == plan.expected == plan.expectation(plan.tokens * worth, "muon")


@pytest.mark.parametrize(("faster", "half", "expected"), [(True, 1 / 4000, True), (True, 1 / 1500, False)])
def test_the_type_is_the_one_that_is_faster_in_measured_steps(plan_of, faster, half, expected):
    plan = plan_of(measured(half=half), faster)
    assert plan.choices["bf16"] == expected
    assert next(why for name, _, why in plan.rows if name == "bf16").startswith("measured: ")


def test_where_bfloat16_is_emulated_no_step_is_measured_in_it(plan_of):
    asked: list = []
    assert "bf16" not in plan_of(measured(asked=asked)).choices
    assert "bf16" not in plan_of(measured(asked=asked), fp16=True).choices, "which has no effect on the CPU"
    assert {tuple(types) for _, _, types, _ in asked} == {("float32",)}


def test_the_last_measurement_is_that_of_the_run(plan_of):
    asked: list = []
    plan = plan_of(measured(0.1, asked=asked), given={"whole_word_masking": True})
    settings, tokens, types, optimizers = asked[-1]
    assert (settings.size, tokens) == (plan.choices["size"], plan.choices["max_tokens_per_batch"])
    assert (types, optimizers) == (["float32"], [plan.choices["optimizer"]])
    assert all(trial.dropout == 0.0 for trial, *_ in asked)
    assert all(trial.whole_word_masking and trial.start_mlm_probability == 0.3 for trial, *_ in asked)


def test_given_optimizers_and_batches_stay_and_a_divided_model_is_not_trained_by_muon(plan_of):
    assert "optimizer" not in plan_of(measured(), given={"optimizer": "muon", "size": "tiny"}).choices
    plan = plan_of(measured(), optim="adafactor")
    assert "optimizer" not in plan.choices and "weight_decay" not in plan.choices
    arguments = PretrainingArguments(output_dir="out", use_cpu=True)
    arguments.fsdp = ["full_shard"]  # as on GPUs; the CPU refuses it
    settings = PretrainSettings(output="out", corpus="corpus", time_budget="1h")
    assert planning._optimizers(settings, arguments, set()) == ["adamw"]
    assert plan_of(measured(), given={"max_tokens_per_batch": 100}).steps > 5000
    assert "length_schedule" not in plan_of(measured(), given={"length_schedule": ["12:0.5", "24"]}).choices


def test_a_run_ends_before_its_budget_rather_than_read_little_text_too_often(plan_of, corpus_folder, capsys):
    """Then the fastest way is taken, and a larger model where its expected loss is lower."""
    tokens = Corpus.load(str(corpus_folder)).shape.tokens
    plan = plan_of(measured(half=1 / 8000), faster=True, given={"size": "tiny"}, passes=20)
    assert plan.choices["bf16"]
    assert plan.tokens == pytest.approx(20 * tokens, rel=0.05)
    end = sum(plan.later.values())
    assert plan.unused == pytest.approx(600 - end - 20 * tokens / plan.speed, abs=2)
    assert "the run ends after 20 passes" in next(why for name, _, why in plan.rows if name == "unused time")
    plan.print(600)
    assert "Plan for 10 min" in capsys.readouterr().out, "what was given"
    assert plan_of(measured(), given={"size": "tiny"}).unused == 0


def test_accumulated_gradients_of_little_text_give_as_many_steps(plan_of, corpus_folder):
    given = {"size": "tiny", "optimizer": "muon"}
    plan = plan_of(measured(), given=given, passes=1000, budget=10**6, gradient_accumulation_steps=2)
    assert plan.unused and plan.steps == pytest.approx(1000, rel=0.1)


def test_time_that_a_stopped_run_has_lost_is_taken_from_what_it_leaves_unused(ticks):
    clock = ClockProgress(1000, started=ticks.now)
    clock.most = 100
    clock.start()
    assert clock.training_seconds == 100
    ticks.now += 50
    clock.update()
    saved, share = json.loads(json.dumps(clock.state_dict())), clock.done
    assert share == pytest.approx(0.5, abs=0.02)
    ticks.now += 40  # lost with the steps after the checkpoint
    resumed = ClockProgress(1000, started=ticks.now)
    resumed.most, resumed.earlier = 100, clock.seconds
    ticks.now += 5
    resumed.load_state_dict(saved)
    resumed.update()
    assert resumed.done == pytest.approx(share, abs=0.02)
    ticks.now += 50
    resumed.update()
    assert resumed.done == pytest.approx(1, abs=0.02)


def test_a_resumed_run_of_little_text_ends_after_as_many_passes(run, monkeypatch):
    """Also if no checkpoint is left, and most of the time that it took would be over."""
    monkeypatch.setitem(budget_rules()["passes"], "most", 3)
    arguments = {"size": "tiny", "time_budget": "1h"}
    output = run(**arguments)
    results = read_results(output)
    assert results["budget"]["seconds"] == 3600 and 3400 < results["budget"]["unused"] < 3600
    for path in output.glob("checkpoint-*"):
        shutil.rmtree(path)
    change_json(output / "manifest.json", complete=False)
    again = read_results(run(resume=True, **arguments))
    assert again["steps"] == pytest.approx(results["steps"], rel=0.2)


def test_batches_give_a_short_run_a_thousand_steps_whatever_a_step_costs():
    rule = budget_rules()["batch"]
    assert tokens_per_batch("tiny", 1e6, 1e-3, 0.1, 128) == rule["most"]["tiny"]
    batch = tokens_per_batch("tiny", 1000, 1e-3, 0.2, 128)
    assert 1000 / (batch * 1e-3 + 0.2) == pytest.approx(rule["steps"], rel=0.01)
    assert (
        tokens_per_batch("tiny", 10, 1e-3, 0.2, 128) == tokens_per_batch("tiny", 1e6, 1e-3, float("inf"), 128) == 512
    )
    assert tokens_per_batch("tiny", 10, 1e-3, 0.2, 600) == 600


def test_steps_are_measured_in_every_type_and_with_every_optimizer(monkeypatch):
    for kind, seconds in ((MuonAdamW, 0.04), (torch.optim.AdamW, 0.005)):  # the difference is larger than any noise
        step = kind.step
        monkeypatch.setattr(kind, "step", lambda self, step=step, seconds=seconds: (time.sleep(seconds), step(self)))
    corpus = random_corpus(60, 40)
    settings = PretrainSettings(output="out", corpus="c", size="tiny", dropout=0.0)
    arguments = PretrainingArguments(output_dir="out", use_cpu=True)
    types = ["float32", "bfloat16"]
    times = measure_steps(
        settings, arguments, corpus, 200, 0.5, types=types, optimizers=["muon", "adamw"], evaluates=True
    )
    assert times.costs.length == 40 and times.costs.config.vocab_size == 60
    assert 0 < times.gradients["float32"] < 1 and times.gradients.keys() == set(types)
    assert times.optimizers["muon"] > times.optimizers["adamw"] > 0.005 and times.evaluation > 0
    rate = times.tokens_per_second("float32", "muon", 100, 2)
    assert 200 / rate == pytest.approx(200 * times.gradients["float32"] + times.optimizers["muon"])


@pytest.mark.parametrize("gradient", [1e-4, 1e-3])
def test_a_step_that_does_not_end_in_time_is_estimated_from_the_speed_of_products(monkeypatch, gradient):
    measured = {"float32": gradient, "bfloat16": 10 * gradient}  # seconds per token
    monkeypatch.setattr(measurement, "_seconds", lambda steps, *_: {n: measured.get(n, float("inf")) for n in steps})
    settings = PretrainSettings(output="out", corpus="c", size="tiny")
    arguments, choices = PretrainingArguments(output_dir="out", use_cpu=True), {"optimizers": ["muon", "adamw"]}
    times = measure_steps(settings, arguments, random_corpus(60, 40), 200, 0.8, types=list(measured), **choices)
    estimate = times.costs.muon_flops * gradient / times.costs.flops_per_token
    assert (estimate < 0.2) == (gradient == 1e-4), "the limit of one step is 0.2 seconds"
    assert times.optimizers == {"muon": pytest.approx(max(0.2, estimate)), "adamw": 0.2}


def test_a_corpus_without_held_out_documents_needs_no_evaluation(run, corpus_folder, tmp_path):
    corpus = shutil.copytree(corpus_folder, tmp_path / "corpus", ignore=shutil.ignore_patterns("validation"))
    results = read_results(run(corpus=corpus, **QUICK))
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
    change_json(cut / "budget.json", seconds=kept["progress"]["seconds"])
    capsys.readouterr()
    start = ticks.now
    run("cut", resume=True, **arguments)
    assert "Plan for" not in capsys.readouterr().out
    assert ticks.now - start + kept["progress"]["seconds"] == pytest.approx(16, abs=4)
    whole, logs = (read_log(tmp_path / name, "loss") for name in ("whole", "cut"))
    assert logs[:10] == whole[:10]
    decided = len(kept["sampler"]["draws"])
    assert decided
    assert [log["loss"] for log in logs[10 : 10 + decided]] == [log["loss"] for log in whole[10 : 10 + decided]]
    assert [log["step"] for log in logs] == list(range(1, len(logs) + 1))
    assert logs[-1]["learning_rate"] < 0.06 * max(log["learning_rate"] for log in logs)
    assert not list(run("cut", resume=True, **arguments).glob("damaged*"))
    assert "no step is left to train" in capsys.readouterr().out
    for damage in ("{", "[]", json.dumps(plan | {"field_of_another_version": 1})):
        (cut / "budget.json").write_text(damage)
        with pytest.raises(UserError, match=r"budget\.json .*--overwrite"):
            run("cut", resume=True, **arguments)


def test_what_is_given_to_a_resumed_run_is_compared_with_its_plan(run):
    run(size="tiny", **QUICK)
    for name, value in {"learning_rate": 1e-5, "dropout": 0.3}.items():
        with pytest.raises(UserError, match=f"--{name.replace('_', '-')}"):
            run(size="tiny", resume=True, **QUICK, **{name: value})


def test_a_resumed_run_without_a_checkpoint_needs_time_to_train(run):
    output = run(size="tiny", **QUICK)
    for path in output.glob("checkpoint-*"):
        shutil.rmtree(path)
    change_json(output / "manifest.json", complete=False)
    change_json(output / "budget.json", seconds=7.8)
    with pytest.raises(UserError, match=r"time budget of 8 s .*no checkpoint"):
        run(size="tiny", resume=True, **QUICK)


def test_shares_of_the_steps_are_shares_of_the_time_and_a_resumed_run_may_leave_them_out(run, monkeypatch):
    monkeypatch.setattr(courses, "_MARGIN", 0.0)  # the reserve follows real seconds of saving, which may be many
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
        pytest.approx(3e-4, rel=0.2)
    )
    decay = {"num_decay_steps": 27, "decay_type": "linear"}  # of 55 expected steps
    found = rates(lr_scheduler_type="warmup_stable_decay", lr_scheduler_kwargs=decay)
    assert found.count(3e-3) / len(found) == pytest.approx(0.5, abs=0.1)


def test_the_precision_of_a_plan_replaces_that_of_an_earlier_run_of_the_same_arguments(tmp_path):
    settings = PretrainSettings("corpus", str(tmp_path))
    arguments = PretrainingArguments(output_dir=str(tmp_path))
    Accelerator(mixed_precision=arguments.mixed_precision or "no")
    planning.BudgetPlan({"bf16": True}, []).apply(settings, arguments, set())
    assert Accelerator(mixed_precision=arguments.mixed_precision).mixed_precision == "bf16"
