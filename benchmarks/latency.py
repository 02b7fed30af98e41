"""Latency of classifying one text: MyBERT compared with transformers' pipeline, ONNX Runtime and OpenVINO.

    python benchmarks/latency.py CLASSIFIER [--tokens 16 64 128] [--rounds 200] [--burst 1] [--threads 2]

CLASSIFIER is a folder with transformers' BERT for sequence classification and its tokenizer. Every side takes a text
and returns the label and its probability, which are compared before anything is timed. All sides take turns in one
process, so that other load slows them alike. CPU milliseconds are those of all threads of the process; on a busy
machine compare these. The models, called by hand, show what the pipelines add. OpenVINO takes part if it is
installed. The caches of the processor do not hold the weights of all sides: with `--burst 1` every call reads its
weights from memory, as after other work; with `--burst 10`, ten calls of a side follow each other, as in a service.
"""

import argparse
import contextlib
import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sides import in_turns, timed
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from modeling_mybert import MyBertForSequenceClassification
from mybert import Predictor
from mybert.common.machine import hardware, keep_freed_memory
from mybert.common.tables import print_table
from mybert.inference.cpu import optimize_for_inference
from mybert.inference.onnx_model import ONNX_FILE
from mybert.release.convert.export import write_onnx

Classify = Callable[[str], tuple[str, float]]
WARM_UP = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64, 128])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--burst", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    tokenizer = AutoTokenizer.from_pretrained(arguments.folder)
    with contextlib.ExitStack() as stack:
        sides = sides_of(arguments.folder, tokenizer, arguments.threads, stack)
        for tokens in arguments.tokens:
            title = f"{tokens} tokens, {arguments.threads} threads, {arguments.burst} calls in a row"
            compare(sides, text_of(tokens, tokenizer), arguments.rounds, arguments.burst, title)


def sides_of(folder: str, tokenizer, threads: int, stack: contextlib.ExitStack) -> dict[str, Classify]:
    theirs = pipeline(
        "text-classification",
        model=AutoModelForSequenceClassification.from_pretrained(folder).eval(),
        tokenizer=tokenizer,
        device="cpu",
    )
    model = MyBertForSequenceClassification.from_pretrained(folder).eval()
    ours = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    fast = optimize_for_inference(MyBertForSequenceClassification.from_pretrained(folder).eval())
    fast_pipeline = pipeline("text-classification", model=fast, tokenizer=tokenizer, device="cpu")
    predictor = Predictor(folder, device="cpu")
    onnx = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    write_onnx(model, onnx)
    labels = list(model.config.id2label.values())
    sides = {
        "transformers, pipeline": of_pipeline(theirs),
        "transformers, model": of_graph(of_model(theirs.model), tokenizer, labels),
        "MyBERT, pipeline": of_pipeline(ours),
        "MyBERT, model": of_graph(of_model(model), tokenizer, labels),
        "MyBERT, optimized, pipeline": of_pipeline(fast_pipeline),
        "MyBERT, optimized, model": of_graph(of_model(fast), tokenizer, labels),
        "MyBERT, Predictor": lambda text: (lambda found: (found["label"], found["score"]))(predictor(text)),
        "ONNX Runtime": of_graph(onnx_runtime(onnx / ONNX_FILE, threads), tokenizer, labels),
    }
    if importlib.util.find_spec("openvino"):
        sides["OpenVINO"] = of_graph(openvino(onnx / ONNX_FILE, threads), tokenizer, labels)
    return sides


def of_pipeline(classify) -> Classify:
    def run(text: str) -> tuple[str, float]:
        (found,) = classify(text)
        return found["label"], found["score"]

    return run


def of_model(model):
    @torch.inference_mode()
    def logits_of(inputs: dict[str, np.ndarray]) -> np.ndarray:
        return model(**{name: torch.from_numpy(x) for name, x in inputs.items()}).logits.numpy()

    return logits_of


def of_graph(logits_of, tokenizer, labels: list[str]) -> Classify:
    def run(text: str) -> tuple[str, float]:
        logits = logits_of(dict(tokenizer(text, return_tensors="np")))[0]
        shares = np.exp(logits - logits.max())
        best = int(shares.argmax())
        return labels[best], float(shares[best] / shares.sum())

    return run


def onnx_runtime(path: Path, threads: int):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(["logits"], inputs)[0]


def openvino(path: Path, threads: int):
    from openvino import Core

    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    request = Core().compile_model(path, "CPU", options).create_infer_request()
    return lambda inputs: request.infer(inputs)["logits"]


def text_of(tokens: int, tokenizer) -> str:
    """A text of whole-word tokens, special tokens included in the count."""
    words = ("the film was long and the story did not make sense but we liked it " * tokens).split()
    text = " ".join(words[: tokens - 2])
    assert len(tokenizer(text)["input_ids"]) == tokens
    return text


def compare(sides: dict[str, Classify], text: str, rounds: int, burst: int, title: str) -> None:
    label, score = sides["transformers, pipeline"](text)
    for name, classify in sides.items():
        found = classify(text)
        assert found[0] == label and abs(found[1] - score) < 1e-4, f"{name}: {found}, expected {label}, {score}"
    measures = {name: lambda run=run: [timed(run, text)[1:] for _ in range(burst)] for name, run in sides.items()}
    spent = {name: np.array(found[WARM_UP:]) for name, found in in_turns(measures, rounds + WARM_UP, title).items()}
    quantiles = {name: 1000 * np.quantile(found, (0.5, 0.99), axis=(0, 1)) for name, found in spent.items()}
    ours = quantiles["MyBERT, Predictor"][0, 1]
    rows = [
        (name, *(f"{value:.2f}" for value in (found[0, 1], found[1, 1], found[0, 1] / ours, *found[:, 0])))
        for name, found in quantiles.items()
    ]
    print_table(title, rows, ("side", "CPU p50, ms", "CPU p99, ms", "CPU p50 / Predictor's", "p50, ms", "p99, ms"))


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
