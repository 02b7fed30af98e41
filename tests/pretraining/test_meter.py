"""How evenly processes are loaded, by hand; and what is said of losses that are not finite in float16."""

import math
from types import SimpleNamespace

import pytest
import torch

from mybert.pretraining.meter import Meter, idle_share, idle_share_of_run


def test_all_wait_for_the_process_with_the_most_tokens_in_each_step():
    tokens = torch.tensor([[100.0, 50.0], [60.0, 100.0]])  # 200 tokens' time, of which 80 and 75 on average are used
    assert idle_share(tokens) == pytest.approx(1 - 155 / 200)
    assert idle_share(torch.full((4, 3), 7.0)) == 0


def test_the_share_of_a_run_weighs_each_log_by_its_time():
    tokens = [torch.tensor([[100.0], [60.0]]), torch.tensor([[3000.0, 2000.0], [1000.0, 2000.0]])]
    seen = [160, 160 + 8000]
    history = [
        {"loss": 1.0, "num_input_tokens_seen": n, "idle_share": idle_share(t)}
        for n, t in zip(seen, tokens, strict=True)
    ]
    history.insert(1, {"eval_loss": 1.0})
    assert idle_share_of_run(history) == pytest.approx(idle_share(torch.cat(tokens, dim=1)))
    assert idle_share_of_run([{"loss": 1.0, "num_input_tokens_seen": 5}]) is None


def test_losses_that_overflow_in_float16_are_logged_as_such_and_end_the_run_when_they_all_do():
    class Stopped(Exception):
        pass

    def fail(step, what):
        raise Stopped(f"step {step + 1}: {what}")

    trainer = SimpleNamespace(
        args=SimpleNamespace(device=torch.device("cpu")),
        state=SimpleNamespace(global_step=0, num_input_tokens_seen=0),
        accelerator=SimpleNamespace(scaler=object(), gather=lambda x: x),
        guard=SimpleNamespace(fail=fail, skipped=[]),
        train_dataset=SimpleNamespace(has_pairs=False),
        plans=[],
    )
    meter = Meter(trainer)

    def log(*losses):
        meter.start_window()
        for loss in losses:
            trainer.state.global_step += 1
            meter.start_step([{"input_ids": torch.ones(1, 5)}])
            meter.add_losses((torch.tensor(loss), None), 1)
        return meter.entries()["loss"]

    assert log(2.0, math.inf, 4.0) == 3.0
    assert math.isnan(log(*[math.nan] * 12))
    assert log(5.0) == 5.0
    assert math.isnan(log(*[math.nan] * 19))
    with pytest.raises(Stopped, match="step 36: the loss is nan"):
        log(math.nan)
