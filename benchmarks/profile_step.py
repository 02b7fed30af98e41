"""Time of a training step by kind of operation, compared with the same step without tuning.

    python benchmarks/profile_step.py [--rows mini-full,base-ragged] [--dtype float32] [--steps 3] [--threads 2]

The rows are those of training_step.py. `plain` is the ragged model of remote code without this package: PyTorch's
operations, attention on the padded grid, freed memory returned to the system. The profiler allocates
memory, so both sides are slower than in training_step.py: compare the shares.
"""

import argparse
from collections import Counter
from unittest import mock

import torch
from sides import in_own_process
from timed_step import Step
from torch.profiler import ProfilerActivity, profile
from training_step import ROWS, make

from modeling_mybert import operations_mybert
from mybert.common.machine import hardware, keep_freed_memory
from mybert.common.tables import print_table

KINDS = {
    "matrix products": ("mm", "addmm", "bmm", "baddbmm"),
    "random numbers": ("random_", "bernoulli_"),
    "other parts of dropout and sums": ("mul", "mul_", "add", "add_", "ge_", "div_", "sum", "fill_", "masked_fill_"),
    "copies": ("copy_", "cat", "index_select", "index_copy", "index_add_"),
    "softmax and cross-entropy": (
        *("_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data"),
        *("nll_loss_forward", "nll_loss_backward", "exp_", "amax", "sub_", "gather", "scatter_add_"),
    ),
    "GELU": ("gelu", "gelu_backward"),
    "layer norm": ("native_layer_norm", "native_layer_norm_backward"),
    "optimizer": ("_fused_adamw_",),
}
_WARM_UP = 5
KIND_OF = {f"aten::{name}": kind for kind, names in KINDS.items() for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="mini-full,base-ragged", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    for row in arguments.rows.split(","):
        plain, tuned = (in_own_process(milliseconds, row, tuned, arguments) for tuned in (False, True))
        kinds = [*KINDS, "all else"]
        table = [(kind, plain[kind], tuned[kind], f"{tuned[kind] / tuned.total():.0%}") for kind in kinds]
        table.append(("in all", plain.total(), tuned.total(), "100%"))
        print_table(f"{row}, milliseconds a step", table, ("work", "plain", "MyBERT", "share"))


def milliseconds(row: str, tuned: bool, arguments: argparse.Namespace) -> Counter:
    """Milliseconds per step of each kind of operation, in this process."""
    torch.set_num_threads(arguments.threads)
    if tuned:
        keep_freed_memory()
        return measure(row, arguments)
    with mock.patch.object(operations_mybert, "faster", None):  # PyTorch's own operations
        return measure(row, arguments)


def measure(row: str, arguments: argparse.Namespace) -> Counter:
    (_, model), (_, batch), _ = make(row, "python-docs")
    step = Step(model, batch, getattr(torch, arguments.dtype))
    step.dropout(0.1)
    for _ in range(_WARM_UP):
        step.run()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(arguments.steps):
            step.run()
    spent = Counter()
    for event in seen.key_averages():
        spent[KIND_OF.get(event.key, "all else")] += event.self_cpu_time_total / 1000 / arguments.steps
    return spent


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
