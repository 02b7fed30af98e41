"""Training step of MyBERT compared with transformers' BERT: same weights, same examples, ratio of medians.

    python benchmarks/training_step.py [--rows mini-full,base-ragged,…] [--dtypes float32] [--pairs 5] [--threads 2]
    python benchmarks/training_step.py --device cuda --rows base:64:512:512 --dtypes bfloat16 --repeats 10 \
        --sides "transformers sdpa,MyBERT sdpa,MyBERT varlen_attn compiled" --attention-dropout 0

A row is one of `ROWS`, or SIZE:SEQUENCES:SHORTEST:LONGEST. A side is a library, an attention backend, and `compiled`
for `torch.compile` of the model or `layers compiled` for that of each encoder layer, which takes seconds. Both
libraries train on masked tokens and next sentences (in the `finetune` row on one label per sentence) with dropout 0.1
and fused AdamW. transformers reads batches padded to their longest sequence. MyBERT reads packed batches from its
collator; in fine-tuning both read the same padded batch. Mixed lengths differ in each round of steps, as in training,
where kernels compiled for one shape meet new shapes. Before any timing, losses and gradients of both libraries are
compared without dropout. Each side then runs in its own process, alternating. MyBERT keeps freed memory, as its
commands do (`--keep-memory` both|neither runs the comparison without that). The first steps, which allocate memory
and compile kernels, are not counted.

On a GPU a measurement is `--repeats` steps after one that is not counted, between two synchronisations. The sides run
one after the other, so that each has all of the memory, and `--kernels` lists where their time goes. A side that fails
is reported and left out; a run that is stopped by SIGTERM keeps what it has measured.

Useful work is the same for all sides: matrix products on real tokens, in the last layer and the heads only on tokens
whose output is used, times three for forward and backward pass. Its rate is compared with the rate of plain matrix
products of the model's shapes, measured in the same run, and with the peak of the GPU's data sheet (MFU).
"""

import argparse
import functools
import signal
import statistics
import sys
from collections.abc import Callable

import numpy as np
import torch
from padding import with_padding
from rich.progress import track
from saved_tables import save_table
from sides import Sides, process_context
from timed_step import Step, bare_rate, device_peak, on_device, useful_flops
from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification

from modeling_mybert import NAMED_SIZES, MyBertConfig, MyBertForPreTraining, MyBertForSequenceClassification
from mybert.common.machine import hardware, keep_freed_memory
from mybert.common.tables import format_cell
from mybert.corpus.text.sentences import sentence_splitter
from mybert.io.documents import read_documents
from mybert.pretraining.data.batching import Examples, PretrainingCollator
from mybert.pretraining.data.masking import Masker

ROWS = {
    "mini-full": ("mini", 32, 128, 128),
    "mini-ragged": ("mini", 32, 16, 128),
    "base-full": ("base", 16, 128, 128),
    "base-ragged": ("base", 16, 16, 128),
    "base-long": ("base", 4, 128, 512),
    "finetune": ("base", 16, None, None),
}
COMPARED = 4  # sequences of the comparison before any timing
PRELOADED = [  # imported once, by the process from which those of the sides are forked
    *("torch._inductor.compile_fx", "transformers.models.bert.modeling_bert", "modeling_mybert"),
    *("mybert.io.documents", "mybert.pretraining.data.batching", "mybert.pretraining.planning.flops_and_memory"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--sides", default="transformers sdpa,MyBERT sdpa")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=5, help="rounds in which all sides take turns")
    parser.add_argument("--warm-up", type=int, default=20, help="steps of each side before")
    parser.add_argument("--repeats", type=int, default=1, help="steps of a measurement, on the same batch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--attention-dropout", type=float, default=0.1)
    parser.add_argument("--keep-memory", choices=("ours", "both", "neither"), default="ours")
    parser.add_argument("--text", default="python-docs", help="what the sentences of `finetune` are taken from")
    parser.add_argument(
        "--kernels", type=int, default=0, help="how many of the longest kernels to list, for each side"
    )
    parser.add_argument("--markdown", help="file to which the tables are added")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped: the time is over"))
    torch.set_num_threads(arguments.threads)
    where = f"{arguments.threads} threads" if arguments.device == "cpu" else arguments.device
    columns = ("side", "s/step", "times as fast", "tokens/s", "GFLOP/s", "of plain products", "MFU", "memory, GiB")
    for dtype in arguments.dtypes.split(","):
        for row in arguments.rows.split(","):
            measured = Measured(arguments.sides.split(","))
            try:
                measure(row, getattr(torch, dtype), arguments, measured)
            finally:
                table, work = measured.table(arguments.device, getattr(torch, dtype))
                title = f"Training step {row}, {dtype}, {work}, torch {torch.__version__}, {where}"
                save_table(arguments.markdown, title, table, columns)
                for name, kernels in measured.kernels.items():
                    title = f"{name}, {row}, {dtype}: milliseconds per step of the longest kernels"
                    save_table(arguments.markdown, title, kernels, ("kernel", "calls", "ms", "share of the step"))


class Measured:
    """What has been measured of the sides `names`."""

    def __init__(self, names: list[str]):
        self.names, self.problem = names, ""
        self.seconds, self.memory = {name: [] for name in names}, dict.fromkeys(names)
        self.failures, self.kernels = {}, {}
        self.rates, self.flops, self.tokens = [], [], []

    def table(self, device: str, dtype: torch.dtype) -> tuple[list[tuple], str]:
        """A line for each side, and the work of a step in words."""
        if not self.tokens:
            return [(name, self.failures.get(name, "not measured"), *[None] * 6) for name in self.names], "no step"
        medians = {name: statistics.median(x) for name, x in self.seconds.items() if x and name not in self.failures}
        work, rate, count = statistics.mean(self.flops), statistics.median(self.rates), statistics.mean(self.tokens)
        peak = device_peak(device, dtype)
        table = []
        for name in self.names:
            if (mine := medians.get(name)) is None:
                table.append((name, self.failures.get(name, "not measured"), *[None] * 6))
                continue
            ratio = f"{medians[self.names[0]] / mine:.2f}" if self.names[0] in medians else None
            shares = f"{work / mine / rate:.0%}", f"{work / mine / peak:.1%}" if peak else None
            table.append((name, mine, ratio, round(count / mine), work / mine / 1e9, *shares, self.memory[name]))
        useful, plain = format_cell(work / 1e9), format_cell(rate / 1e9)
        words = f"{count:,.0f} tokens, {useful} useful GFLOP, plain products {plain} GFLOP/s"
        return table, f"{words}{self.problem}"


def measure(row: str, dtype: torch.dtype, arguments: argparse.Namespace, measured: Measured) -> None:
    on_gpu = arguments.device != "cpu"
    models, batches, _ = make(row, arguments.text, COMPARED)
    try:
        compare(*(model.to(arguments.device) for model in models), *(on_device(b, arguments.device) for b in batches))
    except AssertionError as error:
        if not on_gpu:
            raise
        measured.problem = f", GRADIENTS OR LOSSES DIFFER: {' '.join(str(error).split())[:200]}"
    config = models[1].config
    del models
    if on_gpu:
        torch.cuda.empty_cache()
    for names in [[name] for name in measured.names] if on_gpu else [measured.names]:
        take_turns(names, row, dtype, arguments, config, measured)


def take_turns(names: list[str], row: str, dtype: torch.dtype, arguments, config, measured: Measured) -> None:
    inputs = {name: (name, row, dtype, arguments) for name in names}
    with Sides(process_context(arguments.device, PRELOADED), prepare, inputs, measured.failures) as sides:

        def run(name: str, number: int) -> None:
            if found := sides.ask(name, steps, number, arguments.repeats):
                measured.seconds[name].append(found[0])
                measured.memory[name] = found[1]

        for name in names:
            for number in range(arguments.pairs + 1, arguments.pairs + 1 + arguments.warm_up):
                run(name, number)
            measured.seconds[name].clear()
        for number in track(range(1, 1 + arguments.pairs), description=f"{row} {dtype}"):
            for name in names:
                run(name, number)
            (padded, _), lengths = draw(row, arguments.text, number)
            labelled = 0 if row == "finetune" else int((padded["labels"] != -100).sum())
            measured.flops.append(useful_flops(lengths, config, labelled))
            measured.tokens.append(int(lengths.sum()))
            measured.rates.append(bare_rate(measured.tokens[-1], config, dtype, arguments.device))
            if arguments.device != "cpu":
                torch.cuda.empty_cache()  # the sides need the memory
        for name in names:
            if arguments.kernels and name not in measured.failures:
                found = sides.ask(name, longest_kernels, arguments.kernels)
                measured.kernels[name] = found or [(measured.failures.pop(name), *[None] * 3)]
            if arguments.device != "cpu":
                print(name, measured.failures.get(name) or measured.seconds[name], flush=True)


def shape_of(row: str) -> tuple[str, int, int | None, int | None]:
    """Size, sequences, shortest and longest of a row of `ROWS` or SIZE:SEQUENCES:SHORTEST:LONGEST."""
    if row in ROWS:
        return ROWS[row]
    size, *numbers = row.split(":")
    return size, *map(int, numbers)


def make(row: str, text: str, at_most: int | None = None) -> tuple[tuple, tuple, torch.Tensor]:
    """Both models with the same weights and no dropout, the first batch of each, and its lengths."""
    size, _, shortest, _ = shape_of(row)
    torch.manual_seed(0)
    shape = {**NAMED_SIZES[size], "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    finetune = shortest is None
    theirs = (BertForSequenceClassification if finetune else BertForPreTraining)(BertConfig(**shape))
    ours = (MyBertForSequenceClassification if finetune else MyBertForPreTraining)(MyBertConfig(**shape))
    ours.load_state_dict(theirs.state_dict())
    return (theirs, ours), *draw(row, text, 0, at_most)


def draw(row: str, text: str, number: int, at_most: int | None = None) -> tuple[tuple[dict, dict], torch.Tensor]:
    """A batch for each library and its lengths."""
    _, sequences, shortest, longest = shape_of(row)
    torch.manual_seed(number)
    if finetune := shortest is None:
        lengths = torch.tensor(sentence_lengths(text, sequences)[number]).clamp(max=128)
    else:
        lengths = torch.randint(shortest, longest + 1, (sequences,))
        lengths[0] = longest
    lengths = lengths[:at_most]
    padded, packed = batches(lengths, finetune)
    return (padded, padded if finetune else packed), lengths


def prepare(name: str, row: str, dtype: torch.dtype, arguments: argparse.Namespace) -> tuple[Step, Callable]:
    """The model of a side in its process, and a function from the number of a batch to the batch."""
    library, backend, *compiled = name.split()
    ours = library == "MyBERT"
    torch.set_num_threads(arguments.threads)
    if arguments.keep_memory == "both" or (arguments.keep_memory == "ours" and ours):
        keep_freed_memory()
    models, batches, _ = make(row, arguments.text, COMPARED)
    models[ours].set_attn_implementation(backend)
    step = Step(models[ours], batches[ours], dtype, arguments.device)
    step.dropout(0.1, arguments.attention_dropout)
    # on the CPU this checks the graph only: compiling C++ takes minutes and gains nothing
    compiler = "aot_eager" if arguments.device == "cpu" else "inductor"
    for module in step.model.base_model.encoder.layer if "layers" in compiled else [step.model] * len(compiled):
        module.compile(backend=compiler)
    return step, lambda number: draw(row, arguments.text, number)[0][ours]


def steps(side: tuple[Step, Callable], number: int, repeats: int) -> tuple[float, float | None]:
    """Seconds and GiB of steps on the batch with a given number."""
    step, batch_of = side
    step.batch = on_device(batch_of(number), step.device)
    return step.measure(repeats)


def longest_kernels(side: tuple[Step, Callable], count: int) -> list[tuple]:
    return side[0].longest_kernels(count)


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
    packed = PretrainingCollator(masker)(examples)
    rows = with_padding(packed)
    if finetune:
        rows["labels"] = rows.pop("next_sentence_label")
        return rows, {}
    return rows, packed


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


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
