"""Text classification: `mybert predict` compared with transformers' pipeline, same weights, rows and labels.

    python benchmarks/prediction.py FILE MODEL [--rounds 5] [--max-length 128] [--threads 2] [--limit N]

FILE contains rows with a column `text` or a sentence pair, as `mybert predict` reads them. MODEL is a BERT
checkpoint; if it has no classification head, a random head with two labels is added. Times are from texts in memory
to labels, alternating between both sides. The pipeline runs at its default batch size, 1, and at the batch size that
was fastest in a first round. Labels and scores of both sides are compared before anything is timed. Prints a Markdown
table.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable

import torch
from datasets import Dataset
from saved_tables import markdown
from sides import in_turns, timed
from transformers import AutoTokenizer, BertForSequenceClassification, pipeline, set_seed

from mybert.common.machine import hardware
from mybert.inference.checkpoint import quiet_loading
from mybert.inference.logits import logits_of
from mybert.inference.task_checkpoint import Finetuned, load_finetuned
from mybert.tasks.reading import read_split
from mybert.tasks.settings import PredictorSettings

BATCH_SIZES = (1, 8, 16, 32, 64)
TASK = "text-classification"
TOLERANCE = 1e-4  # of scores; labels may differ where their scores are closer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, help="rows, the first of the file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        save_bert(options.model, folder)
        settings = PredictorSettings(model=folder, task=TASK, max_length=options.max_length, device="cpu")
        with quiet_loading():
            finetuned = load_finetuned(settings)
            classify = pipeline(TASK, model=folder, device="cpu", truncation=True, max_length=options.max_length)
        rows = read_split(options.file, finetuned.task, labelled=False).rows
        rows = rows.select(range(min(options.limit or len(rows), len(rows))))
        sides = all_sides(classify, finetuned, rows)
        check(sides)
        print_seconds(measure(sides, options.rounds), len(rows))


def save_bert(model: str, folder: str) -> None:
    """Save the checkpoint as transformers' BERT with its head or a random one."""
    set_seed(0)
    with quiet_loading():
        BertForSequenceClassification.from_pretrained(model).save_pretrained(folder)
        AutoTokenizer.from_pretrained(model).save_pretrained(folder)


def all_sides(classify: Callable, finetuned: Finetuned, rows: Dataset) -> dict[str, Callable[[], list[dict]]]:
    texts = list(rows["text"])
    if "text_pair" in rows.column_names:
        texts = [{"text": a, "text_pair": b} for a, b in zip(texts, rows["text_pair"], strict=True)]

    def transformers_side(size: int) -> Callable[[], list[dict]]:
        return lambda: classify(texts, batch_size=size)

    sides = {f"pipeline, batches of {size}": transformers_side(size) for size in BATCH_SIZES}

    def our_side() -> list[dict]:
        model, tokenizer, task = finetuned
        features = task.features(rows, tokenizer, training=False)
        return task.decode(logits_of(model, task, tokenizer, features), features, rows)

    return {**sides, "mybert predict": our_side}


def check(sides: dict[str, Callable[[], list[dict]]]) -> None:
    """
    Raises:
        AssertionError: labels or scores of a row differ.
    """
    ours, theirs = sides["mybert predict"](), sides["pipeline, batches of 32"]()
    for row, (one, other) in enumerate(zip(ours, theirs, strict=True), 1):
        score = one["scores"][other["label"]]
        assert abs(score - other["score"]) < TOLERANCE, f"row {row}: {one} here, {other} there"
        assert one["label"] == other["label"] or abs(one["score"] - score) < TOLERANCE, f"row {row}: {one}, {other}"


def measure(sides: dict[str, Callable[[], list[dict]]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each round for the pipeline's default batch size, its fastest and MyBERT, alternating."""
    ours, default, *larger = "mybert predict", *(name for name in sides if name.startswith("pipeline"))
    fastest = min(larger, key=lambda name: timed(sides[name]).seconds)
    return in_turns({name: lambda name=name: timed(sides[name]).seconds for name in (default, fastest, ours)}, rounds)


def print_seconds(found: dict[str, list[float]], rows: int) -> None:
    ours, table = found["mybert predict"], []
    for name, times in found.items():
        ratio = statistics.median(one / other for one, other in zip(times, ours, strict=True))
        median = statistics.median(times)
        table.append((name, f"{median:.2f}", f"{rows / median:.0f}", f"{ratio:.2f}"))
    print(markdown(table, ("side", "seconds", "rows/s", "MyBERT is … times as fast")))


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
