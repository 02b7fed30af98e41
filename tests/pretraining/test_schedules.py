"""Runs whose sequence length, batch and masking share change."""

from pathlib import Path

import numpy as np
import pytest
from trained_runs import read_log, read_results

from mybert.pretraining.arguments import PretrainingArguments
from mybert.pretraining.data.scheduled_batches import Schedule, ScheduledSampler
from mybert.pretraining.initialization.initial_model import trained_length
from mybert.pretraining.settings import PretrainSettings, parse_lengths
from mybert.settings.parse import parse_settings


def test_lengths_are_read_as_length_and_share():
    assert parse_lengths(["32:0.3", "64:0.6", "128"]) == ((32, 0.3), (64, 0.6), (128, 1.0))


def test_batches_follow_the_schedule_and_read_every_example_once_per_epoch():
    lengths = np.random.default_rng(0).integers(8, 65, 500)
    schedule = Schedule(((16, 0.5), (64, 1.0)), tokens=(200, 800), mlm_probabilities=(0.3, 0.15))
    sampler = ScheduledSampler(schedule, lambda step: step / 40, lengths, seed=1, batches=80, per_step=2)
    batches = list(sampler)
    for number, (keys, draw) in enumerate(batches):
        share = (number // 2) / 40
        length = 16 if share < 0.5 else 64
        assert draw.length == length
        assert draw.mlm_probability == pytest.approx(0.3 - 0.15 * share)
        tokens = len(keys) * np.minimum(lengths, length).mean()
        assert abs(tokens - (200 + 600 * share)) <= np.minimum(lengths, length).mean() / 2
    keys = [key for keys, _ in batches for key in keys]
    assert len(set(keys)) == len(keys)
    first = [index for epoch, index in keys if epoch == 0]
    assert sorted(first) == list(range(500)) and {epoch for epoch, _ in keys} == set(range(keys[-1][0] + 1))


def test_a_run_with_a_schedule_trains_on_the_scheduled_numbers_of_tokens(run):
    tokens = {"start_tokens_per_batch": 64, "max_tokens_per_batch": 256}
    output = run(max_steps=16, logging_steps=1, length_schedule=["12:0.25", "16:0.5", "24"], **tokens)
    logs = read_log(output, "loss")
    expected = 64 + 192 * np.arange(16) / 16
    assert len(logs) == 16 and np.all(abs(np.diff([0, *(log["tokens"] for log in logs)]) - expected) < 40)
    assert logs[0]["epoch"] < 0.1 and read_results(output)["steps"] == 16


def test_a_run_with_a_schedule_reads_the_tokens_of_its_epochs_and_completes_every_schedule(run):
    output = run(num_train_epochs=2, length_schedule=["12:0.5", "24"], logging_steps=1, eval_strategy="no")
    logs = read_log(output, "loss")
    assert read_results(output)["steps"] == len(logs) == 2 * 200 / 16
    assert logs[-1]["tokens"] == pytest.approx(2 * read_results(output)["corpus_tokens"], rel=0.03)
    assert logs[-1]["learning_rate"] < 0.1 * max(log["learning_rate"] for log in logs)


@pytest.mark.parametrize(("schedule", "is_too_long"), [(["16:0.5", "48"], False), (["24:0.5", "48"], True)])
def test_a_length_that_no_example_reaches_is_named(run, capsys, schedule, is_too_long):
    run(max_steps=1, length_schedule=schedule, eval_strategy="no")
    assert ("the longest example has only 23 tokens" in capsys.readouterr().out) == is_too_long


def test_a_run_with_a_schedule_is_evaluated_like_one_without(run):
    scheduled = {"length_schedule": ["12:0.5", "24"], "start_mlm_probability": 0.2}
    masked = [
        read_results(run(max_steps=1, overwrite=True, mlm_probability=0.4, **how))["metrics"]["mlm_tokens"]
        for how in ({}, scheduled)
    ]
    assert masked[0] == masked[1] > 0


@pytest.mark.parametrize(("schedule", "length"), [([], 24), (["8:0.5", "12"], 12), (["16:0.5 48"], 24)])
def test_a_model_is_trained_up_to_the_longest_length_of_its_schedule(schedule, length):
    settings = PretrainSettings(corpus="corpus", output="out", length_schedule=schedule)
    assert trained_length(settings, None, 24) == length


def test_the_share_of_decay_steps_is_that_of_all_steps(run):
    kwargs = {"num_decay_steps": 0.5, "decay_type": "linear"}
    output = run(
        max_steps=20, logging_steps=1, save_strategy="no", eval_strategy="no", learning_rate=1e-3, warmup_steps=2,
        lr_scheduler_type="warmup_stable_decay", lr_scheduler_kwargs=kwargs,
    )  # fmt: skip
    rates = [log["learning_rate"] for log in read_log(output, "learning_rate")]
    assert rates[2:11] == [1e-3] * 9
    assert rates[11:] == pytest.approx([1e-4 * left for left in range(9, 0, -1)])


@pytest.mark.parametrize(
    "recipe", sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_recipe_is_read_by_the_command(recipe, tmp_path):
    words = ["--config", str(recipe), "--corpus", "corpus", "--output", str(tmp_path / "model")]
    settings, arguments = parse_settings((PretrainSettings, PretrainingArguments), words, "mybert pretrain")
    assert settings.is_scheduled and (arguments.max_steps > 0 or settings.time_budget)
