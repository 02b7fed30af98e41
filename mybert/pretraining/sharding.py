"""FSDP (version 2) for a model whose embeddings and vocabulary projection share weights."""

import dataclasses

import torch.distributed as dist
from accelerate import FullyShardedDataParallelPlugin
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

from modeling_mybert import MyBertForPreTraining
from mybert.common.errors import UserError


def shard(model: MyBertForPreTraining, plugin: FullyShardedDataParallelPlugin, mesh: DeviceMesh | None = None) -> None:
    """Shards each layer, and everything else as one more unit.

    accelerate would put embeddings, vocabulary projection and its bias into separate units; from torch 2.13 on, shared
    parameters must be in one unit. accelerate accepts a model that is sharded already.

    Args:
        mesh: the devices (default: all accelerators).
    """
    if isinstance(model, FSDPModule):
        return
    plugin.auto_wrap_policy = None  # nothing is left to wrap, and a sharded layer's class has another name
    devices = dist.get_world_size() if mesh is None else mesh.size()
    _check_shares(model, devices)
    policy = plugin.mixed_precision_policy or MixedPrecisionPolicy()
    # counts of labels and losses would lose digits in 16 bits
    outermost = dataclasses.replace(policy, cast_forward_inputs=False, output_dtype=None)
    for module in (*model.bert.encoder.layer, model):
        fully_shard(
            module,
            mesh=mesh,
            reshard_after_forward=plugin.reshard_after_forward,
            shard_placement_fn=lambda parameter: _placement(parameter, devices),
            mp_policy=outermost if module is model else policy,
            **({"offload_policy": plugin.cpu_offload} if plugin.cpu_offload else {}),
        )


def _placement(parameter: nn.Parameter, devices: int) -> Shard | None:
    """By columns if there are too few rows for all devices, otherwise by rows."""
    by_columns = parameter.dim() > 1 and parameter.shape[1] % devices == 0
    return Shard(1) if by_columns and _leaves_one_empty(parameter.shape[0], devices) else None


def _leaves_one_empty(rows: int, devices: int) -> bool:
    return -(-rows // devices) * (devices - 1) >= rows


def _check_shares(model: MyBertForPreTraining, devices: int) -> None:
    """Refuses several empty shares: accelerate identifies parameters by address, and empty ones have the same."""
    empty = [
        name
        for name, parameter in model.named_parameters()
        if _leaves_one_empty(parameter.shape[0], devices) and _placement(parameter, devices) is None
    ]
    if len(empty) > 1:
        raise UserError(
            f"--fsdp: {devices} devices are too many for {', '.join(empty[:3])}; use a number that divides the hidden "
            f"size, {model.config.hidden_size}"
        )
