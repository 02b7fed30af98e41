"""Metrics of training steps: idle shares, overflowing losses, the clock."""

import math
import time

import pytest
import torch

from mybert.training.metrics import Step, TrainingMetrics, idle_share, idle_share_of_run
from mybert.training.nonfinite import Diverged, NonFiniteSteps


def steps(tokens: torch.Tensor) -> list[Step]:
    """Steps of processes with those tokens (processes, steps)."""
    return [
        Step([0.0], mean, most) for mean, most in zip(tokens.mean(0).tolist(), tokens.amax(0).tolist(), strict=True)
    ]


def test_all_processes_wait_for_the_one_with_the_most_tokens():
    tokens = torch.tensor([[100.0, 50.0], [60.0, 100.0]])  # time of 200 tokens, of which 80 and 75 are used on average
    assert idle_share(steps(tokens)) == pytest.approx(1 - 155 / 200)
    assert idle_share(steps(torch.full((4, 3), 7.0))) == 0


def test_the_idle_share_of_a_run_weights_each_log_by_its_time():
    tokens = [torch.tensor([[100.0], [60.0]]), torch.tensor([[3000.0, 2000.0], [1000.0, 2000.0]])]
    seen = [160, 160 + 8000]
    history = [
        {"loss": 1.0, "tokens": n, "idle_share": idle_share(steps(t))} for n, t in zip(seen, tokens, strict=True)
    ]
    history.insert(1, {"eval_loss": 1.0})
    assert idle_share_of_run(history) == pytest.approx(idle_share(steps(torch.cat(tokens, dim=1))))
    assert idle_share_of_run([{"loss": 1.0, "tokens": 5}]) is None


def test_float16_losses_that_overflow_are_left_out_and_end_the_run_after_20_steps_without_any_other():
    metrics = TrainingMetrics(["loss"], torch.device("cpu"), lambda x: x)
    nonfinite = NonFiniteSteps(False, True, "remedy")
    done = 0

    def log(*losses: float) -> float:
        """The logged loss of steps with these losses."""
        nonlocal done
        for loss in losses:
            metrics.start_step([{"input_ids": torch.ones(1, 5)}])
            metrics.add_losses([torch.tensor(loss)])
        skipped = nonfinite.check_losses(done, losses)
        done += len(losses)
        return metrics.take_logs(skipped, tokens_seen=5 * done)["loss"]

    assert log(2.0, math.inf, 4.0) == 3.0
    assert math.isnan(log(*[math.nan] * 12))
    assert log(5.0) == 5.0
    assert math.isnan(log(*[math.nan] * 19))
    with pytest.raises(Diverged, match="step 36: the loss is nan"):
        log(math.nan)


def test_the_clock_stands_still_during_an_evaluation(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    metrics = TrainingMetrics(["loss"], torch.device("cpu"), lambda x: x)
    now[0] += 5
    with metrics.paused("save"):
        now[0] += 30
        assert metrics.seconds == 5
    now[0] += 1
    assert metrics.seconds == 6
