"""Runs one script of this folder on every form of a checkpoint, inside the script's environment.

Prints one JSON line: for every form either the largest difference from BERT or the error, and the versions in use.
"""

import importlib.metadata
import importlib.util
import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

TEXTS = [
    "The cook tasted the soup and added salt.",
    "A ferry crosses the bay twice a day in winter and every hour in summer.",
    "Nobody in Lisbon expected rain.",
    "The orchestra played Brahms, then silence.",
    "Prices of copper fell again.",
    "How do I open a file in Python?",
    "Vaccines against malaria reached twelve countries last year.",
    "She repaired the old bicycle.",
]


def run(outputs: Callable, form: str, folder: str, target: Path) -> None:
    """Saves the outputs of the script for one form, or the error; the process is a fork of its own."""
    if form == "installed":
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])  # for the processes that the script starts
        sys.path.append(os.environ["PYTHONPATH"])
        import modeling_mybert  # noqa: F401 - registers itself
    else:
        assert importlib.util.find_spec("modeling_mybert") is None
    torch.manual_seed(0)
    np.random.seed(0)
    try:
        arrays = [np.asarray(x, dtype=np.float64) for x in outputs(folder, TEXTS, form == "remote")]
        if not all(np.isfinite(x).all() for x in arrays):
            raise ValueError("the outputs are not finite")
        np.savez(target, *arrays)
    except Exception as error:
        traceback.print_exc()
        line = (str(error).strip().splitlines() or [""])[0]
        target.with_suffix(".txt").write_text(f"{type(error).__name__}: {line}", encoding="utf-8")


def mean_vectors(folder: str, texts: list[str], remote: bool) -> list:
    """The mean of the real tokens of each text, of length 1: the reference for clients that read no folder."""
    from transformers import AutoTokenizer, BertModel

    inputs = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = BertModel.from_pretrained(folder).eval()(**inputs).last_hidden_state
    sums = (hidden * inputs["attention_mask"][..., None]).sum(1)
    return [torch.nn.functional.normalize(sums, dim=-1)]


def difference(expected: Path, found: Path) -> float:
    """The largest difference of any output, divided by its largest value if that is above 1."""
    with np.load(expected) as one, np.load(found) as other:
        assert one.files == other.files
        pairs = [(one[name], other[name]) for name in one.files]
    if any(a.shape != b.shape for a, b in pairs):
        return float("inf")
    return max(np.abs(a - b).max() / max(1, np.abs(a).max()) for a, b in pairs if a.size)


def main(script: str, folders: dict[str, str], names: list[str]) -> None:
    tried, results = runpy.run_path(script), {}
    for form, folder in folders.items():  # BERT, the reference, is the first
        target = Path(f"{form}.npz").resolve()
        for old in (target, target.with_suffix(".txt")):
            old.unlink(missing_ok=True)
        print(f"--- {form}", file=sys.stderr, flush=True)
        process = os.fork()
        if process == 0:
            is_mean = form == "bert" and "READS" in tried
            run(mean_vectors if is_mean else tried["outputs"], form, folder, target)
            sys.stderr.flush()
            os._exit(0)
        os.waitpid(process, 0)
        if target.exists() and Path("bert.npz").exists():
            results[form] = difference(Path("bert.npz"), target)
        else:
            error = target.with_suffix(".txt")
            results[form] = error.read_text(encoding="utf-8") if error.exists() else "the process died"
    versions = {name: importlib.metadata.version(name) for name in names}
    print("\n" + json.dumps({"results": results, "versions": versions}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:])
