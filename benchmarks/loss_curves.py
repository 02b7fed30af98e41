"""The loss of MyBERT beside transformers' BERT over the same steps, dropout 0: they coincide to rounding.

    python benchmarks/loss_curves.py CORPUS [--steps 200] [--size tiny] [--output benchmarks/loss_curves.png]

CORPUS is a folder of `mybert corpus`. Both start from the same weights and read the same examples with the same masks,
transformers padded, MyBERT packed, with AdamW, warm-up and clipping as in `mybert pretrain`.
"""

import argparse

import torch
from matplotlib.figure import Figure
from rich.progress import track
from transformers import BertConfig, BertForPreTraining, get_linear_schedule_with_warmup

from modeling_mybert import NAMED_SIZES, MyBertConfig, MyBertForPreTraining
from mybert.common.table import print_table
from mybert.pretraining.batching import EpochSampler, ExampleDataset, PretrainingCollator
from mybert.pretraining.inputs import Corpus
from mybert.pretraining.masking import Masker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--size", choices=tuple(NAMED_SIZES), default="tiny")
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", default="benchmarks/loss_curves.png")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    curves = train(arguments)
    theirs, ours = map(torch.tensor, curves)
    rows = []
    for start in range(0, arguments.steps, 50):
        part = slice(start, start + 50)
        means = (curve[part].mean().item() for curve in (theirs, ours))
        rows.append((f"from {start + 1}", *means, f"{(theirs - ours)[part].abs().max():.1e}"))
    print_table("Loss, dropout 0", rows, ("steps", "transformers", "MyBERT", "furthest apart"))
    draw(*curves, arguments.output)


def train(arguments: argparse.Namespace) -> tuple[list[float], list[float]]:
    corpus = Corpus.load(arguments.corpus)
    shape = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "vocab_size": len(corpus.tokenizer)}
    shape |= NAMED_SIZES[arguments.size]
    torch.manual_seed(0)
    models = BertForPreTraining(BertConfig(**shape)), MyBertForPreTraining(MyBertConfig(**shape))
    models[1].load_state_dict(models[0].state_dict())
    masker, examples = Masker.from_tokenizer(corpus.tokenizer, seed=0), ExampleDataset(corpus.train)
    collators = [PretrainingCollator(masker, padding_free, 0) for padding_free in (False, True)]
    optimizers = [torch.optim.AdamW(m.parameters(), lr=arguments.learning_rate, weight_decay=0.01) for m in models]
    schedules = [get_linear_schedule_with_warmup(o, arguments.steps // 10, arguments.steps) for o in optimizers]
    keys = iter(EpochSampler(len(examples), seed=0))
    losses = ([], [])
    for _ in track(range(arguments.steps)):
        batch = examples.__getitems__([next(keys) for _ in range(arguments.sequences)])
        sides = zip(losses, models, collators, optimizers, schedules, strict=True)
        for kept, model, collate, optimizer, schedule in sides:
            loss = model.train()(**collate(batch)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            kept.append(loss.item())
    return losses


def draw(theirs: list[float], ours: list[float], path: str) -> None:
    figure = Figure(figsize=(6, 3.6), layout="tight")
    axis = figure.subplots()
    axis.plot(theirs, label="transformers", linewidth=3, alpha=0.5)
    axis.plot(ours, label="MyBERT", linewidth=1)
    axis.set(xlabel="step", ylabel="loss", title="same weights, examples and masks, dropout 0")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
