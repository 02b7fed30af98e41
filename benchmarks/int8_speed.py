"""Speed and accuracy of int8: sentence vectors of one checkpoint, in ONNX or by `mybert quantize`.

    python benchmarks/int8_speed.py CHECKPOINT TEXTS [--count 200] [--batch 8] [--rounds 5] [--threads 1]
    python benchmarks/int8_speed.py CHECKPOINT TEXTS --quantized FOLDER [--count 200] [--rounds 5] [--threads 1]

Vectors are means over tokens, scaled to length 1. Each round runs all sides, one after the other. The first form
compares torch, ONNX, and ONNX with int8 weights on the same batches. The second compares transformers in its fastest
batches of sorted texts, and `Embedder` in float32, in bfloat16 and with the int8 FOLDER, from texts to vectors, in CPU
seconds.
"""

import argparse
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("texts", help="a file that `mybert embed` reads: its first COUNT texts")
    for name, default in (("count", 200), ("batch", 8), ("rounds", 5), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--quantized", help="output of `mybert quantize CHECKPOINT`")
    arguments = parser.parse_args()

    import torch

    torch.set_num_threads(arguments.threads)
    (compare_quantized if arguments.quantized else compare_onnx)(arguments)


def compare_onnx(arguments: argparse.Namespace) -> None:
    import torch

    from mybert.common.onnx_session import onnx_outputs
    from mybert.io.documents import read_documents
    from mybert.release.convert.compare_models import outputs_of
    from mybert.release.convert.export import export
    from mybert.release.convert.export_onnx import INT8_FILE, ONNX_FILE
    from mybert.release.convert.full_checkpoint import load_checkpoint
    from mybert.release.settings import ExportSettings

    texts = [document.text for document in islice(read_documents([arguments.texts]), arguments.count)]
    checkpoint = load_checkpoint(arguments.checkpoint)
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
        folder = export(ExportSettings(arguments.checkpoint, to="onnx", output=str(Path(scratch) / "onnx"), int8=True))
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
        seconds = {name: [] for name in runs}
        for _ in range(arguments.rounds):
            for name, run in runs.items():
                begun = time.perf_counter()
                vectors(run)
                seconds[name].append(time.perf_counter() - begun)
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
    import numpy as np

    from mybert import Embedder
    from mybert.common.memory_allocator import keep_freed_memory
    from mybert.io.documents import read_documents

    keep_freed_memory()
    texts = [document.text for document in islice(read_documents([arguments.texts]), arguments.count)]
    transformers = transformers_vectors(arguments.checkpoint)
    sizes = {size: cpu_seconds(transformers, texts, size)[0] for size in (8, 16, 32, 64)}
    size = min(sizes, key=sizes.get)
    sides = {
        f"transformers, batches of {size}": lambda texts: transformers(texts, size),
        "float32": Embedder(arguments.checkpoint, normalize=True).texts,
        "bfloat16": Embedder(arguments.checkpoint, dtype="bfloat16", normalize=True).texts,
        "int8": Embedder(arguments.quantized, normalize=True).texts,
    }
    seconds, found = {name: [] for name in sides}, {}
    for _ in range(arguments.rounds + 1):  # the first one warms up
        for name, side in sides.items():
            spent, found[name] = cpu_seconds(side, texts)
            seconds[name].append(spent)
    print(f"{len(texts)} texts, {arguments.threads} thread(s)")
    print("| side | CPU seconds | times as fast as transformers | mean cosine | lowest | same nearest neighbour |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    exact, slowest = found["float32"], statistics.median(seconds[next(iter(sides))][1:])
    for name, vectors in found.items():
        median, cosines = statistics.median(seconds[name][1:]), (vectors * exact).sum(1)
        nearest = [(x @ x.T - 2 * np.eye(len(x))).argmax(1) for x in (vectors, exact)]
        print(
            f"| {name} | {median:.2f} | {slowest / median:.2f} | {cosines.mean():.5f} | {cosines.min():.4f} "
            f"| {(nearest[0] == nearest[1]).mean():.1%} |"
        )


def transformers_vectors(checkpoint: str):
    """Mean vectors by transformers' BERT, of padded batches of texts sorted by length."""
    import numpy as np
    import torch
    from transformers import AutoTokenizer, BertModel

    tokenizer, model = AutoTokenizer.from_pretrained(checkpoint), BertModel.from_pretrained(checkpoint).eval()

    @torch.inference_mode()
    def vectors(texts: list[str], size: int):
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        found = np.empty((len(texts), model.config.hidden_size), dtype=np.float32)
        for start in range(0, len(texts), size):
            places = order[start : start + size]
            batch = tokenizer([texts[i] for i in places], padding=True, return_tensors="pt")
            mask = batch["attention_mask"][..., None]
            means = (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
            found[places] = torch.nn.functional.normalize(means, dim=-1).numpy()
        return found

    return vectors


def cpu_seconds(function, *arguments):
    """CPU seconds of a call, and its result."""
    began = time.process_time()
    found = function(*arguments)
    return time.process_time() - began, found


if __name__ == "__main__":
    main()
