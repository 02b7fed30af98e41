"""Training step of MyBERT compared with transformers' BERT: same weights, same examples, ratio of medians.

    python benchmarks/training_step.py [--rows mini-full,base-ragged,…] [--dtypes float32] [--pairs 5] [--threads 2]

Both sides train on masked tokens and next sentences (in the `finetune` row on one label per sentence) with sdpa
attention, dropout 0.1 and fused AdamW. transformers reads batches padded to their longest sequence. MyBERT reads
packed batches from its collator; in fine-tuning both read the same padded batch. Mixed lengths differ in each pair of
steps, as in training, where kernels compiled for one shape meet new shapes. Before any timing, losses and gradients
of both sides are compared without dropout. Each side then runs in its own process, alternating. MyBERT keeps freed
memory, as its commands do (`--keep-memory` both|neither runs the comparison without that). The first steps, which
allocate memory and compile kernels, are not counted.

Useful work is the same for both sides: matrix products on real tokens, in the last layer and the heads only on tokens
whose output is used, times three for forward and backward pass. Its rate is compared with the rate of plain matrix
products of the model's shapes, measured in the same run.
"""

import argparse
import contextlib
import functools
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from rich.progress import track
from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification

from modeling_mybert import NAMED_SIZES, MyBertConfig, MyBertForPreTraining, MyBertForSequenceClassification
from mybert.common.memory_allocator import keep_freed_memory
from mybert.common.tables import print_table
from mybert.corpus.text.sentences import sentence_splitter
from mybert.io.documents import read_documents
from mybert.pretraining.data.batching import Examples, PretrainingCollator
from mybert.pretraining.data.masking import Masker
from mybert.pretraining.planning.flops_and_memory import ModelCosts

ROWS = {
    "mini-full": ("mini", 32, 128, 128),
    "mini-ragged": ("mini", 32, 16, 128),
    "base-full": ("base", 16, 128, 128),
    "base-ragged": ("base", 16, 16, 128),
    "base-long": ("base", 4, 128, 512),
    "finetune": ("base", 16, None, None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=20, help="steps of each side before")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--keep-memory", choices=("ours", "both", "neither"), default="ours")
    parser.add_argument("--text", default="python-docs", help="what the sentences of `finetune` are taken from")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    table = [
        measure(row, getattr(torch, dtype), arguments)
        for dtype in arguments.dtypes.split(",")
        for row in arguments.rows.split(",")
    ]
    columns = ("work", "dtype", "transformers s", "MyBERT s", "ratio", "GFLOP", "GFLOP/s", "bare GFLOP/s", "share")
    print_table(f"Training step, torch {torch.__version__}, {arguments.threads} threads", table, columns)


def measure(row: str, dtype: torch.dtype, arguments: argparse.Namespace) -> tuple:
    models, batches, _ = make(row, arguments.text)
    compare(*models, *batches)
    config = models[1].config
    del models
    keep = {"ours": (False, True), "both": (True, True), "neither": (False, False)}[arguments.keep_memory]
    with contextlib.ExitStack() as stack:
        sides = [
            stack.enter_context(side(i, row, dtype, arguments.text, arguments.threads, keep[i])) for i in range(2)
        ]
        for run in sides:
            for number in range(arguments.pairs + 1, arguments.pairs + 1 + arguments.warm_up):
                run(number)
        seconds, rates, flops = ([], []), [], []
        for number in track(range(1, 1 + arguments.pairs), description=f"{row} {dtype}"):
            for kept, run in zip(seconds, sides, strict=True):
                kept.append(run(number))
            (padded, _), lengths = draw(row, arguments.text, number)
            flops.append(
                useful_flops(lengths, config, 0 if row == "finetune" else int((padded["labels"] != -100).sum()))
            )
            rates.append(bare_rate(int(lengths.sum()), config, dtype))
    peer, mine = map(statistics.median, seconds)
    work, rate = statistics.mean(flops), statistics.median(rates)
    print(f"{row} {dtype}: {peer / mine:.2f}, {work / mine / rate:.0%} of the bare rate")
    return (
        *(row, str(dtype).removeprefix("torch."), peer, mine, f"{peer / mine:.2f}"),
        *(work / 1e9, work / mine / 1e9, rate / 1e9, f"{work / mine / rate:.0%}"),
    )


def make(row: str, text: str) -> tuple[tuple, tuple, torch.Tensor]:
    """Both models with the same weights and no dropout, the first batch of each, and its lengths."""
    size, _, shortest, _ = ROWS[row]
    torch.manual_seed(0)
    shape = {**NAMED_SIZES[size], "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    finetune = shortest is None
    theirs = (BertForSequenceClassification if finetune else BertForPreTraining)(BertConfig(**shape))
    ours = (MyBertForSequenceClassification if finetune else MyBertForPreTraining)(MyBertConfig(**shape))
    ours.load_state_dict(theirs.state_dict())
    return (theirs, ours), *draw(row, text, 0)


def draw(row: str, text: str, number: int) -> tuple[tuple[dict, dict], torch.Tensor]:
    """A batch for each side and its lengths."""
    _, sequences, shortest, longest = ROWS[row]
    torch.manual_seed(number)
    if finetune := shortest is None:
        lengths = torch.tensor(sentence_lengths(text, sequences)[number]).clamp(max=128)
    else:
        lengths = torch.randint(shortest, longest + 1, (sequences,))
        lengths[0] = longest
    padded, packed = batches(lengths, finetune)
    return (padded, padded if finetune else packed), lengths


@contextlib.contextmanager
def side(side: int, *choices) -> Iterator[Callable[[int], float]]:
    """A process that runs one step on the batch with a given number and returns its seconds."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there, side, *choices), daemon=True)
    process.start()

    def run(number: int) -> float:
        here.send(number)
        return here.recv()

    yield run
    process.kill()
    process.join()


def serve(pipe, side: int, row: str, dtype: torch.dtype, text: str, threads: int, keep: bool) -> None:
    torch.set_num_threads(threads)
    if keep:
        keep_freed_memory()
    models, batches, _ = make(row, text)
    step = Step(models[side], batches[side], dtype)
    del models
    step.dropout(0.1)
    while True:
        step.batch = draw(row, text, pipe.recv())[0][side]
        pipe.send(step.run())


class Step:
    """Optimizer steps on `batch`."""

    def __init__(self, model, batch: dict, dtype: torch.dtype):
        self.model, self.batch = model.train(), batch
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
        self.autocast = torch.autocast("cpu", dtype) if dtype != torch.float32 else contextlib.nullcontext()

    def dropout(self, p: float) -> None:
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            setattr(self.model.config, name, p)
        for module in self.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = p
            if isinstance(getattr(module, "dropout_prob", None), float):
                module.dropout_prob = p

    def run(self) -> float:
        begun = time.perf_counter()
        with self.autocast:
            loss = self.model(**self.batch).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - begun


def batches(lengths: torch.Tensor, finetune: bool, vocabulary: int = 30522) -> tuple[dict, dict]:
    """The same sequences padded for transformers and packed for MyBERT, 15% of their tokens labelled."""
    number = np.arange(len(lengths))
    ordinary = np.arange(vocabulary) >= 5
    masker = Masker(ordinary, np.zeros(vocabulary, dtype=bool), np.flatnonzero(ordinary), mask_token_id=4)
    examples = Examples(
        input_ids=torch.randint(5, vocabulary, (int(lengths.sum()),)).numpy(),
        token_type_ids=np.concatenate([np.arange(length) > length // 2 for length in lengths.tolist()]),
        lengths=lengths.numpy(),
        next_sentence_label=number % 2,
        epochs=number * 0,
        indices=number,
    )
    padded = PretrainingCollator(masker, padding_free=False)(examples)
    del padded["masked_lm_positions"]  # BERT has no such argument
    if finetune:
        padded["labels"] = padded.pop("next_sentence_label")
        return padded, {}
    return padded, PretrainingCollator(masker)(examples)


@functools.cache
def sentence_lengths(text: str, count: int) -> list[list[int]]:
    """Sentence lengths of each batch: words plus two special tokens, sampled evenly from a text."""
    split = sentence_splitter("en")
    found = []
    for document in read_documents([text]):
        found += [len(sentence.split()) + 2 for sentence in split(document.text)]
        if len(found) > 1000 * count:
            break
    step = len(found) // count
    return [found[first::step][:count] for first in range(step)]


def compare(theirs, ours, padded: dict, packed: dict) -> None:
    """Check that loss and gradients of both sides agree without dropout."""
    losses = [model.train()(**batch).loss for model, batch in ((theirs, padded), (ours, packed))]
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-5)
    for loss in losses:
        loss.backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    rounding = 1e-4 * max(gradient.norm() for gradient in gradients.values())  # all of the gradient of a key bias
    for name, parameter in ours.named_parameters():
        off = (parameter.grad - gradients[name]).norm() / (gradients[name].norm() + rounding)
        assert off < 1e-3, f"{name}: gradients differ by {off:.1e} of their norm"
    theirs.zero_grad()
    ours.zero_grad()


def useful_flops(lengths: torch.Tensor, config, labelled: int) -> float:
    tokens, squares = int(lengths.sum()), int((lengths**2).sum())
    costs = ModelCosts(config, tokens / len(lengths), squares / tokens, labelled / tokens, has_pairs=True)
    return tokens * costs.flops_per_token


def bare_rate(tokens: int, config, dtype: torch.dtype) -> float:
    """FLOP/s of the matrix products of one layer, as (tokens, in) × (in, out)."""
    hidden, wide = config.hidden_size, config.intermediate_size
    shapes = [(hidden, hidden)] * 4 + [(hidden, wide), (wide, hidden)]
    operands = [(torch.randn(tokens, a, dtype=dtype), torch.randn(a, b, dtype=dtype)) for a, b in shapes]
    outputs = [torch.empty(tokens, b, dtype=dtype) for _, b in shapes]
    spent = []
    for _ in range(4):
        begun = time.perf_counter()
        for (x, y), out in zip(operands, outputs, strict=True):
            torch.mm(x, y, out=out)
        spent.append(time.perf_counter() - begun)
    return sum(2 * tokens * a * b for a, b in shapes) / statistics.median(spent)


if __name__ == "__main__":
    main()
