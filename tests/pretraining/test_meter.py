"""How evenly processes are loaded, by hand."""

import pytest
import torch

from mybert.pretraining.meter import idle_share, idle_share_of_run


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
