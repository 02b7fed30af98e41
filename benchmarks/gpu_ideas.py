"""Ideas for faster training on a GPU, each alone and together, beside transformers' BERT; `gpu.sh ideas` calls this.

    python benchmarks/gpu_ideas.py [--row base:128:512:512] [--ideas norm layers norm+layers …] [--markdown FILE]

An idea replaces a part of the model for this measurement only:

norm         layer norms return bfloat16; under autocast they return float32
layers       each encoder layer by torch.compile; `top` also embeddings and masked-LM head; `whole` the whole model

Ideas joined by + are applied together. The loss in the table shows whether the numbers stay the same.
"""

import argparse
import contextlib
import os
from unittest import mock

import torch
from saved_tables import save_table
from timed_step import Step, device_peak, on_device, useful_flops
from torch.nn import functional as F
from training_step import draw, make

from mybert.common.errors import cause

DEVICE = os.environ.get("DEVICE", "cuda")
IDEAS = ["", "norm", "layers", "norm+layers", "norm+layers+top", "whole", "norm+whole"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", default="base:128:512:512", help="SIZE:SEQUENCES:SHORTEST:LONGEST")
    parser.add_argument("--ideas", nargs="+", default=IDEAS)
    parser.add_argument("--backend", default="sdpa")
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--markdown", help="file to which the table is added")
    arguments = parser.parse_args()
    rows = []
    try:
        for name in ["transformers", *arguments.ideas]:
            try:
                found = measure(name, arguments)
            except Exception as error:
                found = (None, None, None, cause(error)[:100])
            rows.append((name or "MyBERT as it is", *found))
            print(*rows[-1], flush=True)
    finally:
        title = f"Ideas, {arguments.row}, bfloat16, torch {torch.__version__}, {arguments.backend}"
        save_table(arguments.markdown, title, rows, ("idea", "s/step", "MFU", "memory, GiB", "loss"))


def measure(name: str, arguments: argparse.Namespace) -> tuple[float, str | None, float | None, float]:
    """Seconds of a step, MFU, memory in GiB, and the loss of one batch after equally many steps."""
    ours, ideas = name != "transformers", name.split("+")
    torch._dynamo.reset()
    with contextlib.ExitStack() as stack:
        for owner, method, replacement in [REPLACED[idea] for idea in ideas if idea in REPLACED]:
            stack.enter_context(mock.patch.object(owner, method, replacement))
        models, batches, _ = make(arguments.row, "python-docs", 4)
        model = models[ours]
        model.set_attn_implementation(arguments.backend if ours else "sdpa")
        step = Step(model, batches[ours], torch.bfloat16, DEVICE)
        step.dropout(0.1, 0.0)
        for module in to_compile(model, ideas):
            module.compile(backend="aot_eager" if DEVICE == "cpu" else "inductor")
        seconds, flops = [], []
        for number in (1, 2, 3):
            both, lengths = draw(arguments.row, "python-docs", number)
            step.batch = on_device(both[ours], DEVICE)
            step.run()  # compiles
            found, memory = step.measure(arguments.repeats)
            seconds.append(found)
            flops.append(useful_flops(lengths, model.config, int((both[0]["labels"] != -100).sum())))
        step.dropout(0.0)
        with torch.no_grad(), step.autocast:
            loss = float(model(**step.batch).loss)
    peak = device_peak(DEVICE, torch.bfloat16)
    return sum(seconds) / 3, f"{sum(flops) / sum(seconds) / peak:.1%}" if peak else None, memory, loss


def to_compile(model, ideas: list[str]) -> list[torch.nn.Module]:
    if "whole" in ideas:
        return [model]
    top = [model.bert.embeddings, model.cls.predictions] if "top" in ideas else []
    return top + (list(model.bert.encoder.layer) if "layers" in ideas else [])


def norm_in_bfloat16(self, x):
    with torch.autocast(x.device.type, enabled=False):  # the kernel computes its statistics in float32
        x, weight, bias = (tensor.bfloat16() for tensor in (x, self.weight, self.bias))
        return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


REPLACED = {
    "norm": (torch.nn.LayerNorm, "forward", norm_in_bfloat16),
}

if __name__ == "__main__":
    main()
