"""Tokens per second of the data loader compared with the tokens per second of a training step.

    python benchmarks/loader.py CORPUS [--size mini] [--sequences 32] [--workers 0,1,2]

CORPUS is a folder of `mybert corpus`. The loader reads Arrow, masks and packs, as in `mybert pretrain`.
"""

import argparse
import statistics
import time

import torch
from timed_step import Step
from torch.utils.data import DataLoader

from modeling_mybert import NAMED_SIZES, MyBertConfig, MyBertForPreTraining
from mybert.common.machine import hardware, keep_freed_memory
from mybert.common.tables import print_table
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.data.batching import ExampleDataset, PretrainingCollator
from mybert.pretraining.data.epoch_order import EpochSampler, Shuffled
from mybert.pretraining.data.masking import Masker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--size", choices=tuple(NAMED_SIZES), default="mini")
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--workers", default="0,1,2")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    corpus = Corpus.load(arguments.corpus)
    collate = PretrainingCollator(Masker.from_tokenizer(corpus.tokenizer, seed=0))
    examples = ExampleDataset(corpus.train)
    loaders = {
        int(workers): DataLoader(
            examples,
            arguments.sequences,
            sampler=EpochSampler(Shuffled(len(examples), seed=0)),
            collate_fn=collate,
            num_workers=int(workers),
        )
        for workers in arguments.workers.split(",")
    }
    used = consumption(next(iter(loaders[0])), arguments.size, len(corpus.tokenizer))
    rows = [
        (f"{n} workers", r := rate(loader, arguments.batches), f"{r / used:.0f} x") for n, loader in loaders.items()
    ]
    print_table(f"Loader beside a {arguments.size} step ({used:,.0f} tokens/s)", rows, ("", "tokens/s", "ratio"))


def rate(loader: DataLoader, batches: int) -> float:
    """Tokens per second from the second batch on, without the start of the workers."""
    iterator = iter(loader)
    next(iterator)
    begun, tokens = time.perf_counter(), 0
    for _, batch in zip(range(batches), iterator, strict=False):
        tokens += int((batch["input_ids"] != 0).sum())
    return tokens / (time.perf_counter() - begun)


def consumption(batch: dict, size: str, vocabulary: int) -> float:
    keep_freed_memory()
    step = Step(MyBertForPreTraining(MyBertConfig(**NAMED_SIZES[size], vocab_size=vocabulary)), batch, torch.float32)
    step.run()
    return int((batch["input_ids"] != 0).sum()) / statistics.median(step.run() for _ in range(5))


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
