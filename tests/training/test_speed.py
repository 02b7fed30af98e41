"""Advice about CPU threads."""

import pytest
import torch

from mybert.training import speed


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("share", "seconds", "advised"),
    [
        (0.01, {2: 0.3, 1: 0.1}, True),  # threads wait for other programs
        (0.01, {2: 0.1, 1: 0.19}, False),  # a narrow model
        (0.5, {2: 0.3, 1: 0.1}, False),
    ],
)
def test_one_thread_is_advised_only_if_steps_are_slow_and_one_thread_is_faster(monkeypatch, share, seconds, advised):
    monkeypatch.setattr(speed, "_product_seconds", lambda: seconds[torch.get_num_threads()])
    advice = speed.thread_advice(share)
    assert (advice is not None and "3.0 times" in advice and "OMP_NUM_THREADS=1" in advice) == advised
    assert torch.get_num_threads() == 2


def test_one_thread_needs_no_advice(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(speed, "_product_seconds", lambda: pytest.fail("measured"))
    assert speed.thread_advice(0.01) is None
