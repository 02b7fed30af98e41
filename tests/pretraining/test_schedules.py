"""Runs whose sequence length, batch and masking share change."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from modeling_mybert import MyBertForPreTraining
from mybert.common.command_line import parse_settings
from mybert.common.errors import UserError
from mybert.pretraining.arguments import PretrainingArguments
from mybert.pretraining.data.scheduled_batches import ScheduledSampler
from mybert.pretraining.initialization.initial_model import trained_length
from mybert.pretraining.run import pretrain
from mybert.pretraining.schedule import Schedule, parse_lengths
from mybert.pretraining.settings import PretrainSettings
from mybert.training.run_progress import StepProgress

CHANGING = {
    "length_schedule": ["12:0.25", "16:0.5", "24"],
    "start_tokens_per_batch": 64,
    "max_tokens_per_batch": 256,
    "start_mlm_probability": 0.4,
}


@pytest.fixture
def run(corpus_folder, tmp_path):
    def call(output="out", **values):
        names = PretrainSettings.__dataclass_fields__
        settings = {name: value for name, value in values.items() if name in names}
        arguments = {name: value for name, value in values.items() if name not in names}
        output = str(tmp_path / output)
        return pretrain(
            PretrainSettings(corpus=str(corpus_folder), output=output, size="tiny", **settings),
            PretrainingArguments(output_dir=output, use_cpu=True, disable_tqdm=True, **arguments),
        )

    return call


def read_log(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_lengths_are_read_as_length_and_share_and_nothing_else_is():
    assert parse_lengths(["32:0.3", "64:0.6", "128"]) == ((32, 0.3), (64, 0.6), (128, 1.0))
    for words in (["32:0.5"], ["32:0.6", "64:0.3", "128"], ["4:0.5", "128"], ["long"], ["32", "64"], ["32:0.3:1"]):
        with pytest.raises(UserError, match="--length-schedule: expected"):
            parse_lengths(words)


def test_batches_follow_the_schedule_and_read_every_example_once_per_epoch():
    lengths = np.random.default_rng(0).integers(8, 65, 500)
    schedule = Schedule(((16, 0.5), (64, 1.0)), tokens=(200, 800), masked=(0.3, 0.15))
    sampler = ScheduledSampler(schedule, StepProgress(40), lengths, seed=1, batches=80, per_step=2)
    batches = list(sampler)
    for number, batch in enumerate(batches):
        share = (number // 2) / 40
        length = 16 if share < 0.5 else 64
        assert batch.length == length
        assert batch.mlm_probability == pytest.approx(0.3 - 0.15 * share)
        tokens = len(batch.keys) * np.minimum(lengths, length).mean()
        assert abs(tokens - (200 + 600 * share)) <= np.minimum(lengths, length).mean() / 2
    keys = [key for batch in batches for key in batch.keys]
    assert len(set(keys)) == len(keys)
    first = [index for epoch, index in keys if epoch == 0]
    assert sorted(first) == list(range(500)) and {epoch for epoch, _ in keys} == set(range(keys[-1][0] + 1))


def test_a_run_with_a_schedule_trains_on_the_scheduled_numbers_of_tokens(run):
    results = json.loads(
        (run(max_steps=16, logging_steps=1, save_strategy="no", **CHANGING) / "results.json").read_text()
    )
    logs = read_log(Path(results["settings"]["output"]))
    tokens = np.diff([0, *(log["tokens"] for log in logs if "loss" in log)])
    expected = 64 + 192 * np.arange(16) / 16
    assert len(tokens) == 16 and np.all(abs(tokens - expected) < 40)
    assert logs[0]["epoch"] < 0.1 and results["steps"] == 16


def test_a_run_with_a_schedule_is_evaluated_with_the_share_of_its_last_step(run):
    """As the same run without a schedule."""
    masked = [
        json.loads((run(max_steps=1, overwrite=True, mlm_probability=0.4, **how) / "results.json").read_text())
        for how in ({}, {"length_schedule": ["12:0.5", "24"], "start_mlm_probability": 0.2})
    ]
    assert masked[0]["metrics"]["mlm_tokens"] == masked[1]["metrics"]["mlm_tokens"] > 0


def test_a_resumed_run_with_a_schedule_ends_with_the_same_weights(run, tmp_path):
    arguments = {"max_steps": 16, "save_steps": 7, "save_total_limit": None, "learning_rate": 1e-3, **CHANGING}
    whole = run("whole", **arguments)
    cut = shutil.copytree(whole, tmp_path / "cut")
    for step in (14, 16):
        shutil.rmtree(cut / f"checkpoint-{step}")
    (cut / "model.safetensors").unlink()
    run("cut", resume=True, **arguments)
    expected = MyBertForPreTraining.from_pretrained(whole).state_dict()
    found = MyBertForPreTraining.from_pretrained(cut).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in found.items())
    epochs = [json.loads((folder / "results.json").read_text())["epochs"] for folder in (whole, cut)]
    assert epochs[0] == epochs[1]


@pytest.mark.parametrize(("schedule", "length"), [([], 24), (["8:0.5", "12"], 12), (["16:0.5", "48"], 24)])
def test_a_model_is_trained_up_to_the_longest_length_of_its_schedule(schedule, length):
    settings = PretrainSettings(corpus="corpus", output="out", length_schedule=schedule)
    assert trained_length(settings, None, 24) == length


def test_the_share_of_decay_steps_is_that_of_all_steps(run):
    kwargs = {"num_decay_steps": 0.5, "decay_type": "linear"}
    output = run(
        max_steps=20, logging_steps=1, save_strategy="no", eval_strategy="no", learning_rate=1e-3, warmup_steps=2,
        lr_scheduler_type="warmup_stable_decay", lr_scheduler_kwargs=kwargs,
    )  # fmt: skip
    rates = [log["learning_rate"] for log in read_log(output) if "learning_rate" in log]
    assert rates[2:11] == [1e-3] * 9
    assert rates[11:] == pytest.approx([1e-4 * left for left in range(9, 0, -1)])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"phase2_corpus": "x", "length_schedule": ["16:0.5", "24"]}, "--phase2-corpus cannot be used"),
        ({"start_tokens_per_batch": 64}, "--start-tokens-per-batch needs --max-tokens-per-batch"),
        ({"eval_strategy": "epoch", "length_schedule": ["16:0.5", "24"]}, "by steps, not by epoch"),
    ],
)
def test_what_a_schedule_cannot_honour_is_refused(run, wrong, message):
    with pytest.raises(UserError, match=message):
        run(max_steps=1, **wrong)


@pytest.mark.parametrize(
    "recipe", sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_recipe_is_read_by_the_command(recipe, tmp_path):
    words = ["--config", str(recipe), "--corpus", "corpus", "--output", str(tmp_path / "model")]
    settings, arguments = parse_settings((PretrainSettings, PretrainingArguments), words, "mybert pretrain")
    assert settings.is_scheduled and (arguments.max_steps > 0 or settings.time_budget)
