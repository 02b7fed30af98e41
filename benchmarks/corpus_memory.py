"""Throughput and peak memory of corpus building at several sizes, with a plot.

    python benchmarks/corpus_memory.py TOKENIZER INPUT… --output PLOT.png [--megabytes 64 256 1024] [--cores 2]

Text of each size is sampled from the documents of INPUT, sentence by sentence, so that no two documents are equal.
Each build runs in its own process. Its memory and that of each worker are sampled from /proc (Linux). Pages of mapped
files are shown separately, because the kernel releases them under memory pressure.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_SENTENCES_A_DOCUMENT = 40
_BUILD = "import sys; from mybert.cli import main; sys.exit(main(sys.argv[1:]))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--output", required=True, help="plot to write")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    rows = []
    for megabytes in arguments.megabytes:
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder) / "text.jsonl"
            _resample(arguments.inputs, text, megabytes * 10**6)
            rows.append({"megabytes": megabytes, **_measure(text, Path(folder) / "corpus", arguments)})
        row = rows[-1]
        print(
            f"{megabytes:6,} MB: {row['tokens_a_second']:,.0f} tokens/s a core, {row['seconds']:,.0f} s; "
            f"peak of the main process {row['main']:,.0f} MB, of a worker {row['worker']:,.0f} MB; "
            f"of mapped files {row['mapped']:,.0f} MB",
            flush=True,
        )
    _plot(rows, arguments.output)


def _resample(inputs: list[str], path: Path, size: int) -> None:
    from mybert.corpus.text.sentences import sentence_splitter
    from mybert.io.documents import read_documents

    split, sentences, characters = sentence_splitter("en"), [], 0
    for document in read_documents(inputs):
        sentences += split(document.text)
        characters += len(document.text)
        if characters > 20_000_000:
            break
    rng, written = random.Random(0), 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            written += file.write(json.dumps({"text": " ".join(rng.choices(sentences, k=_SENTENCES_A_DOCUMENT))}))
            written += file.write("\n")


def _measure(text: Path, output: Path, arguments) -> dict:
    command = [sys.executable, "-c", _BUILD, "corpus", str(text), "--tokenizer", arguments.tokenizer]
    command += ["--output", str(output), "--num-proc", str(arguments.cores)]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peaks = {"main": 0.0, "worker": 0.0, "mapped": 0.0}
    while process.poll() is None:
        main, workers = held_memory(process.pid), [held_memory(child) for child in _children(process.pid)]
        now = {
            "main": main["RssAnon"],
            "worker": max((worker["RssAnon"] for worker in workers), default=0.0),
            "mapped": max(held["RssFile"] for held in (main, *workers)),
        }
        peaks = {name: max(peak, now[name]) for name, peak in peaks.items()}
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"the build of {text} failed")
    seconds = time.perf_counter() - begun
    tokens = json.loads((output / "manifest.json").read_text())["counts"]["tokens"]
    return {**peaks, "seconds": seconds, "tokens_a_second": tokens / seconds / arguments.cores}


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]
    except OSError:
        return []


def held_memory(pid: int) -> dict[str, float]:
    """Resident MB of a process: anonymous memory (RssAnon) and mapped files (RssFile); zeros after it has ended."""
    held = {"RssAnon": 0.0, "RssFile": 0.0}
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return held
    fields = (line.split() for line in lines)
    return held | {field[0][:-1]: int(field[1]) / 1000 for field in fields if field[0][:-1] in held}


def _plot(rows: list[dict], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (memory, speed) = pyplot.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    sizes = [row["megabytes"] for row in rows]
    for name, label in (("main", "main process"), ("worker", "largest worker"), ("mapped", "mapped files")):
        memory.plot(sizes, [row[name] for row in rows], "o-", label=label)
    memory.axhline(2000, color="grey", linestyle=":", label="2 GB")
    speed.plot(sizes, [row["tokens_a_second"] for row in rows], "o-")
    for axes, label in ((memory, "peak memory, MB"), (speed, "tokens per second and core")):
        axes.set(xlabel="text, MB", ylabel=label, xscale="log", xticks=sizes, xticklabels=sizes)
        axes.set_ylim(bottom=0)
        axes.minorticks_off()
    memory.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
