"""Vectors of real sentences: MyBERT beside transformers, sentence-transformers and ONNX Runtime, texts in, numpy out.

    python benchmarks/inference.py BERT_FOLDER [--text python-docs] [--sentences 512] [--pairs 5] [--threads 2]

Every side tokenises, computes BERT in float32 and takes the mean over real tokens; the vectors are compared before
anything is timed. Each side runs at the batch size that was fastest for it in a first round. `in order` takes batches
as the sentences come, as transformers' pipelines do; the others sort them by length first.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

BATCH_SIZES = (8, 16, 32, 64, 128)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--text", default="python-docs")
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)
    torch.set_num_threads(arguments.threads)

    from mybert.common.table import print_table

    texts = sentences(arguments.text, arguments.sentences)
    with tempfile.TemporaryDirectory() as scratch:
        sides = {
            "transformers, in order": transformers_side(arguments.folder, in_order=True),
            "transformers": transformers_side(arguments.folder),
            "sentence-transformers": sentence_transformers_side(arguments.folder),
            "ONNX Runtime": onnx_side(arguments.folder, scratch, arguments.threads),
            "MyBERT": mybert_side(arguments.folder),
        }
        best = {name: fastest(encode, texts) for name, encode in sides.items()}
        expected = sides["transformers, in order"](texts, 8)
        for name, encode in sides.items():
            off = np.abs(encode(texts, best[name]) - expected).max()
            assert off < 1e-4, f"{name} differs by {off}"
        seconds = {name: [] for name in sides}
        for _ in track(range(arguments.pairs), description="inference"):
            for name, encode in sides.items():
                seconds[name].append(timed(encode, texts, best[name]))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rows = [
        (name, best[name], median, f"{len(texts) / median:,.0f}", f"{median / medians['MyBERT']:.2f}")
        for name, median in medians.items()
    ]
    columns = ("side", "batch size", "seconds", "sentences/s", "MyBERT is … times as fast")
    print_table(f"{len(texts)} sentences, torch {torch.__version__}, {arguments.threads} threads", rows, columns)


def sentences(text: str, count: int) -> list[str]:
    """Sentences of mixed length, spread evenly over a text."""
    from mybert.corpus.sentences import sentence_splitter
    from mybert.corpus.sources import read_documents

    split = sentence_splitter("en")
    found = [s for document in read_documents([text]) for s in split(document.text) if 2 <= len(s.split()) <= 90]
    return found[:: len(found) // count][:count]


def timed(encode, texts: list[str], size: int) -> float:
    begun = time.perf_counter()
    encode(texts, size)
    return time.perf_counter() - begun


def fastest(encode, texts: list[str]) -> int:
    encode(texts[:64], 32)
    return min(BATCH_SIZES, key=lambda size: timed(encode, texts, size))


def transformers_side(folder: str, in_order: bool = False):
    from transformers import AutoTokenizer, BertModel

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()

    def hidden(batch):
        return model(**{name: torch.from_numpy(x) for name, x in batch.items()}).last_hidden_state.numpy()

    return padded_batches(tokenizer, hidden, in_order)


def onnx_side(folder: str, scratch: str, threads: int):
    import onnxruntime
    from transformers import AutoTokenizer, BertModel

    model = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    names = ("input_ids", "attention_mask", "token_type_ids")
    example = {name: torch.ones(2, 8, dtype=torch.long) for name in names}
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    path = str(Path(scratch) / "bert.onnx")
    torch.onnx.export(
        model, kwargs=example, dynamo=True, dynamic_shapes=dict.fromkeys(example, axes), verbose=False
    ).save(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return padded_batches(AutoTokenizer.from_pretrained(folder), lambda batch: session.run(None, dict(batch))[0])


def padded_batches(tokenizer, hidden, in_order: bool = False):
    """The loop that users of both write: sort, pad, compute, average."""

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


def sentence_transformers_side(folder: str):
    from sentence_transformers import SentenceTransformer, models

    bert = models.Transformer(folder, max_seq_length=512)
    model = SentenceTransformer(modules=[bert, models.Pooling(bert.get_word_embedding_dimension())], device="cpu")
    return lambda texts, size: model.encode(texts, batch_size=size, show_progress_bar=False)


def mybert_side(folder: str):
    from mybert.embedding.settings import EncodingSettings
    from mybert.embedding.vectors import Embedder

    embedders = {size: Embedder(EncodingSettings(folder, batch_tokens=size * 32)) for size in BATCH_SIZES}
    return lambda texts, size: embedders[size].texts(texts)


if __name__ == "__main__":
    main()
