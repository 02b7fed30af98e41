"""`mybert plan`: time, memory, traffic and price of a pretraining run on given devices, by arithmetic.

With a time budget, sizes and optimizers are compared; on this machine by measured steps.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import torch

from mybert.common.quantities import Quantity, duration, with_unit
from mybert.common.tables import print_table
from mybert.corpus.disk_budget import TOKENS_A_BYTE, examples_bytes
from mybert.corpus.examples.blocks import example_schema
from mybert.pretraining.arguments import PretrainingArguments
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.planning.candidates import (
    FLOAT,
    effective_tokens,
    measuring_seconds,
    most_tokens_of,
    types_to_compare,
)
from mybert.pretraining.planning.flops_and_memory import CorpusShape, count_parameters
from mybert.pretraining.planning.measurement import StepTimes, measure_steps
from mybert.pretraining.planning.parallel_configs import ParallelConfig, parallel_configs
from mybert.pretraining.planning.rules import with_schedule
from mybert.pretraining.planning.scaling_law import in_words, scaling_law
from mybert.pretraining.planning.settings import PlanSettings
from mybert.pretraining.settings import PretrainingOptions, PretrainSettings
from mybert.training.arguments import bfloat16_is_faster
from mybert.training.speed import measure_peak
from tokenization import SPECIAL_TOKENS, MyBertTokenizer

_BILLION = 10**9
_RANDOM = 512  # examples of random tokens
_CHECKPOINTS = (PretrainingOptions.save_total_limit or 0) + 1  # one more while it is written


def main(settings: PlanSettings) -> None:
    is_measured = settings.peak_flops is None
    if is_measured:
        settings = _on_this_machine(settings)
    if settings.time_budget is not None:
        print_budget(settings, settings.time_budget, is_measured)
        return
    combinations = [(size, devices) for size in settings.size for devices in settings.devices]
    if len(combinations) > 1:
        print_overview(settings, combinations)
    else:
        print_details(parallel_configs(settings, *combinations[0]))
    print_disk(settings)


def _on_this_machine(settings: PlanSettings) -> PlanSettings:
    """The settings with the measured peak, and with bfloat16 only if it is faster here."""
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    half = settings.bf16 and (device.type not in ("cpu", "cuda") or bfloat16_is_faster(device))
    peak = measure_peak(device, torch.bfloat16 if half else torch.float32)
    return dataclasses.replace(settings, bf16=half, peak_flops=Quantity(peak))


def print_budget(settings: PlanSettings, budget: float, is_measured: bool) -> None:
    """Prints the expected result of each size and optimizer in the time budget, and the lowest expected loss."""
    rows: list[tuple[str, ...]] = []
    losses: dict[str, float] = {}
    for size in settings.size:
        config = parallel_configs(settings, size, settings.devices[0])[0]
        encoder = count_parameters(config.costs.config)["encoder"]
        times = _measured_times(config, budget) if is_measured and settings.devices[0] == 1 else None
        for optimizer in ("muon", "adamw"):
            speed = config.muon_tokens_per_second if optimizer == "muon" else config.tokens_per_second
            if times is not None:
                speed = max(
                    times.tokens_per_second(
                        dtype, optimizer, config.forward_tokens, settings.gradient_accumulation_steps
                    )
                    for dtype in times.gradients
                )
            assert speed is not None  # the first configuration is not sharded
            tokens = min(speed * budget, most_tokens_of(settings.tokens))
            counted = effective_tokens(tokens, optimizer)
            expected = scaling_law().expectation(encoder, counted, settings.tokens, settings.vocab_size)
            losses[f"{size} with {optimizer}"] = expected["mlm_loss"]
            numbers = with_unit(speed, ""), with_unit(tokens, ""), f"{tokens / settings.tokens:.1f}"
            rows.append((size, optimizer, *numbers, in_words(expected)))
    columns = ("size", "optimizer", "tokens/s", "tokens", "passes", "expected on held-out documents (95% interval)")
    title = f"{with_unit(settings.tokens, ' tokens')}, {duration(budget)} of training"
    print_table(f"{title}, {'measured on this machine' if is_measured else 'by arithmetic'}", rows, columns)
    print(f"lowest expected loss: {min(losses, key=losses.__getitem__)}")


def random_corpus(vocab_size: int, length: int) -> Corpus:
    """Pairs of random tokens, all of one length, to measure without a text."""
    words = [*SPECIAL_TOKENS, *(f"w{number}" for number in range(max(vocab_size - len(SPECIAL_TOKENS), 1)))]
    ids = np.random.default_rng(0).integers(len(SPECIAL_TOKENS), len(words), (_RANDOM, length))
    columns = {
        "input_ids": list(ids),
        "token_type_ids": list(np.zeros_like(ids)),
        "next_sentence_label": [0] * _RANDOM,
    }
    train = datasets.Dataset(pa.table(columns, schema=example_schema(nsp=True)))
    return Corpus(Path(), train, None, MyBertTokenizer(words), CorpusShape.of(np.full(_RANDOM, length)))


def _measured_times(config: ParallelConfig, budget: float) -> StepTimes:
    """Of a size on this machine, with random tokens."""
    settings = config.settings
    corpus = random_corpus(settings.vocab_size, settings.max_length)
    arguments = PretrainingArguments(output_dir="plan")
    trial = with_schedule(PretrainSettings(output="plan", corpus="plan", size=config.size), (), settings.max_length)
    types = [dtype for dtype in types_to_compare(arguments, is_given=False) if dtype == FLOAT or settings.bf16]
    limit = measuring_seconds(budget, settings.size.index(config.size))
    return measure_steps(
        trial, arguments, corpus, config.forward_tokens, limit, types=types, optimizers=["muon", "adamw"]
    )


def print_overview(settings: PlanSettings, combinations: Iterable[tuple[str, int]]) -> None:
    """Prints a line for each combination, in the fastest configuration that fits."""
    total, rows = settings.tokens * settings.num_train_epochs, []
    for size, devices in combinations:
        choices = parallel_configs(settings, size, devices)
        config = next((choice for choice in choices if choice.fits), choices[-1])
        rows.append(
            (
                *(size, devices, config.name if config.fits else "does not fit"),
                with_unit(sum(config.memory.values()), "B"),
                with_unit(config.traffic, "B"),
                with_unit(config.tokens_per_second, ""),
                f"{config.seconds(_BILLION) / 3600:.3g}",
                f"{config.seconds(total) / 3600:.3g}",
                *([] if settings.price is None else [f"{config.price(_BILLION):,.2f}", f"{config.price(total):,.0f}"]),
            )
        )
    columns = ["size", "devices", "mode", "memory", "sent", "tokens/s", "1B, h", "total, h"]
    columns += [] if settings.price is None else ["1B, price", "total, price"]
    print_table(f"{with_unit(total, ' tokens')} of training", rows, columns)


def print_details(choices: list[ParallelConfig]) -> None:
    """Prints one combination in full, a column for each configuration."""
    first = choices[0]
    settings, costs = first.settings, first.costs
    total = settings.tokens * settings.num_train_epochs
    flops = costs.flops_by_part()
    of_parts = flops.items()
    operations: list[tuple[str, str, str | None]] = [
        *((part, with_unit(value, "FLOP"), f"{value / costs.flops_per_token:.1%}") for part, value in of_parts),
        ("useful, total", with_unit(costs.flops_per_token, "FLOP"), "100.0%"),
        ("checkpointing adds", with_unit(costs.recomputed_per_token, "FLOP"), None),
    ]
    print_table(f"{first.size}, {costs.parameters:,} parameters", operations, ("operations", "per token", "share"))
    names = [config.name for config in choices]
    parts = [config.memory for config in choices]
    rows = [[part, *(with_unit(memory[part], "B") for memory in parts)] for part in parts[0]]
    rows.append(["total", *(with_unit(sum(memory.values()), "B") for memory in parts)])
    if settings.memory is not None:
        rows.append(
            [f"fits {with_unit(settings.memory, 'B')}", *("yes" if config.fits else "no" for config in choices)]
        )
    print_table(
        "Memory of the device" if first.devices == 1 else f"Memory per device, {first.devices:,} devices",
        rows,
        ["component", *names],
    )
    lines = {
        "tokens per step": lambda config: f"{config.step_tokens:,}",
        "steps": lambda config: f"{max(total / config.step_tokens, 1):,.0f}",
        "sent per step": lambda config: with_unit(config.traffic, "B"),
        "computing, s per step": lambda config: f"{config.compute_seconds:.3g}",
        "sending, s per step": lambda config: f"{config.send_seconds:.3g}",
        "tokens per second": lambda config: f"{config.tokens_per_second:,.0f}",
        "tokens per second, Muon": lambda config: (
            "-" if config.muon_tokens_per_second is None else f"{config.muon_tokens_per_second:,.0f}"
        ),
        "MFU": lambda config: f"{config.mfu:.1%}",
        "1B tokens": lambda config: duration(config.seconds(_BILLION)),
        "total": lambda config: duration(config.seconds(total)),
    }
    if settings.price is not None:
        lines["price of 1B"] = lambda config: f"{config.price(_BILLION):,.2f}"
        lines["total price"] = lambda config: f"{config.price(total):,.2f}"
    print_table(
        f"Time for {with_unit(total, ' tokens')}",
        [[line, *map(value, choices)] for line, value in lines.items()],
        ["", *names],
    )


def print_disk(settings: PlanSettings) -> None:
    sizes = {size: ParallelConfig(settings, size, 1, False, False).costs for size in settings.size}
    examples = examples_bytes(settings.tokens, settings.max_length)
    rows = [
        ("text of that many tokens", with_unit(settings.tokens / TOKENS_A_BYTE, "B")),
        ("examples", with_unit(examples, "B")),
        ("examples while being built", with_unit(2 * examples, "B")),
    ]
    for size, costs in sizes.items():
        kept = with_unit(_CHECKPOINTS * costs.checkpoint_bytes, "B")
        rows.append((f"checkpoint of {size}", f"{with_unit(costs.checkpoint_bytes, 'B')}, {kept} while training"))
    print_table("Disk", rows)
