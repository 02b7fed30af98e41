"""Few rows a label: `mybert finetune` beside SetFit, ordinary fine-tuning, and a frozen encoder.

    python benchmarks/few_labels.py MINILM --data DATA --rows 8 --draws 3 --output few --setfit SETFIT/bin/python

DATA has the folders of `SETS`; SETFIT is an environment with setfit, which runs as in its paper (20 pairs of each kind
for a row, one epoch). Each cell is a process of its own. Seconds are processor time from its start until the model is
saved, with imports and, for `mybert finetune`, all folds and the report. Accuracy of several labels is the share of
rows whose labels are all right. Writes a line for each cell to OUTPUT/cells.jsonl, where finished cells are kept, and
prints a table.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

SETS = {
    "sst2": ("sst2/train.jsonl", "sst2/dev.jsonl"),
    "bbc": ("bbc/train.jsonl", "bbc/dev.jsonl"),
    "banking77": ("intents/banking77_train.jsonl.zst", "intents/banking77_test.jsonl.zst"),
    "clinc150": ("intents/clinc150_train.jsonl.zst", "intents/clinc150_test.jsonl.zst"),
    "reuters10": ("reuters10/train.jsonl", "reuters10/dev.jsonl"),
}
METHODS = ("finetune", "setfit", "ordinary", "frozen")


def lines(path: Path) -> list[dict]:
    if path.suffix == ".zst":
        from mybert.io.files import zstd

        text = zstd.decompress(path.read_bytes()).decode()
    else:
        text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def labels_of(row: dict) -> list[str]:
    return sorted(map(str, row["labels"])) if "labels" in row else [str(row["label"])]


def with_labels(rows: list[dict], names: set[str]) -> list[dict]:
    return [row for row in rows if names.issuperset(labels_of(row))]


def drawn(rows: list[dict], count: int, seed: int) -> list[dict]:
    """`count` rows of each label; of rows with several labels, more of the frequent ones."""
    draw = np.random.default_rng(seed)
    names = sorted({label for row in rows for label in labels_of(row)})
    chosen = set()
    for name in names:
        own = [number for number, row in enumerate(rows) if name in labels_of(row)]
        chosen.update(draw.permutation(own)[:count].tolist())
    return [rows[number] for number in sorted(chosen)]


def accuracy(found: Sequence[list[str]], rows: list[dict]) -> float:
    right = [sorted(labels) == labels_of(row) for labels, row in zip(found, rows, strict=True)]
    return sum(right) / len(right)


def setfit(
    settings: argparse.Namespace, train: list[dict], texts: list[str], folder: Path
) -> tuple[list[list[str]], float]:
    import torch
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    names = sorted({label for row in train for label in labels_of(row)})
    several = "labels" in train[0]
    targets = [[int(name in labels_of(row)) for name in names] for row in train]
    rows = {"text": [row["text"] for row in train], "label": targets if several else [row.index(1) for row in targets]}
    encoder = SetFitModel.from_pretrained(
        settings.model, **({"multi_target_strategy": "one-vs-rest"} if several else {})
    )
    arguments = TrainingArguments(
        output_dir=str(folder), num_iterations=20, num_epochs=1, report_to="none", save_strategy="no"
    )
    if settings.max_length:
        encoder.model_body.max_seq_length = settings.max_length
    with torch.autocast("cpu", torch.bfloat16, enabled=settings.bf16):
        Trainer(model=encoder, args=arguments, train_dataset=Dataset.from_dict(rows)).train()
    encoder.save_pretrained(str(folder / "model"))
    seconds = time.process_time()
    found = np.asarray(encoder.predict(texts))
    if several:
        return [[name for name, has in zip(names, row, strict=True) if has] for row in found], seconds
    return [[names[int(number)]] for number in found], seconds


def frozen(settings: argparse.Namespace, train: list[dict], texts: list[str]) -> tuple[list[list[str]], float]:
    """The head of `mybert finetune` without training of the encoder."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import MultiLabelBinarizer

    from mybert import Embedder

    embedder = Embedder(settings.model, max_length=settings.max_length, long_texts="truncate")
    vectors = embedder.texts([row["text"] for row in train])
    centre = vectors.mean(0)
    scale = np.sqrt(((vectors - centre) ** 2).sum(1).mean())
    names = MultiLabelBinarizer()
    targets = names.fit_transform(map(labels_of, train))
    model = LogisticRegression(C=30, max_iter=1000)
    if "labels" in train[0]:
        model = OneVsRestClassifier(model).fit((vectors - centre) / scale, targets)
    else:
        model.fit((vectors - centre) / scale, targets.argmax(1))
    seconds = time.process_time()
    found = model.predict((embedder.texts(texts) - centre) / scale)
    if "labels" in train[0]:
        return [list(labels) for labels in names.inverse_transform(found)], seconds
    return [[names.classes_[number]] for number in found], seconds


def predictions(predictor, texts: list[str]) -> list[list[str]]:
    return [one.get("labels") if "labels" in one else [one["label"]] for one in predictor(texts)]


def of_command(
    settings: argparse.Namespace, file: str, texts: list[str], folder: Path, method: str
) -> tuple[list[list[str]], float]:
    """`mybert finetune`; ordinary fine-tuning holds out the default share of rows."""
    from mybert import Predictor

    words = ["finetune", "--task", "text-classification", "--model", settings.model, "--train", file]
    words += ["--output", str(folder), "--overwrite", "--use-cpu", "true", "--disable-tqdm", "true"]
    words += ["--max-length", str(settings.max_length)] if settings.max_length else []
    words += ["--bf16", "true"] if settings.bf16 else []
    words += ["--validation-share", "0.1"] if method == "ordinary" else []
    before = os.times()
    subprocess.run([sys.executable, "-m", "mybert", *words], check=True, stdout=sys.stderr)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return predictions(Predictor(folder, device="cpu"), texts), seconds


def cell(method: str, settings: argparse.Namespace, files: list[str], folder: Path) -> dict:
    train, test = (lines(Path(file)) for file in files)
    texts = [row["text"] for row in test]
    if method == "setfit":
        found, seconds = setfit(settings, train, texts, folder)
    elif method == "frozen":
        found, seconds = frozen(settings, train, texts)
    else:
        found, seconds = of_command(settings, files[0], texts, folder, method)
    return {"accuracy": accuracy(found, test), "seconds": round(seconds, 1)}


def measured(settings: argparse.Namespace, name: str, count: int, seed: int, method: str) -> dict:
    folder = settings.output / f"{name}-{count}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "train.jsonl", folder / "test.jsonl"]
    if not files[1].is_file():
        train, test = (lines(settings.data / file) for file in SETS[name])
        names = sorted({label for row in train for label in labels_of(row)})
        some = set(np.random.default_rng(7).permutation(names)[: settings.labels].tolist())
        train, test = with_labels(train, some), with_labels(test, some)
        test = [test[number] for number in np.random.default_rng(7).permutation(len(test))[: settings.test_rows]]
        for file, rows in zip(files, (drawn(train, count, seed), test), strict=True):
            file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    python = settings.setfit if method == "setfit" else sys.executable
    words = [python, __file__, settings.model, "--cell", method, *map(str, files), str(folder / method)]
    words += ["--max-length", str(settings.max_length)] if settings.max_length else []
    words += ["--bf16"] if settings.bf16 else []
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    found = json.loads(done.stdout.splitlines()[-1])
    return {"set": name, "rows": count, "draw": seed, "method": method, **found}


def print_table(cells: list[dict], counts: Sequence[int]) -> None:
    print("| set, rows a label | " + " | ".join(METHODS) + " |\n| --- |" + " --- |" * len(METHODS))
    for name, count in product(SETS, counts):
        texts = []
        for method in METHODS:
            own = [one for one in cells if (one["set"], one["rows"], one["method"]) == (name, count, method)]
            shares = [100 * one["accuracy"] for one in own]
            spread = f" ± {statistics.stdev(shares):.1f}" if len(own) > 1 else ""
            seconds = f", {statistics.mean(one['seconds'] for one in own):.0f} s" if own else ""
            texts.append(f"{statistics.mean(shares):.1f}{spread}{seconds}" if own else "")
        if any(texts):
            print(f"| {name}, {count} | " + " | ".join(texts) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=[*SETS])
    parser.add_argument("--rows", type=int, nargs="+", default=[8], help="of a label")
    parser.add_argument("--draws", type=int, nargs="+", default=[0, 1, 2], help="seeds of the draws")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--labels", type=int, help="of a set, drawn at random (default: all)")
    parser.add_argument("--max-length", type=int, help="of all methods (default: that of each method)")
    parser.add_argument("--bf16", action="store_true", help="mixed precision of all methods")
    parser.add_argument("--test-rows", type=int, default=1000, help="at most")
    parser.add_argument("--setfit", help="the Python of an environment with setfit")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.cell:
        method, *files, folder = settings.cell
        print(json.dumps(cell(method, settings, files, Path(folder))))
        return
    path = settings.output / "cells.jsonl"
    cells = lines(path) if path.is_file() else []
    for count, seed, name, method in product(settings.rows, settings.draws, settings.sets, settings.methods):
        key = {"set": name, "rows": count, "draw": seed, "method": method}
        if any(key.items() <= one.items() for one in cells):
            continue
        cells.append(measured(settings, name, count, seed, method))
        print(cells[-1], flush=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(cells[-1]) + "\n")
    print_table(cells, settings.rows)


if __name__ == "__main__":
    main()
