"""Growth of a training step's cost with tokens, length, vocabulary and batch size, compared with transformers.

    python benchmarks/growth.py [--output benchmarks/results/growth.png] [--repeats 3] [--threads 2]

One model of size mini; one quantity changes per curve. Time is the median of whole optimizer steps. Memory is the sum
over the tensors that autograd saves in the forward pass, without the weights.
"""

import argparse
import statistics

import torch
from matplotlib.figure import Figure
from rich.progress import track
from sides import in_own_process
from timed_step import Step
from training_step import batches
from transformers import BertConfig, BertForPreTraining

from modeling_mybert import NAMED_SIZES, MyBertConfig, MyBertForPreTraining
from mybert.common.machine import hardware, keep_freed_memory
from mybert.common.tables import print_table

RAGGED = [16, 32, 48, 64, 80, 96, 112, 128]
# title -> [(x, lengths of the sequences, vocabulary)]
CURVES = {
    "real tokens (32 sequences, the longest 128)": [
        (31 * n + 128, [128] + [n] * 31, 30522) for n in (4, 32, 64, 96, 128)
    ],
    "sequence length (4,096 tokens)": [(n, [n] * (4096 // n), 30522) for n in (32, 64, 128, 256, 512)],
    "vocabulary (16 sequences of 16 to 128)": [(n, RAGGED * 2, n) for n in (4_000, 15_000, 30_000, 60_000)],
    "sequences of 16 to 128": [(8 * n, RAGGED * n, 30522) for n in (1, 2, 4, 8)],
}
SIDES = {"transformers": (BertConfig, BertForPreTraining), "MyBERT": (MyBertConfig, MyBertForPreTraining)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="benchmarks/results/growth.png")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    how = arguments.repeats, arguments.threads
    found = {  # each point runs in its own process, because the allocator keeps its memory
        title: [in_own_process(measure, *point, *how) for point in track(points, description=title)]
        for title, points in CURVES.items()
    }
    for title, rows in found.items():
        print_table(title, rows, ("", "transformers s", "MyBERT s", "transformers MB", "MyBERT MB"))
    draw(found, arguments.output)


def measure(x: int, lengths: list[int], vocabulary: int, repeats: int, threads: int) -> tuple:
    torch.set_num_threads(threads)
    keep_freed_memory()
    torch.manual_seed(0)
    both = batches(torch.tensor(lengths), False, vocabulary)
    seconds, megabytes = [], []
    for (config, model), batch in zip(SIDES.values(), both, strict=True):
        step = Step(model(config(**NAMED_SIZES["mini"], vocab_size=vocabulary)), batch, torch.float32)
        megabytes.append(kept_for_backward(step) / 1e6)
        step.run()
        seconds.append(statistics.median(step.run() for _ in range(repeats)))
    return (x, *seconds, *megabytes)


def kept_for_backward(step: Step) -> int:
    """Bytes of the storages that autograd saves in one forward pass, each counted once."""
    own = {parameter.untyped_storage().data_ptr() for parameter in step.model.parameters()}
    kept = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = step.model(**step.batch).loss
    total = sum(kept.values())
    del loss
    return total


def draw(found: dict[str, list[tuple]], path: str) -> None:
    figure = Figure(figsize=(4 * len(found), 6), layout="tight")
    axes = figure.subplots(2, len(found))
    for column, (title, rows) in zip(axes.T, found.items(), strict=True):
        x, *values = zip(*rows, strict=True)
        for axis, unit, sides in zip(column, ("seconds a step", "MB kept"), (values[:2], values[2:]), strict=True):
            for name, y in zip(SIDES, sides, strict=True):
                axis.plot(x, y, marker=".", label=name)
            axis.set(xlabel=title, ylabel=unit, ylim=(0, None))
            axis.grid(alpha=0.3)
            axis.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
