"""Speed of the commands alone on the machine, as an older processor, beside a busy program, and with a CPU quota.

    python benchmarks/in_company.py FOLDER --prepare --model MINILM
    python benchmarks/in_company.py FOLDER [--work quickstart embed …] [--beside alone busy …] [--seconds 6]
    python benchmarks/in_company.py FOLDER --table

The first call makes inputs and models in FOLDER, in about two minutes. The second measures (12 minutes on two cores),
adds each number to FOLDER/speeds.jsonl, and prints the table; the third only prints it, with medians of all calls.
--python and --tree measure another installation or another version of this repository.

Every work is a command of its own, started as a user starts it. Trainings are killed `--seconds` after the first entry
of log.jsonl; their speed is that from there to the last entry. Quickstart uses a finished vocabulary and corpus, and
chooses its optimizer before. The other commands work `--seconds` or longer, and load the model each time; the time of
imports does not count. Two clients send 16 texts a request to `mybert serve`; they need a tenth of a core.

beside: alone; avx2, PyTorch limited to the instructions of a processor without bfloat16; one, OMP_NUM_THREADS=1; busy,
a process that computes all the time; quota, a control group of `--quota` cores (version 1 or 2), or one core by
affinity where no group can be made.
"""

import argparse
import contextlib
import http.client
import json
import math
import os
import pkgutil
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from mybert.common.machine import hardware

AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
WORKS = ("quickstart", "pretrain", "finetune", "embed", "predict", "serve", "evaluate", "corpus")
BESIDE = {
    "alone": "alone",
    "avx2": "AVX2",
    "one": "one thread",
    "busy": "busy neighbour",
    "quota": "quota of one core",
}
UNITS = dict.fromkeys(WORKS, "texts/s") | dict.fromkeys(("quickstart", "pretrain", "finetune", "corpus"), "tokens/s")
_GROUPS = Path("/sys/fs/cgroup")
ROWS, _LEAST_LOGS = 300, 3  # rows of each label


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--model", help="a BERT to fine-tune and to embed with, for --prepare")
    parser.add_argument("--work", nargs="+", choices=WORKS, default=WORKS[:6])
    parser.add_argument("--beside", nargs="+", choices=BESIDE, default=list(BESIDE))
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--quota", type=float, default=1.0)
    parser.add_argument("--version", default="now", help="name of the measured version in the table")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tree", default=str(Path(__file__).parents[1]))
    parser.add_argument("--repeat", help=argparse.SUPPRESS)  # a work, in the process that is measured
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    if options.repeat:
        return repeat(options.repeat, options.folder, options.seconds)
    if options.prepare:
        return prepare(options)
    for work in () if options.table else options.work:
        for beside in options.beside:
            try:
                speed = measure(work, beside, options)
            except (
                OSError,
                LookupError,
                ArithmeticError,
                ValueError,
            ) as error:  # the others are still worth their time
                print(f"{work}, {beside}: {error!r}; see {log_of(work, beside, options.folder)}", flush=True)
                continue
            entry = {"version": options.version, "work": work, "beside": beside, "speed": speed}
            with (options.folder / "speeds.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
            print(f"{work}, {beside}: {speed:,.0f} {UNITS[work]}", flush=True)
    print(f"machine: {hardware()}")
    print_tables(options.folder / "speeds.jsonl")
    return None


def prepare(options: argparse.Namespace) -> None:
    """Text and examples of quickstart, labelled sentences of two packages, and a classifier that tells them apart."""
    import mybert
    from mybert.io.python_docs import python_documents
    from mybert.workflows.quickstart import QuickstartSettings, quickstart

    folder, rows = options.folder, []
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for package in ("numpy", "pandas"):
        texts = [line for text, _ in python_documents(f"python-docs:{package}") for line in text.split("\n\n")]
        rows += [{"text": text, "label": package} for text in texts[:ROWS]]
    random.Random(0).shuffle(rows)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "text.txt").write_text("\n\n".join(text for text, _ in python_documents()), encoding="utf-8")
    shutil.copytree(options.model, folder / "encoder")
    os.chdir(folder)  # a resumed quickstart compares the given names of its text
    quickstart(QuickstartSettings("quickstart", text=["text.txt"], max_steps=2))
    shutil.rmtree("quickstart/model")
    mybert.finetune(**finetune_settings(folder), max_steps=5, output="classifier")


def corpus_settings(folder: Path) -> dict:
    return {"inputs": [str(folder / "text.txt")], "tokenizer": str(folder / "quickstart/tokenizer"), "max_length": 64}


def finetune_settings(folder: Path) -> dict:
    rows = {"task": "text-classification", "model": str(folder / "encoder"), "train": str(folder / "rows.jsonl")}
    return rows | {"validation_share": 0.0, "logging_steps": 1, "eval_strategy": "no", "save_strategy": "no"}


# Measuring


def measure(work: str, beside: str, options: argparse.Namespace) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {"PYTHONPATH": options.tree, "HF_HUB_OFFLINE": "1"} | (AVX2 if beside == "avx2" else {})
    if beside == "one":
        environment["OMP_NUM_THREADS"] = "1"
    output = options.folder / "output"
    shutil.rmtree(output, ignore_errors=True)
    if work == "quickstart":
        shutil.copytree(options.folder / "quickstart", output)
    with contextlib.ExitStack() as stack:
        stack.enter_context(neighbour(beside))
        join = stack.enter_context(group(options.quota if beside == "quota" else None))
        mybert = [options.python, "-P", "-m", "mybert"]
        common = {"cwd": options.folder, "env": environment, "preexec_fn": join}
        log = stack.enter_context(log_of(work, beside, options.folder).open("w", encoding="utf-8"))
        if work == "serve":
            command = [*mybert, "serve", "classifier", "--port", "8791"]
            process = subprocess.Popen(command, stdout=log, stderr=log, **common)
            return served(options.folder, process, options.seconds)
        if work in ("quickstart", "pretrain", "finetune"):
            process = subprocess.Popen([*mybert, *training(work, options.folder)], stdout=log, stderr=log, **common)
            return trained(process, output, options.seconds)
        command = [options.python, __file__, str(options.folder), "--repeat", work, "--seconds", str(options.seconds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, **common)
        return float(done.stdout.splitlines()[-1])


def log_of(work: str, beside: str, folder: Path) -> Path:
    return folder / f"{work}-{beside}.log"


@contextlib.contextmanager
def neighbour(beside: str) -> Iterator[None]:
    """A process that computes all the time."""
    if beside != "busy":
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def group(quota: float | None) -> Iterator:
    """A function that moves its process into a control group with a quota of so many cores; None without a quota."""
    if quota is None:
        yield None
        return
    v2 = (_GROUPS / "cgroup.controllers").is_file()
    own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()]
    root = _GROUPS / next((f"{names}{path}" for _, names, path in own if "cpu" in names.split(",")), "")
    folder = root / f"in-company-{os.getpid()}"
    try:
        folder.mkdir()
        if v2:
            (root / "cgroup.subtree_control").write_text("+cpu")
            (folder / "cpu.max").write_text(f"{round(quota * 1e5)} 100000")
        else:
            (folder / "cpu.cfs_quota_us").write_text(str(round(quota * 1e5)))
    except OSError as error:
        print(f"one core by affinity, since no control group can be made: {error}", flush=True)
        yield lambda: os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        return
    print(f"quota by the control group {folder}", flush=True)
    try:
        yield lambda: (folder / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):  # until its last process has ended
                folder.rmdir()
                break
            time.sleep(0.1)


def training(work: str, folder: Path) -> list[str]:
    if work == "quickstart":
        return ["quickstart", "--output", "output", "--text", "text.txt", "--resume", "--max-steps", "240"]
    if work == "pretrain":
        how = ["--size", "tiny", "--optimizer", "adamw", "--max-tokens-per-batch", "2048", "--learning-rate", "1e-3"]
        more = ["--max-steps", "100000", "--logging-steps", "5", "--eval-strategy", "no", "--save-strategy", "no"]
        return ["pretrain", "--corpus", "quickstart/corpus", "--output", "output", *how, *more]
    flags = [(f"--{name.replace('_', '-')}", str(value)) for name, value in finetune_settings(folder).items()]
    return ["finetune", *(word for flag in flags for word in flag), "--num-train-epochs", "99", "--output", "output"]


def trained(process: subprocess.Popen, output: Path, seconds: float) -> float:
    """Tokens per second of a training that is killed `seconds` after its first log, or after three logs."""
    end = math.inf
    while process.poll() is None and (time.monotonic() < end or len(logs(output)) < _LEAST_LOGS):
        time.sleep(0.1)
        if end == math.inf and logs(output):
            end = time.monotonic() + seconds
    found = logs(output)
    process.kill()
    process.wait()
    first, last = found[0], found[-1]
    return (last["tokens"] - first["tokens"]) / (last["seconds"] - first["seconds"])


def logs(output: Path) -> list[dict]:
    files = sorted(output.rglob("log.jsonl"))
    lines = files[0].read_text(encoding="utf-8").splitlines() if files else []
    entries = [json.loads(line) for line in lines if line.endswith("}")]
    return [entry for entry in entries if "loss" in entry and "tokens" in entry]


def served(folder: Path, process: subprocess.Popen, seconds: float, clients: int = 2) -> float:
    """Texts per second that clients get from a service."""
    texts = [json.loads(line)["text"] for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    counts, begun, stop = [0] * clients, threading.Event(), threading.Event()

    def ask(number: int) -> None:
        connection, place = http.client.HTTPConnection("127.0.0.1", 8791), number
        while not stop.is_set():
            body = json.dumps({"rows": [texts[(16 * place + i) % len(texts)] for i in range(16)]})
            place += clients
            connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            counts[number] += 16 * begun.is_set()

    while process.poll() is None:
        with contextlib.suppress(OSError):
            http.client.HTTPConnection("127.0.0.1", 8791).connect()
            break
        time.sleep(0.2)
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    begun.set()
    start = time.monotonic()
    time.sleep(seconds)
    speed = sum(counts) / (time.monotonic() - start)
    stop.set()
    for thread in threads:
        thread.join()
    process.kill()
    process.wait()
    if not speed:
        raise ValueError("the service has answered nothing")
    return speed


def repeat(work: str, folder: Path, seconds: float) -> None:
    """Repeats a command, and prints texts per second; of `corpus` tokens per second."""
    import mybert
    from mybert.commands import COMMANDS

    rows, output = str(folder / "rows.jsonl"), str(folder / "output")
    size = len((folder / "rows.jsonl").read_text(encoding="utf-8").splitlines())
    run = {
        "embed": lambda: mybert.embed(
            model=str(folder / "encoder"), inputs=[rows], output=f"{output}.npy", overwrite=True
        ),
        "predict": lambda: mybert.predict(
            model=str(folder / "classifier"), inputs=[rows], output=f"{output}.jsonl", overwrite=True
        ),
        "evaluate": lambda: mybert.evaluate(
            model=str(folder / "classifier"), data=rows, output=output, overwrite=True, bootstrap=0
        ),
        "corpus": lambda: mybert.build_corpus(**corpus_settings(folder), output=output, overwrite=True),
    }[work]
    if work == "corpus":
        size = json.loads((folder / "quickstart/corpus/manifest.json").read_text(encoding="utf-8"))["counts"]["tokens"]
    pkgutil.resolve_name(COMMANDS[work].function)  # imports do not count
    start, done = time.monotonic(), 0
    while time.monotonic() < start + seconds:
        run()
        done += size
    print(done / (time.monotonic() - start))


def print_tables(file: Path) -> None:
    """For each version a row for each command: the speed, and the share of the speed alone that is left otherwise."""
    entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for version in dict.fromkeys(entry["version"] for entry in entries):
        speeds: dict[tuple[str, str], list[float]] = {}
        for entry in entries:
            if entry["version"] == version:
                speeds.setdefault((entry["work"], entry["beside"]), []).append(entry["speed"])
        columns = [beside for beside in BESIDE if any(name == beside for _, name in speeds)]
        print(f"\n{version}:\n\n| command | unit | {' | '.join(map(BESIDE.get, columns))} |")
        print(f"| --- | --- |{' ---: |' * len(columns)}")
        for work in (work for work in WORKS if any(name == work for name, _ in speeds)):
            median = {beside: statistics.median(speeds.get((work, beside), [math.nan])) for beside in BESIDE}
            cells = []
            for beside in columns:
                base = median["one" if beside == "quota" else "alone"]
                share = f" ({median[beside] / base:.0%})" if beside != "alone" and base > 0 else ""
                cells.append("-" if math.isnan(median[beside]) else f"{median[beside]:,.0f}{share}")
            print(f"| {work} | {UNITS[work]} | {' | '.join(cells)} |")
    print("\nIn brackets: the share of the speed alone; under a quota, of the speed of one thread.")


if __name__ == "__main__":
    main()
