"""Fine-tuning beside transformers: the same weights, recipe, seeds and rows; BERT and Trainer there, MyBERT here.

    python benchmarks/finetuning.py DATA MODEL [--sets sst2 rte …] [--seeds 3] [--rows N] [--dev-rows N] [--dropout 0]

DATA holds a folder for each set, with train.jsonl and dev.jsonl; MODEL is a BERT checkpoint. For each seed
transformers' BERT draws a head, and both sides start from the same saved weights; they train one right after the
other, in turns, on the same features in the same order, without evaluation or checkpoints. Times are those of
`Trainer.train`; scores are of dev.jsonl, decoded alike. Prints a table in Markdown and the largest difference between
the logged losses, which is to be about 0 with `--dropout 0`. Rows are the first of their files; `--rows` and
`--dev-rows` are the most that are trained on and scored.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import transformers
from datasets import Dataset
from transformers import BertConfig, PreTrainedModel, PrinterCallback, Trainer, set_seed

from mybert.common.devices import quiet_loading
from mybert.finetuning.checkpoint import new_task
from mybert.finetuning.inference import logits_of
from mybert.finetuning.reading import read_rows
from mybert.finetuning.settings import FinetuneSettings, FinetuningArguments
from mybert.finetuning.task import Task
from mybert.finetuning.trainer import FinetuningTrainer


class Benchmark(NamedTuple):
    """A set.

    Attributes:
        task: as `--task` has it.
        metric: of the task.
        rows: trained on at most; sets of which a run would take over 20 minutes on two cores are cut.
    """

    task: str
    metric: str
    rows: int


SETS = {
    "sst2": Benchmark("text-classification", "accuracy", 6916),
    "rte": Benchmark("text-classification", "accuracy", 2490),
    "mrpc": Benchmark("text-classification", "f1", 3668),
    "cola": Benchmark("text-classification", "matthews_correlation", 8551),
    "stsb": Benchmark("text-classification", "pearson", 5749),
    "conll2003": Benchmark("token-classification", "f1", 4000),
    "ewt_pos": Benchmark("token-classification", "accuracy", 4000),
    "qa": Benchmark("question-answering", "f1", 1500),
}


class Side(NamedTuple):
    score: float
    seconds: float
    losses: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("model")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--dev-rows", type=int)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--dropout", type=float, default=0.1)
    options = parser.parse_args()
    lines = [compare(name, options) for name in options.sets]
    columns = ("set", "rows, train / dev", "metric", "transformers", "MyBERT", "seconds, transformers", "MyBERT")
    print(f"| {' | '.join((*columns, 'ratio', 'loss difference'))} |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    print("\n".join(lines))


def compare(name: str, options: argparse.Namespace) -> str:
    """One line of the table."""
    benchmark = SETS[name]
    files = [options.data / name / f"{split}.jsonl" for split in ("train", "dev")]
    settings = FinetuneSettings(
        task=benchmark.task, model=options.model, train=str(files[0]), validation=str(files[1]), output="unused"
    )
    task, tokenizer = new_task(settings)
    train = read_rows(settings.train, task, limit=min(benchmark.rows, options.rows or benchmark.rows))
    dev = read_rows(settings.validation, task, limit=options.dev_rows)
    task.configure(train)
    task.config.hidden_dropout_prob = task.config.attention_probs_dropout_prob = options.dropout
    features = task.features(train, tokenizer, training=True)
    found: dict[str, list[Side]] = {"transformers": [], "mybert": []}
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            draw_head(task, options.model, seed, folder)
            sides = {"transformers": (bert_class(task), Trainer), "mybert": (task.head, FinetuningTrainer)}
            for side in sorted(sides, reverse=seed % 2 == 0):
                found[side].append(
                    run(*sides[side], task, benchmark.metric, tokenizer, folder, features, dev, seed, options)
                )
                print(
                    f"{name}, seed {seed}, {side}: {found[side][-1].score:.4f}, {found[side][-1].seconds:.1f} s",
                    flush=True,
                )
    return table_line(name, len(train), len(dev), benchmark.metric, found)


def bert_class(task: Task) -> type[PreTrainedModel]:
    return getattr(transformers, task.head.__name__.replace("MyBert", "Bert"))


def draw_head(task: Task, checkpoint: str, seed: int, folder: str) -> None:
    """Saves the checkpoint under a head of transformers' BERT."""
    labels = {name: getattr(task.config, name) for name in ("id2label", "label2id", "problem_type")}
    dropout = {name: getattr(task.config, name) for name in ("hidden_dropout_prob", "attention_probs_dropout_prob")}
    set_seed(seed)
    with quiet_loading():
        config = BertConfig.from_pretrained(checkpoint, **labels, **dropout)
        bert_class(task).from_pretrained(checkpoint, config=config).save_pretrained(folder)


def run(
    model_class: type[PreTrainedModel],
    trainer_class: type[Trainer],
    task: Task,
    metric: str,
    tokenizer: Any,
    folder: str,
    features: Dataset,
    dev: Dataset,
    seed: int,
    options: argparse.Namespace,
) -> Side:
    arguments = FinetuningArguments(
        output_dir=folder,
        learning_rate=options.learning_rate,
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch_size,
        seed=seed,
        eval_strategy="no",
        save_strategy="no",
        load_best_model_at_end=False,
        logging_steps=1,
        dataloader_pin_memory=False,
        disable_tqdm=True,
    )
    with quiet_loading():
        model = model_class.from_pretrained(folder)
    trainer = trainer_class(
        model=model, args=arguments, train_dataset=features, data_collator=task.collator(tokenizer)
    )
    trainer.remove_callback(PrinterCallback)
    seconds = trainer.train().metrics["train_runtime"]
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    dev_features = task.features(dev, tokenizer, training=False)
    logits = logits_of(model.eval(), task, tokenizer, dev_features)
    task.tune(logits, dev_features, dev)
    scores = task.score(task.decode(logits, dev_features, dev), task.references(dev))
    return Side(scores[metric], seconds, losses)


def table_line(name: str, rows: int, dev_rows: int, metric: str, found: dict[str, list[Side]]) -> str:
    def mean(values: list[float]) -> str:
        deviation = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
        return f"{statistics.mean(values):.4f}{deviation}"

    pairs = list(zip(found["transformers"], found["mybert"], strict=True))
    medians = [statistics.median(side.seconds for side in sides) for sides in zip(*pairs, strict=True)]
    ratio = statistics.median(one.seconds / other.seconds for one, other in pairs)
    difference = max(abs(a - b) for one, other in pairs for a, b in zip(one.losses, other.losses, strict=True))
    scores = [mean([side.score for side in sides]) for sides in zip(*pairs, strict=True)]
    return (
        f"| {name} | {rows:,} / {dev_rows:,} | {metric} | {scores[0]} | {scores[1]} | {medians[0]:.1f} | "
        f"{medians[1]:.1f} | {ratio:.2f} | {difference:.1e} |"
    )


if __name__ == "__main__":
    main()
