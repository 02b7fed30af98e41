"""Predictions of `mybert plan` compared with measurements on the CPU: the table in docs/reference/cost-model.md.

    python benchmarks/cost_model.py CORPUS [--sizes mini,small] [--sequences 32] [--length 128] [--threads 2]

CORPUS is a folder of `mybert corpus` built from plain text. Parameters are counted in the model, operations by torch
in a real step. Memory is what the allocator hands out and the growth of the process, each in its own process. Disk is
the size of real files. The time with checkpointing is predicted from the rate without it.
"""

import argparse
import contextlib
import json
import resource
import statistics
import tempfile
from pathlib import Path

import torch
from sides import in_own_process
from timed_step import Step
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from training_step import batches

from modeling_mybert import MyBertConfig, MyBertForPreTraining
from mybert.common.machine import hardware, keep_freed_memory
from mybert.common.quantities import with_unit
from mybert.common.tables import print_table
from mybert.corpus.disk_budget import TOKENS_A_BYTE
from mybert.pretraining.arguments import PretrainingArguments
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.planning.flops_and_memory import ModelCosts
from mybert.pretraining.run import pretrain
from mybert.pretraining.settings import PretrainSettings

WAYS = {"": {}, ", checkpointing": {"checkpointing": True}, ", bfloat16": {"half": True}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--sizes", default="mini,small")
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    rows = []
    for size in arguments.sizes.split(","):
        for way, how in WAYS.items():
            found = in_own_process(step, size, arguments.sequences, arguments.length, arguments.threads, how)
            costs = costs_of(size, arguments.length, found["labelled"] / found["tokens"])
            checkpointing = how.get("checkpointing", False)
            flops = found["tokens"] * costs.executed_per_token(checkpointing)
            memory = costs.memory(found["tokens"], keeps_scores=True, **how)
            if not how:
                rows.append((f"{size}: parameters", costs.parameters, found["parameters"], ""))
                rate = flops / found["seconds"]
            rows.append((f"{size}{way}: operations", flops, found["flops"], "FLOP"))
            kept = sum(memory[part] for part in ("copies", "activations", "logits"))
            rows.append((f"{size}{way}: allocated in a step", kept, found["allocated"], "B"))
            rows.append((f"{size}{way}: growth of the process", sum(memory.values()), found["grown"], "B"))
            if checkpointing:
                rows.append((f"{size}{way}: a step", flops / rate, found["seconds"], "s"))
    rows += disk(arguments.corpus)
    print_table(
        f"Predicted and measured, {arguments.sequences} sequences of {arguments.length} tokens",
        [(name, written(a, unit), written(b, unit), f"{a / b - 1:+.1%}") for name, a, b, unit in rows],
        ("", "predicted", "measured", "error"),
    )


def costs_of(size: str, length: float, labelled: float) -> ModelCosts:
    return ModelCosts(MyBertConfig.from_size(size), length, length, labelled, has_pairs=True)


def written(value: float, unit: str) -> str:
    return f"{value:.3g} s" if unit == "s" else with_unit(value, unit) if unit else f"{value:,}"


def step(size: str, sequences: int, length: int, threads: int, how: dict) -> dict:
    """Measure optimizer steps of one model."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    torch.mm(torch.ones(512, 512), torch.ones(512, 512))  # loads the libraries, whose memory is not counted
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    torch.manual_seed(0)
    model = MyBertForPreTraining(MyBertConfig.from_size(size))
    if how.get("checkpointing"):
        model.gradient_checkpointing_enable()
    _, batch = batches(torch.full((sequences,), length), False)
    work = Step(model, batch, torch.bfloat16 if how.get("half") else torch.float32)
    for _ in range(2):
        work.run()
    found = {
        "grown": 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before),
        "seconds": statistics.median(work.run() for _ in range(3)),
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens": batch["input_ids"].numel(),
        "labelled": len(batch["masked_lm_positions"]),
    }
    uncounted = torch.backends.mkldnn.flags(enabled=False)  # torch does not count float32 products of oneDNN
    with uncounted, FlopCounterMode(display=False) as counter, work.autocast:
        model(**batch).loss.backward()
    return found | {"flops": counter.get_total_flops(), "allocated": allocated(work)}


def allocated(work: Step) -> int:
    """Peak memory of a step beyond weights, gradients and moments, from torch's record of its allocator."""
    for parameter in work.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record, work.autocast:
        work.model(**work.batch).loss.backward()
    now = most = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def disk(folder: str) -> list[tuple]:
    corpus = Corpus.load(folder)
    shape, files = corpus.shape, sum(path.stat().st_size for path in corpus.folder.glob("*.arrow"))
    costs = costs_of("mini", shape.mean_length, 0.15)
    manifest = json.loads((corpus.folder / "manifest.json").read_text())
    text = sum(entry["bytes"] for entry in manifest["inputs"].values() if isinstance(entry, dict) and "bytes" in entry)
    with tempfile.TemporaryDirectory() as output, contextlib.redirect_stdout(None):
        settings = PretrainSettings(corpus=folder, output=f"{output}/run", size="mini")
        arguments = {"max_steps": 1, "save_steps": 1, "use_cpu": True, "disable_tqdm": True, "eval_strategy": "no"}
        pretrain(settings, PretrainingArguments(output_dir=settings.output, **arguments))
        saved = sum(path.stat().st_size for path in Path(output).glob("run/checkpoint-1/*"))
    vocabulary = len(corpus.tokenizer)
    checkpoint = ModelCosts(MyBertConfig.from_size("mini", vocab_size=vocabulary), 1, 1, 0.15, True).checkpoint_bytes
    return [
        ("examples of the corpus", costs.examples_bytes(shape.tokens), files, "B"),
        ("text of the corpus", manifest["counts"]["tokens"] / TOKENS_A_BYTE, text, "B"),
        ("mini: a checkpoint", checkpoint, saved, "B"),
    ]


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
