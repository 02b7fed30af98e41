"""Batches by tokens: within the budget, every example once, equal numbers for all processes."""

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from hypothesis import given
from hypothesis import strategies as st

from mybert.common.errors import UserError
from mybert.pretraining.data.epoch_order import EpochSampler, TokenBudget


@given(
    lengths=st.lists(st.integers(16, 128), min_size=200, max_size=600),
    max_tokens=st.integers(300, 900),
    processes=st.integers(1, 5),
)
def test_an_epoch_is_cut_into_full_batches_in_equal_numbers_for_all_processes(lengths, max_tokens, processes):
    lengths = np.array(lengths)
    cuts = TokenBudget(lengths, max_tokens, seed=1, multiple=processes)
    for epoch in (0, 7):
        batches = cuts.epoch(epoch)
        tokens = [lengths[batch].sum() for batch in batches]
        assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
        assert min(tokens) > 0 and max(tokens) <= max_tokens
        assert max(tokens) - min(tokens) < 2 * lengths.max()
        assert len(batches) == cuts.batches and cuts.batches % processes == 0


def test_batches_are_hardly_more_than_needed():
    lengths = np.random.default_rng(0).integers(16, 129, 20_000)
    cuts = TokenBudget(lengths, 4096, seed=0)
    assert cuts.batches <= 1.04 * lengths.sum() / 4096


def test_processes_see_disjoint_batches_and_together_all():
    cuts = TokenBudget(np.random.default_rng(0).integers(5, 33, 400), 256, seed=3, multiple=3)
    sampler = EpochSampler(cuts)
    shards = [list(BatchSamplerShard(sampler, 3, rank)) for rank in range(3)]
    assert len({len(shard) for shard in shards}) == 1
    assert sorted(key for shard in shards for batch in shard for key in batch) == [(0, i) for i in range(400)]


@pytest.mark.parametrize("processes", [2, 8])
def test_processes_hardly_wait_for_each_other(processes):
    lengths = np.random.default_rng(0).integers(16, 129, 20_000)
    cuts = TokenBudget(lengths, 4096, seed=0, multiple=processes).epoch(0)
    counted = np.split(np.arange(len(lengths))[: len(lengths) // 512 * 512], len(lengths) // 512)  # alike in number
    idle = []
    for batches in (cuts, [part for group in counted for part in np.split(group, 8)]):
        tokens = torch.tensor([float(lengths[batch].sum()) for batch in batches])
        steps = len(tokens) // processes
        in_step = tokens[: steps * processes].view(steps, processes)
        idle.append(1 - in_step.mean(1).sum() / in_step.amax(1).sum())
    assert idle[0] < 0.02 < idle[1]


def test_a_budget_that_cannot_be_kept_is_refused():
    with pytest.raises(UserError, match="choose another --max-tokens-per-batch"):
        TokenBudget(np.array([32, 3, 3, 3, 3, 3]), 33, seed=0)
