"""Sentence vectors: MyBERT compared with transformers, sentence-transformers and ONNX Runtime, from texts to numpy.

    python benchmarks/inference.py BERT_FOLDER [--dtype float32] [--text python-docs] [--sentences 512] [--pairs 5]
        [--device cpu]

Every side tokenizes, runs BERT and averages over real tokens. The vectors, of length 1, are compared before anything
is timed, with those of transformers in float32 on the CPU. With `--dtype bfloat16` the weights are rounded to it,
except for ONNX Runtime, which stays in float32 and takes part on the CPU only. Each side runs in its own process at
the batch size that was fastest in three rounds before. A side that fails is reported and left out. `in order` batches
the sentences in the given order, as transformers' pipelines do; the others sort by length first.
"""

import argparse
import functools
import math
import os
import statistics
from collections.abc import Callable

import numpy as np
import torch
from sides import Sides, in_own_process, in_turns, process_context, timed

from mybert.common.machine import hardware

BATCH_SIZES = (8, 16, 32, 64, 128)
GPU_BATCH_SIZES = (32, 128, 512)
COMPARED = 512  # sentences
PRELOADED = ["transformers.models.bert.modeling_bert", "sentence_transformers", "mybert.embedding.embedder"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--text", default="python-docs")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--markdown", help="file to which the table is added")
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)

    from saved_tables import save_table

    on_cpu = arguments.device == "cpu"
    names = [name for name in SIDES if on_cpu or name != "ONNX Runtime"]
    texts = sentences(arguments.text, arguments.sentences)
    failures: dict[str, str] = {}
    inputs = {name: (name, arguments.folder, arguments.threads, arguments.dtype, arguments.device) for name in names}
    with Sides(process_context(arguments.device, PRELOADED), prepare, inputs, failures) as sides:
        sizes = BATCH_SIZES if on_cpu else GPU_BATCH_SIZES
        best = {name: sides.ask(name, fastest, texts, sizes) for name in names}
        checked = texts[:COMPARED]
        expected = in_own_process(vectors_of_transformers, arguments.folder, arguments.threads, checked)
        allowed = {"float32": 1e-4, "bfloat16": 0.05}[arguments.dtype] * np.abs(expected).max()
        for name in names:
            found = sides.ask(name, vectors, checked, best[name])
            if found is not None and not (off := np.abs(found - expected).max()) < allowed:
                failures[name] = f"differs by {off:.1e}"
        measures = {name: functools.partial(sides.ask, name, seconds, texts, best[name]) for name in names}
        found = in_turns(measures, arguments.pairs, "inference")
    medians = {name: statistics.median(found[name]) for name in names if name not in failures}
    ours = medians.get("MyBERT", math.nan)
    rows = [
        (name, best[name], median, f"{len(texts) / median:,.0f}", f"{median / ours:.2f}")
        for name, median in medians.items()
    ]
    rows += [(name, why, *[None] * 3) for name, why in failures.items()]
    columns = ("side", "batch size", "seconds", "sentences/s", "MyBERT is … times as fast")
    where = f"{arguments.threads} threads" if on_cpu else arguments.device
    title = f"{len(texts)} sentences, {arguments.dtype}, torch {torch.__version__}, {where}"
    save_table(arguments.markdown, title, rows, columns)


def sentences(text: str, count: int) -> list[str]:
    """Sentences of mixed length, sampled evenly from a text."""
    from mybert.corpus.text.sentences import sentence_splitter
    from mybert.io.documents import read_documents

    split = sentence_splitter("en")
    found = [s for document in read_documents([text]) for s in split(document.text) if 2 <= len(s.split()) <= 90]
    return found[:: max(1, len(found) // count)][:count]


def prepare(side: str, folder: str, threads: int, dtype: str, device: str) -> Callable:
    torch.set_num_threads(threads)
    return SIDES[side](folder, dtype, device)


def vectors(encode: Callable, texts: list[str], size: int) -> np.ndarray:
    """Scaled to length 1: a folder may have a module that does so, which MyBERT reads."""
    found = encode(texts, size)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def vectors_of_transformers(folder: str, threads: int, texts: list[str]) -> np.ndarray:
    return vectors(prepare("transformers", folder, threads, "float32", "cpu"), texts, 8)


def seconds(encode: Callable, texts: list[str], size: int) -> float:
    return timed(vectors, encode, texts, size).seconds


def fastest(encode: Callable, texts: list[str], sizes: tuple[int, ...]) -> int:
    vectors(encode, texts[:64], 32)
    return min(sizes, key=lambda size: min(seconds(encode, texts, size) for _ in range(3)))


def transformers_side(folder: str, dtype: str, device: str, in_order: bool = False):
    from transformers import AutoTokenizer, BertModel

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertModel.from_pretrained(folder, add_pooling_layer=False, dtype=dtype).eval().to(device)

    def hidden(batch):
        inputs = {name: torch.from_numpy(x).to(device) for name, x in batch.items()}
        return model(**inputs).last_hidden_state

    return padded_batches(tokenizer, hidden, in_order)


def onnx_side(folder: str, *_: str):
    from exported_model import exported
    from transformers import AutoTokenizer, BertModel

    run, _ = exported("ONNX Runtime", BertModel.from_pretrained(folder, add_pooling_layer=False).eval())
    return padded_batches(AutoTokenizer.from_pretrained(folder), lambda batch: torch.from_numpy(run(batch)[0]))


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
            found = hidden(batch).float()
            mask = torch.from_numpy(batch["attention_mask"]).to(found.device)[..., None]
            means = ((found * mask).sum(1) / mask.sum(1)).cpu().numpy()
            for row, vector in zip(rows, means, strict=True):
                vectors[row] = vector
        return np.stack(vectors)

    return encode


def sentence_transformers_side(folder: str, dtype: str, device: str):
    from sentence_transformers import SentenceTransformer, models

    bert = models.Transformer(folder, max_seq_length=512, model_kwargs={"dtype": dtype})
    model = SentenceTransformer(modules=[bert, models.Pooling(bert.get_word_embedding_dimension())], device=device)
    return lambda texts, size: model.encode(texts, batch_size=size, show_progress_bar=False)


def mybert_side(folder: str, dtype: str, device: str, in_order: bool = False):
    from mybert.common.machine import keep_freed_memory
    from mybert.embedding.embedder import Embedder

    keep_freed_memory()  # the default of `mybert embed`
    sizes = {*BATCH_SIZES, *GPU_BATCH_SIZES}
    options = {"dtype": dtype, "device": device, "max_length": 512}  # of the other sides
    embedders = {size: Embedder(folder, max_tokens_per_batch=size * 32, **options) for size in sizes}
    if in_order:
        return lambda texts, size: np.concatenate(
            [embedders[size].texts(texts[start : start + size]) for start in range(0, len(texts), size)]
        )
    return lambda texts, size: embedders[size].texts(texts)


SIDES = {
    "transformers, in order": functools.partial(transformers_side, in_order=True),
    "transformers": transformers_side,
    "sentence-transformers": sentence_transformers_side,
    "ONNX Runtime": onnx_side,
    "MyBERT, in order": functools.partial(mybert_side, in_order=True),
    "MyBERT": mybert_side,
}


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
