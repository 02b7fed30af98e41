"""FSDP (version 2) of a model whose embeddings and head share their weights."""

from accelerate import FullyShardedDataParallelPlugin
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from modeling_mybert import MyBertForPreTraining


def shard(model: MyBertForPreTraining, plugin: FullyShardedDataParallelPlugin, mesh: DeviceMesh | None = None) -> None:
    """Shards each layer, and all else as one more unit.

    accelerate by itself cuts between the embeddings, the vocabulary projection and its bias, which torch refuses from
    2.13 on, since parameters that they share would be in two units. It takes a model that is sharded as it is.

    Args:
        plugin: accelerate's settings.
        mesh: the devices; all of this kind of accelerator when not given.
    """
    if isinstance(model, FSDPModule):
        return
    plugin.auto_wrap_policy = None  # there is nothing left to wrap, and a sharded layer's class has another name
    for module in (*model.bert.encoder.layer, model):
        fully_shard(
            module,
            mesh=mesh,
            reshard_after_forward=plugin.reshard_after_forward,
            mp_policy=plugin.mixed_precision_policy or MixedPrecisionPolicy(),
            **({"offload_policy": plugin.cpu_offload} if plugin.cpu_offload else {}),
        )
