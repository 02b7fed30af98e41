"""Sentence vectors: MyBERT compared with transformers, sentence-transformers and ONNX Runtime, from texts to numpy.

    python benchmarks/inference.py BERT_FOLDER [--dtype float32] [--text python-docs] [--sentences 512] [--pairs 5]

Every side tokenizes, runs BERT and averages over real tokens. The vectors are compared before anything is timed. With
`--dtype bfloat16` the weights are rounded to it, except for ONNX Runtime, which stays in float32 and is the
reference. Each side runs in its own process at the batch size that was fastest in three rounds before. `in order`
batches the sentences in the given order, as transformers' pipelines do; the others sort by length first.
"""

import argparse
import contextlib
import functools
import multiprocessing
import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

BATCH_SIZES = (8, 16, 32, 64, 128)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--text", default="python-docs")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)

    from mybert.common.tables import print_table

    texts = sentences(arguments.text, arguments.sentences)
    with contextlib.ExitStack() as stack:
        spawn = multiprocessing.get_context("spawn")
        sides = {
            name: stack.enter_context(
                ProcessPoolExecutor(1, spawn, prepare, (name, arguments.folder, arguments.threads, arguments.dtype))
            )
            for name in SIDES
        }
        best = {name: process.submit(fastest, texts).result() for name, process in sides.items()}
        expected = sides["ONNX Runtime"].submit(vectors, texts, 8).result()
        allowed = {"float32": 1e-4, "bfloat16": 0.05}[arguments.dtype]  # absolute; the values are about 0.2
        for name, process in sides.items():
            off = np.abs(process.submit(vectors, texts, best[name]).result() - expected).max()
            assert off < allowed, f"{name} differs by {off}"
        seconds = {name: [] for name in sides}
        for _ in track(range(arguments.pairs), description="inference"):
            for name, process in sides.items():
                seconds[name].append(process.submit(timed, texts, best[name]).result())
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rows = [
        (name, best[name], median, f"{len(texts) / median:,.0f}", f"{median / medians['MyBERT']:.2f}")
        for name, median in medians.items()
    ]
    columns = ("side", "batch size", "seconds", "sentences/s", "MyBERT is … times as fast")
    title = f"{len(texts)} sentences, {arguments.dtype}, torch {torch.__version__}, {arguments.threads} threads"
    print_table(title, rows, columns)


def sentences(text: str, count: int) -> list[str]:
    """Sentences of mixed length, sampled evenly from a text."""
    from mybert.corpus.text.sentences import sentence_splitter
    from mybert.io.documents import read_documents

    split = sentence_splitter("en")
    found = [s for document in read_documents([text]) for s in split(document.text) if 2 <= len(s.split()) <= 90]
    return found[:: len(found) // count][:count]


def prepare(side: str, folder: str, threads: int, dtype: str) -> None:
    """Set up a process for one side; its function is stored as `vectors`."""
    torch.set_num_threads(threads)
    _process["encode"] = SIDES[side](folder, dtype)


def vectors(texts: list[str], size: int) -> np.ndarray:
    return _process["encode"](texts, size)


def timed(texts: list[str], size: int) -> float:
    begun = time.perf_counter()
    vectors(texts, size)
    return time.perf_counter() - begun


def fastest(texts: list[str]) -> int:
    vectors(texts[:64], 32)
    return min(BATCH_SIZES, key=lambda size: min(timed(texts, size) for _ in range(3)))


def transformers_side(folder: str, dtype: str, in_order: bool = False):
    from transformers import AutoTokenizer, BertModel

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertModel.from_pretrained(folder, add_pooling_layer=False, dtype=dtype).eval()

    def hidden(batch):
        return model(**{name: torch.from_numpy(x) for name, x in batch.items()}).last_hidden_state.float().numpy()

    return padded_batches(tokenizer, hidden, in_order)


def onnx_side(folder: str, _: str):
    import onnxruntime
    from transformers import AutoTokenizer, BertModel

    model = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    names = ("input_ids", "attention_mask", "token_type_ids")
    example = {name: torch.ones(2, 8, dtype=torch.long) for name in names}
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as scratch:
        path = str(Path(scratch) / "bert.onnx")
        torch.onnx.export(
            model, kwargs=example, dynamo=True, dynamic_shapes=dict.fromkeys(example, axes), verbose=False
        ).save(path)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return padded_batches(AutoTokenizer.from_pretrained(folder), lambda batch: session.run(None, dict(batch))[0])


def padded_batches(tokenizer, hidden, in_order: bool = False):
    """Sort by length, pad, compute, average: the loop around both libraries."""

    @torch.no_grad()
    def encode(texts: list[str], size: int) -> np.ndarray:
        order = np.arange(len(texts)) if in_order else np.argsort([-len(text) for text in texts], kind="stable")
        vectors = [None] * len(texts)
        for start in range(0, len(texts), size):
            rows = order[start : start + size]
            batch = tokenizer([texts[i] for i in rows], padding=True, truncation=True, max_length=512)
            batch = {name: np.asarray(x, dtype=np.int64) for name, x in batch.items()}
            mask = batch["attention_mask"][..., None]
            for row, vector in zip(rows, (hidden(batch) * mask).sum(1) / mask.sum(1), strict=True):
                vectors[row] = vector
        return np.stack(vectors)

    return encode


def sentence_transformers_side(folder: str, dtype: str):
    from sentence_transformers import SentenceTransformer, models

    bert = models.Transformer(folder, max_seq_length=512, model_kwargs={"dtype": dtype})
    model = SentenceTransformer(modules=[bert, models.Pooling(bert.get_word_embedding_dimension())], device="cpu")
    return lambda texts, size: model.encode(texts, batch_size=size, show_progress_bar=False)


def mybert_side(folder: str, dtype: str):
    from mybert.common.memory_allocator import keep_freed_memory
    from mybert.embedding.embedder import Embedder

    keep_freed_memory()  # the default of `mybert embed`
    embedders = {size: Embedder(folder, batch_tokens=size * 32, dtype=dtype) for size in BATCH_SIZES}
    return lambda texts, size: embedders[size].texts(texts)


SIDES = {
    "transformers, in order": functools.partial(transformers_side, in_order=True),
    "transformers": transformers_side,
    "sentence-transformers": sentence_transformers_side,
    "ONNX Runtime": onnx_side,
    "MyBERT": mybert_side,
}
_process = {}  # state of this process


if __name__ == "__main__":
    main()
