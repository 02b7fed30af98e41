"""Speed and accuracy of int8: sentence vectors of one checkpoint, in ONNX or by `mybert quantize`.

    python benchmarks/int8_speed.py CHECKPOINT TEXTS [--count 200] [--batch 8] [--rounds 5] [--threads 1]
    python benchmarks/int8_speed.py CHECKPOINT TEXTS --quantized FOLDER --calibration TEXTS [--count 200] [--rounds 5]
        [--threads 1] [--backend onnx PYTHON] [--backend openvino PYTHON]

Vectors are means over tokens, scaled to length 1. Each round runs all sides, one after the other. The first form
compares torch, ONNX, and ONNX with int8 weights on the same batches. The second compares CPU seconds from texts to
vectors: `Embedder` in float32, in bfloat16 and with the int8 FOLDER, and other engines, each in its fastest batches of
sorted texts. These are transformers, ONNX Runtime with int8 weights and dynamic activations, and OpenVINO with static
int8 by NNCF, calibrated on the other texts (`pip install openvino nncf`; left out without them). `--backend` adds a
backend of sentence-transformers, which runs in the environment of PYTHON (sentence_transformers_int8.py).
"""

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from functools import partial
from itertools import islice
from pathlib import Path

from saved_tables import markdown
from sides import in_turns, timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("texts", help="a file that `mybert embed` reads: its first COUNT texts")
    for name, default in (("count", 200), ("batch", 8), ("rounds", 5), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--quantized", help="output of `mybert quantize CHECKPOINT`")
    parser.add_argument("--calibration", help="texts for OpenVINO, as for `mybert quantize`")
    parser.add_argument(
        "--backend", nargs=2, action="append", default=[], help="of sentence-transformers, and a Python"
    )
    arguments = parser.parse_args()

    import torch

    torch.set_num_threads(arguments.threads)
    (compare_quantized if arguments.quantized else compare_onnx)(arguments)


def compare_onnx(arguments: argparse.Namespace) -> None:
    import torch

    from mybert.inference.checkpoint import open_checkpoint
    from mybert.inference.onnx_model import INT8_FILE, ONNX_FILE, onnx_outputs
    from mybert.io.documents import read_documents
    from mybert.release.convert.compare_models import outputs_of
    from mybert.release.convert.export import export
    from mybert.release.settings import ExportSettings

    texts = [document.text for document in islice(read_documents([arguments.texts]), arguments.count)]
    checkpoint = open_checkpoint(arguments.checkpoint)
    batches = [
        dict(checkpoint.tokenizer(texts[start : start + arguments.batch], padding=True, return_tensors="pt"))
        for start in range(0, len(texts), arguments.batch)
    ]

    def vectors(run) -> torch.Tensor:
        found = []
        for batch in batches:
            mask = batch["attention_mask"][..., None]
            means = (run(batch)["last_hidden_state"] * mask).sum(1) / mask.sum(1)
            found.append(torch.nn.functional.normalize(means, dim=-1))
        return torch.cat(found)

    with tempfile.TemporaryDirectory() as scratch:
        folder = export(ExportSettings(arguments.checkpoint, output=str(Path(scratch) / "onnx"), int8=True))
        sizes = {
            "torch": sum(p.numel() * p.element_size() for p in checkpoint.model.parameters()),
            "onnx": (folder / ONNX_FILE).stat().st_size,
            "onnx int8": (folder / INT8_FILE).stat().st_size,
        }
        runs = {
            "torch": lambda batch: outputs_of(checkpoint.model, batch),
            "onnx": onnx_outputs(folder / ONNX_FILE),
            "onnx int8": onnx_outputs(folder / INT8_FILE),
        }
        expected = vectors(runs["torch"])
        measures = {name: lambda run=run: timed(vectors, run).seconds for name, run in runs.items()}
        seconds = in_turns(measures, arguments.rounds)
        print(f"{len(texts)} texts, batches of {arguments.batch}, {arguments.threads} thread(s)")
        for name, run in runs.items():
            found = vectors(run)
            cosines, others = (found * expected).sum(-1), ~torch.eye(len(texts), dtype=torch.bool)
            pairs = ((found @ found.T) - (expected @ expected.T)).abs()
            nearest = [(x @ x.T).masked_fill(~others, -1).argmax(1) for x in (found, expected)]
            speed = len(texts) / statistics.median(seconds[name])
            print(
                f"{name:<9}  {sizes[name] / 1e6:5.1f} MB  {speed:6.1f} texts/s  "
                f"cosine to torch {cosines.mean():.4f} (lowest {cosines.min():.4f})  similarity of two texts off by "
                f"{pairs[others].mean():.4f} (most {pairs.max():.4f})  same nearest text "
                f"{(nearest[0] == nearest[1]).float().mean():.1%}"
            )


def compare_quantized(arguments: argparse.Namespace) -> None:
    from mybert.common.machine import keep_freed_memory
    from mybert.io.documents import read_documents

    keep_freed_memory()
    texts = [document.text for document in islice(read_documents([arguments.texts]), arguments.count)]
    sides = {}
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        others = {
            name: partial(cpu_seconds, sorted_batches(arguments.checkpoint, run))
            for name, run in other_engines(arguments, scratch).items()
        }
        for backend, python in arguments.backend:
            name = f"sentence-transformers, {backend}, int8"
            others[name] = stack.enter_context(sentence_transformers(backend, python, arguments, scratch))
        for name, side in others.items():
            size = min((4, 8, 16, 32, 64), key=lambda size: side(texts, size)[0])
            sides[f"{name}, batches of {size}"] = partial(side, size=size)
        compare_sides(sides, texts, arguments)


def compare_sides(sides: dict, texts: list[str], arguments: argparse.Namespace) -> None:
    """Runs all in turn and prints a table; `sides` are functions from texts to CPU seconds and vectors."""
    import numpy as np

    from mybert import Embedder

    folder, quantized = arguments.checkpoint, arguments.quantized
    embedders = {
        "MyBERT, float32": Embedder(folder, normalize=True),
        "MyBERT, bfloat16": Embedder(folder, dtype="bfloat16", normalize=True),
        "MyBERT, int8": Embedder(quantized, normalize=True),
    }
    sides |= {name: partial(cpu_seconds, embedder.texts) for name, embedder in embedders.items()}
    measures = {name: partial(side, texts) for name, side in sides.items()}
    found = {name: runs[1:] for name, runs in in_turns(measures, arguments.rounds + 1).items()}  # the first warms up
    medians = {name: statistics.median(seconds for seconds, _ in runs) for name, runs in found.items()}
    exact, slowest = found["MyBERT, float32"][-1][1], medians[next(iter(sides))]
    rows = []
    for name, median in medians.items():
        vectors = found[name][-1][1]
        cosines = (vectors * exact).sum(1)
        nearest = [(x @ x.T - 2 * np.eye(len(x))).argmax(1) for x in (vectors, exact)]
        same = f"{(nearest[0] == nearest[1]).mean():.1%}"
        speed = f"{median:.2f}", f"{slowest / median:.2f}"
        rows.append((name, *speed, f"{cosines.mean():.5f}", f"{cosines.min():.4f}", same))
    print(f"{len(texts)} texts, {arguments.threads} thread(s)")
    columns = ("CPU seconds", "times as fast as transformers", "mean cosine", "lowest", "same nearest neighbour")
    print(markdown(rows, ("side", *columns)))


def other_engines(arguments: argparse.Namespace, scratch: str) -> dict:
    """By name: functions from inputs to last hidden states (B, S, H). The ONNX graphs are written to `scratch`."""
    from transformers import BertModel

    from mybert.inference.onnx_model import INT8_FILE, ONNX_FILE, onnx_outputs
    from mybert.release.convert.export import export
    from mybert.release.settings import ExportSettings

    folder = export(ExportSettings(arguments.checkpoint, output=f"{scratch}/onnx", int8=True))
    int8 = onnx_outputs(folder / INT8_FILE)
    bert = BertModel.from_pretrained(arguments.checkpoint).eval()
    engines = {
        "transformers": lambda batch: bert(**batch).last_hidden_state,
        "ONNX Runtime, int8": lambda batch: int8(batch)["last_hidden_state"],
    }
    if arguments.calibration and importlib.util.find_spec("openvino") and importlib.util.find_spec("nncf"):
        engines["OpenVINO, int8"] = openvino_int8(folder / ONNX_FILE, arguments)
    return engines


@contextlib.contextmanager
def sentence_transformers(backend: str, python: str, arguments: argparse.Namespace, scratch: str):
    """A function from texts and batch size to CPU seconds and vectors, by a process in another environment."""
    import numpy as np

    from mybert.io.documents import read_documents

    copy = shutil.copytree(arguments.checkpoint, Path(scratch) / f"{backend}-model")
    calibration = Path(scratch) / f"{backend}-texts"
    calibration.mkdir()
    with (calibration / "train.jsonl").open("w", encoding="utf-8") as lines:
        for document in islice(read_documents([arguments.calibration]), 300):
            print(json.dumps({"text": document.text}), file=lines)
    worker = Path(__file__).parent / "sentence_transformers_int8.py"
    command = [python, worker, backend, copy, calibration, str(arguments.threads)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": ""}
    )

    def run(texts: list[str], size: int):
        request = {"texts": texts, "size": size, "file": f"{scratch}/vectors.npy"}
        print(json.dumps(request), file=process.stdin, flush=True)
        return float(process.stdout.readline()), np.load(request["file"])

    with process:
        yield run
        process.stdin.close()


def openvino_int8(graph: Path, arguments: argparse.Namespace):
    """The ONNX graph quantised by NNCF, calibrated on 300 texts, and compiled for the CPU."""
    import nncf
    import openvino
    import torch
    from transformers import AutoTokenizer

    from mybert.io.documents import read_documents

    tokenizer = AutoTokenizer.from_pretrained(arguments.checkpoint)
    texts = [document.text for document in islice(read_documents([arguments.calibration]), 300)]
    inputs = [dict(tokenizer(text, truncation=True, max_length=128, return_tensors="np")) for text in texts]
    model = nncf.quantize(
        openvino.Core().read_model(graph), nncf.Dataset(inputs), model_type=nncf.ModelType.TRANSFORMER
    )
    options = {"INFERENCE_NUM_THREADS": arguments.threads, "NUM_STREAMS": 1}
    compiled = openvino.Core().compile_model(model, "CPU", options)

    def run(batch):
        outputs = compiled({name: tensor.numpy() for name, tensor in batch.items()})
        return torch.from_numpy(outputs["last_hidden_state"])

    return run


def sorted_batches(checkpoint: str, run):
    """A function from texts and batch size to mean vectors, by padded batches of texts sorted by length."""
    import torch
    from inference import padded_batches, vectors
    from transformers import AutoTokenizer

    def states(batch: dict):
        return run({name: torch.from_numpy(x) for name, x in batch.items()})

    return partial(vectors, padded_batches(AutoTokenizer.from_pretrained(checkpoint), states))


def cpu_seconds(function, *arguments, **options):
    """CPU seconds of a call and its result."""
    found = timed(function, *arguments, **options)
    return found.cpu, found.found


if __name__ == "__main__":
    main()
