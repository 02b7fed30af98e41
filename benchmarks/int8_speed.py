"""Speed and accuracy of int8: sentence vectors of one checkpoint in torch, in ONNX, and in ONNX with int8 weights.

    python benchmarks/int8_speed.py CHECKPOINT TEXTS [--count 200] [--batch 8] [--rounds 5] [--threads 1]

Vectors are means over tokens, scaled to length 1. Each round runs all three, one after the other, on the same
batches.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("texts", help="a file that `mybert embed` reads: its first COUNT texts")
    for name, default in (("count", 200), ("batch", 8), ("rounds", 5), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()

    import torch

    torch.set_num_threads(arguments.threads)

    from itertools import islice

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


if __name__ == "__main__":
    main()
