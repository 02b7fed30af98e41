"""FSDP (version 2) over two gloo processes on the CPU against one process."""

import contextlib
import os

import pytest
import torch
import torch.distributed as dist
from accelerate import FullyShardedDataParallelPlugin
from forked import end, start
from ports import free_port
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.utils import clip_grad_norm_
from torch.testing._internal.distributed.fake_pg import FakeStore

from modeling_mybert import MyBertConfig, MyBertForPreTraining
from mybert.common.errors import UserError
from mybert.pretraining.data.batching import ExampleDataset, PretrainingCollator
from mybert.pretraining.data.masking import Masker
from mybert.pretraining.sharding import shard

STEPS, SEQUENCES = 5, 16
LAYERS = 3


def train(corpus, tokenizer, rank=0, processes=1):
    """Trains a few steps; returns the losses of whole batches, all weights, and the number of collectives."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": 64}
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = MyBertForPreTraining(MyBertConfig(vocab_size=len(tokenizer), **sizes, **no_dropout)).train()
    if processes > 1:
        shard(model, FullyShardedDataParallelPlugin(fsdp_version=2), init_device_mesh("cpu", (processes,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    examples, collate = ExampleDataset(corpus), PretrainingCollator(Masker.from_tokenizer(tokenizer))
    losses, collectives = [], {}
    for step in range(STEPS):
        keys = [(0, index) for index in range(step * SEQUENCES, (step + 1) * SEQUENCES)]
        labelled = (collate(examples.__getitems__(keys))["labels"] != -100).sum()
        batch = collate(examples.__getitems__(keys[rank::processes]))
        counts = {"num_items_in_batch": labelled, "num_pairs_in_batch": SEQUENCES}
        with CommDebugMode() as spy:
            loss = model(**batch, **counts).loss  # this process' part of the mean over all labels
            (loss * processes).backward()  # gradients are averaged over the processes
        collectives = {name.__name__: count for name, count in spy.get_comm_counts().items()}
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if processes > 1:
            dist.all_reduce(loss := loss.detach())
        losses.append(loss.item())
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    return losses, weights, collectives


def work(rank, processes, port, corpus, tokenizer, result):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=processes)
    found = train(corpus, tokenizer, rank, processes)
    if rank == 0:
        torch.save(found, result)
    dist.destroy_process_group()
    os._exit(0)  # running threads of torch would abort the normal exit


@pytest.fixture(scope="module")
def sharded(pairs, tokenizer, tmp_path_factory):
    """The results of two processes with sharded weights."""
    result = tmp_path_factory.mktemp("sharded") / "found.pt"
    with free_port() as port:
        arguments = (2, port, pairs(STEPS * SEQUENCES), tokenizer, result)
        children = [start(work, rank, *arguments) for rank in range(2)]
        assert [end(child) for child in children] == [0, 0]
    return torch.load(result)


def test_two_processes_with_sharded_weights_train_like_one(sharded, pairs, tokenizer):
    losses, weights, _ = train(pairs(STEPS * SEQUENCES), tokenizer)
    assert losses[-1] < losses[0]
    assert sharded[0] == pytest.approx(losses, rel=1e-5)
    assert_collectives(sharded[2])
    assert sharded[1].keys() == weights.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(sharded[1][name], weight, atol=2e-5, rtol=0)


def assert_collectives(counts):
    """Weights are gathered twice and gradients reduced once per step."""
    units = LAYERS + 1
    assert sum(count for name, count in counts.items() if "gather" in name) == 2 * units
    assert sum(count for name, count in counts.items() if "scatter" in name) == units


@contextlib.contextmanager
def processes(backend, store, rank, count):
    """This process as number `rank` of `count`; the backend "fake" does not communicate."""
    dist.init_process_group(backend, store=store, rank=rank, world_size=count)
    try:
        yield init_device_mesh("cpu", (count,))
    finally:
        dist.destroy_process_group()


def test_weights_are_gathered_twice_and_gradients_reduced_once_per_step(pairs, tokenizer):
    """One process, whose collectives are counted only."""
    with processes("fake", FakeStore(), rank=0, count=2):
        *_, collectives = train(pairs(STEPS * SEQUENCES), tokenizer, processes=2)
    assert_collectives(collectives)


def test_the_shares_of_four_devices_have_different_addresses(tiny_config):
    """accelerate finds the parameters of an optimizer by the addresses of their shares; empty ones have the same."""
    with processes("fake", FakeStore(), rank=3, count=4) as mesh:
        model = MyBertForPreTraining(tiny_config)
        shard(model, FullyShardedDataParallelPlugin(fsdp_version=2), mesh)
        addresses = [parameter.to_local().data_ptr() for parameter in model.parameters()]
        assert len(set(addresses)) == len(addresses)


def test_too_many_devices_are_refused_with_a_remedy(tiny_config):
    with (
        processes("fake", FakeStore(), rank=0, count=3) as mesh,
        pytest.raises(UserError, match="divides the hidden size, 32"),
    ):
        shard(MyBertForPreTraining(tiny_config), FullyShardedDataParallelPlugin(fsdp_version=2), mesh)


def test_counts_and_losses_stay_float32_in_half_precision(tiny_config):
    """4,915 would be 4,912 in bfloat16, and a loss of 2.35 one of 2.34."""
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.bfloat16)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, mixed_precision_policy=half)
    ids = torch.arange(5, 17)[None]
    with processes("gloo", dist.HashStore(), rank=0, count=1) as mesh:
        model = MyBertForPreTraining(tiny_config).eval()
        shard(model, plugin, mesh)
        one, many = (model(ids, labels=ids, num_items_in_batch=torch.tensor(count)).loss for count in (1.0, 4915.0))
    assert one.dtype == torch.float32
    assert one.item() / many.item() == pytest.approx(4915, rel=1e-6)
