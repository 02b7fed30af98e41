"""Fine-tuning compared with transformers' BERT and Trainer: same weights, recipe, seeds and rows.

    python benchmarks/finetuning.py DATA MODEL [--sets sst2 rte …] [--seeds 3] [--scale 1] [--epochs 2] [--threads 2]

DATA contains a folder for each data set, with train.jsonl and dev.jsonl. MODEL is a BERT checkpoint. Both sides read
the same rows: the first rows of train.jsonl after a shuffle with seed 0 (the number in `SETS` times `--scale`), and
the first `--dev-rows` of dev.jsonl after the same shuffle. For each seed, transformers' BERT initialises a head, and
both sides start from the same saved weights. They train alternately, each run in its own process, on the same
features in the same order, without evaluation or checkpoints. Times are those of `Trainer.train`. Scores are computed
on the dev rows with the same decoding. Before that, both sides train a few steps without dropout, where their losses
must agree; questions run one at a time there, because transformers' question-answering loss counts padding.

Prints a Markdown table: scores are mean ± standard deviation over the seeds, times are medians, the ratio is the
median of the seeds' ratios, and the last column is the largest difference between the losses of a step without
dropout.
"""

import argparse
import contextlib
import functools
import multiprocessing
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch
import transformers
from datasets import Dataset, disable_progress_bars
from saved_tables import markdown
from transformers import BertConfig, PreTrainedModel, PrinterCallback, Trainer, set_seed

from mybert.common.machine import hardware, keep_freed_memory
from mybert.finetuning.arguments import FinetuningArguments
from mybert.finetuning.objective import Finetuning
from mybert.finetuning.run_data import new_task
from mybert.finetuning.settings import FinetuneSettings
from mybert.inference.checkpoint import quiet_loading
from mybert.inference.logits import logits_of
from mybert.tasks.base import Task
from mybert.tasks.reading import read_split
from mybert.training.trainer import RunTrainer
from tokenization import MyBertTokenizer


class Benchmark(NamedTuple):
    """One data set.

    Attributes:
        task: value of `--task`.
        metric: name of the metric.
        rows: training rows at `--scale 1`; a run of MiniLM then takes half a minute on two cores.
    """

    task: str
    metric: str
    rows: int


SETS = {
    "sst2": Benchmark("text-classification", "accuracy", 480),
    "rte": Benchmark("text-classification", "accuracy", 160),
    "mrpc": Benchmark("text-classification", "f1", 288),
    "cola": Benchmark("text-classification", "matthews_correlation", 800),
    "stsb": Benchmark("text-classification", "pearson", 320),
    "conll2003": Benchmark("token-classification", "f1", 480),
    "ewt_pos": Benchmark("token-classification", "accuracy", 400),
    "qa": Benchmark("question-answering", "f1", 64),
}
SIDES = ("transformers", "MyBERT")
CHECK_STEPS = 10


class Data(NamedTuple):
    """One data set as read by both sides."""

    task: Task
    tokenizer: MyBertTokenizer
    train_rows: int
    features: Dataset
    dev: Dataset


class Run(NamedTuple):
    """Result of one run; `score` is None if no evaluation was requested."""

    score: float | None
    seconds: float
    losses: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("model")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1, help="of the training rows")
    parser.add_argument("--dev-rows", type=int, default=400)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        pools = {
            side: stack.enter_context(
                ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), prepare, (side, options.threads))
            )
            for side in SIDES
        }
        rows = [compare(name, options, pools) for name in options.sets]
    print(
        f"\n{options.model}: {options.epochs:g} epochs, batches of {options.batch_size}, learning rate "
        f"{options.learning_rate:g}, {options.threads} threads, {time.perf_counter() - began:.0f} seconds in all\n"
    )
    columns = ("set", "rows, train / dev", "metric", *SIDES, "seconds, transformers", "MyBERT", "ratio")
    print(markdown(rows, (*columns, f"losses apart, dropout 0, {CHECK_STEPS} steps")))


def prepare(side: str, threads: int) -> None:
    """Set up a process for one side."""
    torch.set_num_threads(threads)
    disable_progress_bars()
    if side == "MyBERT":
        keep_freed_memory()


def compare(name: str, options: argparse.Namespace, pools: dict[str, ProcessPoolExecutor]) -> tuple[str, ...]:
    """One row of the table."""

    def in_turns(seed: int, check: bool) -> dict[str, Run]:
        with tempfile.TemporaryDirectory() as folder:
            pools["transformers"].submit(draw_head, name, options, seed, folder).result()
            turns = SIDES[:: 1 if seed % 2 else -1]
            found = {s: pools[s].submit(train, s, name, options, seed, folder, check).result() for s in turns}
        for side in () if check else SIDES:
            print(f"{name}, seed {seed}, {side}: {found[side].score:.4f}, {found[side].seconds:.1f} s", flush=True)
        return found

    sizes = pools["MyBERT"].submit(row_counts, name, options).result()
    curves = [run.losses for run in in_turns(0, check=True).values()]
    apart = max(abs(one - other) for one, other in zip(*curves, strict=True))
    found = [in_turns(seed, check=False) for seed in range(options.first_seed, options.first_seed + options.seeds)]
    return table_row(name, sizes, apart, [tuple(runs[side] for side in SIDES) for runs in found])


def row_counts(name: str, options: argparse.Namespace) -> tuple[int, int]:
    data = load(name, options)
    return data.train_rows, len(data.dev)


def load(name: str, options: argparse.Namespace) -> Data:
    return _load(name, str(options.data), options.model, round(SETS[name].rows * options.scale), options.dev_rows)


@functools.lru_cache(1)
def _load(name: str, data: str, model: str, train_rows: int, dev_rows: int) -> Data:
    files = [f"{data}/{name}/{split}.jsonl" for split in ("train", "dev")]
    task, tokenizer = new_task(
        FinetuneSettings(task=SETS[name].task, model=model, train=files[0], validation=files[1], output="unused")
    )
    every_row = [read_split(file, task).rows for file in files]
    task = task.fitted(every_row[0])  # a subset of the rows may lack labels
    train, dev = (
        rows.shuffle(seed=0).select(range(min(count, len(rows))))
        for rows, count in zip(every_row, (train_rows, dev_rows), strict=True)
    )
    return Data(task, tokenizer, len(train), task.features(train, tokenizer, training=True), dev)


def draw_head(name: str, options: argparse.Namespace, seed: int, folder: str) -> None:
    """Save the checkpoint with a head of transformers' BERT."""
    task = load(name, options).task
    labels = {name: getattr(task.config, name) for name in ("id2label", "label2id", "problem_type")}
    set_seed(seed)
    with quiet_loading():
        config = BertConfig.from_pretrained(options.model, **labels)
        bert_class(task).from_pretrained(options.model, config=config).save_pretrained(folder)


def bert_class(task: Task) -> type[PreTrainedModel]:
    return getattr(transformers, task.head.__name__.replace("MyBert", "Bert"))


def train(side: str, name: str, options: argparse.Namespace, seed: int, folder: str, check: bool) -> Run:
    """
    Args:
        check: train a few steps without dropout and without scores.
    """
    task, tokenizer, _, features, dev = load(name, options)
    batch_size = 1 if check and SETS[name].task == "question-answering" else options.batch_size
    arguments = FinetuningArguments(
        output_dir=folder,
        learning_rate=options.learning_rate,
        num_train_epochs=options.epochs,
        max_steps=CHECK_STEPS if check else -1,
        per_device_train_batch_size=batch_size,
        seed=seed,
        eval_strategy="no",
        save_strategy="no",
        load_best_model_at_end=False,
        logging_steps=1,
        dataloader_pin_memory=False,
        disable_tqdm=True,
    )
    model_class, trainer_class = (bert_class(task), Trainer) if side == "transformers" else (task.head, RunTrainer)
    ours = {} if side == "transformers" else {"objective": Finetuning()}  # as `mybert finetune`
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0} if check else {}
    with quiet_loading():
        model = model_class.from_pretrained(folder, **dropout)
    trainer = trainer_class(
        model=model, args=arguments, train_dataset=features, data_collator=task.collator(tokenizer), **ours
    )
    trainer.remove_callback(PrinterCallback)
    seconds = trainer.train().metrics["train_runtime"]
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    return Run(None if check else score(model.eval(), task, tokenizer, dev)[SETS[name].metric], seconds, losses)


def score(model: PreTrainedModel, task: Task, tokenizer: MyBertTokenizer, dev: Dataset) -> dict[str, float]:
    features = task.features(dev, tokenizer, training=False)
    logits = logits_of(model, task, tokenizer, features)
    task = task.with_config(**task.tuned(logits, features, dev))
    return task.score(task.decode(logits, features, dev), task.references(dev))


def table_row(name: str, sizes: tuple[int, int], apart: float, pairs: list[tuple[Run, Run]]) -> tuple[str, ...]:
    def mean(values: list[float]) -> str:
        deviation = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
        return f"{statistics.mean(values):.4f}{deviation}"

    scores = [mean([run.score for run in side]) for side in zip(*pairs, strict=True)]
    medians = [f"{statistics.median(run.seconds for run in side):.1f}" for side in zip(*pairs, strict=True)]
    ratio = statistics.median(one.seconds / other.seconds for one, other in pairs)
    cells = (name, f"{sizes[0]:,} / {sizes[1]:,}", SETS[name].metric, *scores, *medians)
    return (*cells, f"{ratio:.2f}", f"{apart:.1e}")


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
