"""Feeds hostile inputs to everything that reads what others wrote, and prints what became of them.

    python tests/fuzz/run.py --inputs 1000000
    python tests/fuzz/run.py --target "text .json" --number 4711    # one input again, with its stack trace

Input number N of a target is a function of both. Each target runs in a process of its own. An input that crashes is
kept under `build/fuzz`, and the exit status is 1.
"""

import argparse
import logging
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}

import datasets
import torch
import transformers

datasets.disable_progress_bars()
transformers.logging.disable_progress_bar()

from targets import TARGETS  # noqa: E402
from watch import READ, REFUSED, Defect, Place, Target, attempt, bounded  # noqa: E402

from mybert.common.tables import print_table  # noqa: E402

KEPT = Path("build/fuzz")
_DEFECTS_SHOWN = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="in all; shared out by the targets' weights")
    parser.add_argument("--target", default="", help="those alone whose name holds this")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--number", type=int, help="this input alone")
    arguments = parser.parse_args()
    targets = [target for target in TARGETS if arguments.target in target.name]
    weights = sum(target.weight for target in targets)
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    rows, seconds = [], time.monotonic()
    for target in targets:
        count = max(1, round(arguments.inputs * target.weight / weights))
        first = arguments.first if arguments.number is None else arguments.number
        numbers = range(first, first + (count if arguments.number is None else 1))
        rows.append((target.name, *run_in_process(target, numbers)))
        print(*rows[-1], sep="\t", flush=True)
    sums = [sum(row[column] for row in rows) for column in range(1, 5)]
    rows.append(("in all", *sums, time.monotonic() - seconds, max(row[6] for row in rows)))
    heads = ("target", "inputs", "read", "refused", "defects", "seconds", "MiB more")
    print_table("Hostile input", rows, heads)
    return 1 if sums[3] else 0


def run_in_process(target: Target, numbers: range) -> tuple[int, int, int, int, float, int]:
    """How many inputs were tried, read, refused and wrong; seconds; and MiB that memory grew by at its peak."""
    root = Path(tempfile.mkdtemp(prefix="mybert-fuzz-"))
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=run, args=(target, numbers, root, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        process.join()
        keep(target, "last", root)
        print(f"{target.name}: the process ended with {process.exitcode}; its last input is in {KEPT}")
        return len(numbers), 0, 0, 1, 0.0, 0
    finally:
        process.join()
        shutil.rmtree(root, ignore_errors=True)


def run(target: Target, numbers: range, root: Path, pipe: Connection) -> None:
    place = Place(root)
    if target.prepare:
        target.prepare(place.folder)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stderr.fileno())  # remarks of libraries, thousands of them
    counts, tried, began = {READ: 0, REFUSED: 0, "defects": 0}, 0, time.monotonic()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    with bounded(place):
        for number in numbers:
            files = target.make(Random(f"{target.name}/{number}"))
            tried += 1
            try:
                counts[attempt(target, place, files)] += 1
            except Defect as defect:
                counts["defects"] += 1
                print(f"{target.name}, number {number}: {str(defect).encode(errors='backslashreplace').decode()}")
                keep(target, str(number), root, files)
                if counts["defects"] == _DEFECTS_SHOWN:
                    break
    grown = (memory("VmHWM") - before) // 1024
    pipe.send((tried, *counts.values(), round(time.monotonic() - began, 1), max(0, grown)))


def memory(what: str) -> int:
    """KiB, of the process itself."""
    return int(re.search(rf"{what}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def keep(target: Target, name: str, root: Path, files: dict[str, bytes] | None = None) -> None:
    """Puts an input under `KEPT`; that of a process that died lies where it was read."""
    folder = KEPT / re.sub(r"\W+", "-", target.name) / name
    shutil.rmtree(folder, ignore_errors=True)
    if files is None:
        shutil.copytree(root / "a/b/c/input", folder)
    for file, content in (files or {}).items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
