"""What a training has left in its folder."""

import json
from pathlib import Path

import torch

from modeling_mybert import MyBertForPreTraining


def read_results(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text())


def read_log(folder: Path, name: str = "step") -> list[dict]:
    """The entries of log.jsonl that have a value, such as `loss`."""
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if name in entry]


def steps_saved(folder: Path) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*"))


def weights_of(run: Path | str | torch.nn.Module) -> dict[str, torch.Tensor]:
    """Those of a folder, or of a model."""
    return (run if isinstance(run, torch.nn.Module) else MyBertForPreTraining.from_pretrained(run)).state_dict()


def have_same_weights(first: Path | str | torch.nn.Module, second: Path | str | torch.nn.Module) -> bool:
    """Whether the weights are equal bit for bit."""
    expected = weights_of(second)
    return all(torch.equal(value, expected[name]) for name, value in weights_of(first).items())
