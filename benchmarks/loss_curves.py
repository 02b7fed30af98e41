"""Losses over the same steps from the same weights: MyBERT and transformers' BERT, or bfloat16 and float32.

    python benchmarks/loss_curves.py CORPUS [--steps 200] [--size tiny] [--output benchmarks/results/loss_curves.png]
    python benchmarks/loss_curves.py CORPUS --precisions --steps 2000 --output benchmarks/results/precisions.png

CORPUS is a folder of `mybert corpus`. All models read the same examples with the same masks, with AdamW, warm-up and
clipping as in `mybert pretrain` and dropout 0. By default transformers' BERT reads padded batches and MyBERT packed
batches; their losses agree to rounding. With `--precisions`, three MyBERT models read packed batches: in float32,
with autocast to bfloat16, and with weights and optimizer moments in bfloat16.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from padding import with_padding
from rich.progress import track
from torch import nn
from transformers import BertConfig, BertForPreTraining, get_linear_schedule_with_warmup

from modeling_mybert import NAMED_SIZES, MyBertConfig, MyBertForPreTraining
from mybert.common.machine import keep_freed_memory
from mybert.common.tables import print_table
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.data.batching import ExampleDataset, Examples, PretrainingCollator
from mybert.pretraining.data.epoch_order import EpochSampler, Shuffled
from mybert.pretraining.data.masking import Masker


class Side(NamedTuple):
    """A model, its collator and its precision."""

    name: str
    model: nn.Module
    collate: Callable
    autocast: bool = False


class Curve(NamedTuple):
    """Loss and seconds of each step."""

    losses: list[float]
    seconds: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--precisions", action="store_true")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--size", choices=tuple(NAMED_SIZES), default="tiny")
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", default="benchmarks/results/loss_curves.png")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    corpus = Corpus.load(arguments.corpus)
    shape = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "vocab_size": len(corpus.tokenizer)}
    sides = (precisions if arguments.precisions else beside_bert)(shape | NAMED_SIZES[arguments.size], corpus)
    curves = train(sides, corpus, arguments)
    print_curves(curves, arguments.steps)
    draw(curves, arguments.output)


def beside_bert(shape: dict, corpus: Corpus) -> list[Side]:
    torch.manual_seed(0)
    theirs, ours = BertForPreTraining(BertConfig(**shape)), MyBertForPreTraining(MyBertConfig(**shape))
    ours.load_state_dict(theirs.state_dict())
    return [Side("transformers", theirs, collator(corpus, False)), Side("MyBERT", ours, collator(corpus, True))]


def precisions(shape: dict, corpus: Corpus) -> list[Side]:
    torch.manual_seed(0)
    models = [MyBertForPreTraining(MyBertConfig(**shape)) for _ in range(3)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    models[2].to(torch.bfloat16)
    collate, names = collator(corpus, True), ("float32", "autocast", "bfloat16 weights")
    return [Side(name, model, collate, name == "autocast") for name, model in zip(names, models, strict=True)]


def collator(corpus: Corpus, padding_free: bool) -> Callable[[Examples], dict[str, Any]]:
    packed = PretrainingCollator(Masker.from_tokenizer(corpus.tokenizer, seed=0))
    return packed if padding_free else lambda examples: with_padding(packed(examples))


def train(sides: list[Side], corpus: Corpus, arguments: argparse.Namespace) -> dict[str, Curve]:
    examples = ExampleDataset(corpus.train)
    optimizers = [torch.optim.AdamW(s.model.parameters(), arguments.learning_rate, weight_decay=0.01) for s in sides]
    schedules = [get_linear_schedule_with_warmup(o, arguments.steps // 10, arguments.steps) for o in optimizers]
    keys = iter(EpochSampler(Shuffled(len(examples), seed=0)))
    curves = {side.name: Curve([], []) for side in sides}
    for _ in track(range(arguments.steps)):
        batch = examples.__getitems__([next(keys) for _ in range(arguments.sequences)])
        for side, optimizer, schedule in zip(sides, optimizers, schedules, strict=True):
            inputs, began = side.collate(batch), time.perf_counter()
            with torch.autocast("cpu", torch.bfloat16) if side.autocast else nullcontext():
                loss = side.model.train()(**inputs).loss
            loss.backward()
            nn.utils.clip_grad_norm_(side.model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            curves[side.name].losses.append(loss.item())
            curves[side.name].seconds.append(time.perf_counter() - began)
    return curves


def print_curves(curves: dict[str, Curve], steps: int) -> None:
    """Print the mean of each quarter and the largest difference between the first two curves."""
    losses = [torch.tensor(curve.losses) for curve in curves.values()]
    quarter, rows = math.ceil(steps / 4), []
    for start in range(0, steps, quarter):
        part = slice(start, start + quarter)
        means = [curve[part].mean().item() for curve in losses]
        rows.append((f"from {start + 1}", *means, f"{(losses[0] - losses[1])[part].abs().max():.1e}"))
    rows.append(("seconds a step", *(statistics.median(curve.seconds) for curve in curves.values()), ""))
    first, second = list(curves)[:2]
    print_table("Loss, dropout 0", rows, ("steps", *curves, f"{first} and {second}, largest difference"))


def draw(curves: dict[str, Curve], path: str) -> None:
    figure = Figure(figsize=(6, 3.6), layout="tight")
    axis = figure.subplots()
    for number, (name, curve) in enumerate(curves.items()):
        means = torch.tensor(curve.losses).unfold(0, max(1, len(curve.losses) // 200), 1).mean(1)
        axis.plot(means, label=name, linewidth=3 if number == 0 else 1, alpha=0.5 if number == 0 else 1)
    axis.set(xlabel="step", ylabel="loss", title="same weights, examples and masks, dropout 0")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
