"""Loss of two processes compared with one process over the same steps; they agree to rounding.

    python benchmarks/two_processes.py CORPUS [--steps 200] [--size tiny]
        [--output benchmarks/results/two_processes.png]

CORPUS is a folder of `mybert corpus`. The same `mybert pretrain` runs on one process; under torchrun on two processes
with gloo on the CPU, each with half of every batch; and on two processes with two halves of that (gradient
accumulation). Dropout is 0, because each process draws its own random numbers. Bytes sent are those of the loopback
device during the run (Linux), including those of other programs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from matplotlib.figure import Figure

from modeling_mybert import NAMED_SIZES, MyBertConfig
from mybert.common.quantities import with_unit
from mybert.common.tables import print_table
from mybert.pretraining.planning.flops_and_memory import ModelCosts

RUNS = {"one process": (1, 1), "two": (2, 1), "two, accumulating": (2, 2)}  # processes, batches a step
_LOOPBACK = Path("/sys/class/net/lo/statistics/tx_bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--size", choices=tuple(NAMED_SIZES), default="tiny")
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--output", default="benchmarks/results/two_processes.png")
    arguments = parser.parse_args()
    curves, rows = {}, []
    for name, (processes, accumulated) in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            sent = int(_LOOPBACK.read_text(encoding="utf-8"))
            train(arguments, processes, accumulated, Path(folder) / "run")
            sent = int(_LOOPBACK.read_text(encoding="utf-8")) - sent
            logs, results, costs = read(Path(folder) / "run", arguments.steps)
        curves[name] = [log["loss"] for log in logs]
        alone = curves["one process"]
        apart = max(abs(a - b) for a, b in zip(curves[name], alone, strict=True))
        relative = max(abs(a - b) / b for a, b in zip(curves[name], alone, strict=True))
        expected = arguments.steps * processes * costs.traffic(processes, sharded=False)
        traffic = (with_unit(sent, "B"), with_unit(expected, "B"))
        rows.append((name, curves[name][-1], f"{apart:.1e}", f"{relative:.1e}", results["idle_share"], *traffic))
    columns = ("run", "last loss", "furthest from one", "relative", "idle share", "sent", "expected")
    print_table(f"{arguments.size}, {arguments.steps} steps of {arguments.sequences} sequences", rows, columns)
    draw(curves, arguments.output)


def train(arguments: argparse.Namespace, processes: int, accumulated: int, output: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(torchrun if processes > 1 else []), "-m", "mybert.cli", "pretrain"]
    command += ["--corpus", arguments.corpus, "--output", str(output), "--size", arguments.size, "--dropout", "0"]
    command += ["--max-steps", str(arguments.steps), "--learning-rate", str(arguments.learning_rate)]
    command += ["--per-device-train-batch-size", str(arguments.sequences // processes // accumulated)]
    command += ["--gradient-accumulation-steps", str(accumulated), "--logging-steps", "1", "--eval-strategy", "no"]
    command += ["--save-steps", str(arguments.steps), "--use-cpu", "--disable-tqdm", "True"]
    command += ["--ddp-backend", "gloo"] if processes > 1 else []
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})


def read(output: Path, steps: int) -> tuple[list[dict], dict, ModelCosts]:
    """The log of each step, results.json, and what the model costs."""
    state = json.loads((output / f"checkpoint-{steps}" / "trainer_state.json").read_text())
    logs = [log for log in state["log_history"] if "loss" in log]
    costs = ModelCosts(
        MyBertConfig.from_pretrained(output), length=128, attended=128, mlm_probability=0.15, has_pairs=True
    )
    return logs, json.loads((output / "results.json").read_text()), costs


def draw(curves: dict[str, list[float]], path: str) -> None:
    figure = Figure(figsize=(10, 3.6), layout="tight")
    left, right = figure.subplots(1, 2)
    alone = curves["one process"]
    for number, (name, curve) in enumerate(curves.items()):
        left.plot(curve, label=name, linewidth=5 - 2 * number, alpha=0.6)
        if curve is not alone:
            right.plot([abs(a - b) for a, b in zip(curve, alone, strict=True)], label=name)
    left.set(xlabel="step", ylabel="loss", title="same batches, dropout 0")
    right.set(xlabel="step", ylabel="loss, distance from one process", yscale="log", title="difference")
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
