"""Advice about CPU threads."""

import pytest
import torch

from mybert.training.speed import thread_advice


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
def test_one_thread_is_advised_only_if_steps_are_slow_and_one_thread_is_faster(share, seconds, advised):
    advice = thread_advice(share, lambda: seconds[torch.get_num_threads()])
    assert (advice is not None and "3.0 times" in advice and "OMP_NUM_THREADS=1" in advice) == advised
    assert torch.get_num_threads() == 2


def test_one_thread_needs_no_advice():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    assert thread_advice(0.01, lambda: pytest.fail("measured")) is None
    torch.set_num_threads(before)
