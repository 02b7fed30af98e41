"""Programs for BERT with and without `modeling_mybert.use_for_bert()`, beside other means to make them faster.

    python benchmarks/unchanged_programs.py MINILM [--programs encode pipeline] [--sides transformers use_for_bert]
        [--text python-docs] [--rounds 5] [--threads 2] [--markdown FILE]

The programs are those of the other libraries' documentation: encoding and training with sentence-transformers, a
script with Trainer like `run_glue`, and a pipeline of token classification. They name no class of MyBERT. A side is

- transformers: the program as it is, with sdpa;
- use_for_bert: the program after this line;
- mybert: `Embedder`, or the trainer of `mybert finetune --task retrieval` with the same rows, loss and batch size;
- sorted: rows of similar length are batched together; sentence-transformers does so when it encodes;
- torch.compile: each layer is compiled for any shape;
- ONNX Runtime, OpenVINO (if installed): the model's `forward` computes the exported graph in float32.

Each side runs in a process of its own; all take turns. Before that, their outputs are compared with transformers':
vectors and scores, or the losses of the first steps without dropout. Seconds of training are those of `train()`, with
dropout 0.1. Processor seconds hardly change when other programs compute on the machine.
"""

import argparse
import contextlib
import functools
import importlib.util
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from exported_model import INPUTS, exported
from sides import Sides, in_own_process, in_turns, process_context, timed

SENTENCES, ROWS, BATCH = 256, 128, 16
CHECKED_STEPS = 8
ALLOWED = {"encode": 1e-4, "pipeline": 1e-4, "embeddings": 1e-3, "trainer": 1e-3}  # relative to the largest output
PRELOADED = ["transformers.models.bert.modeling_bert", "transformers.trainer", "sentence_transformers"]
INFERENCE = ("transformers", "use_for_bert", "torch.compile", "ONNX Runtime", "OpenVINO")
SIDES = {
    "encode": (*INFERENCE, "mybert"),
    "embeddings": ("transformers", "use_for_bert", "mybert", "torch.compile"),
    "trainer": ("transformers", "use_for_bert", "sorted", "torch.compile"),
    "pipeline": (*INFERENCE, "sorted"),
}
TITLES = {
    "encode": f"SentenceTransformer.encode, {SENTENCES} sentences",
    "embeddings": f"SentenceTransformerTrainer, {ROWS} pairs, in-batch negatives",
    "trainer": f"Trainer, classification of {ROWS} sentences",
    "pipeline": f"pipeline('token-classification'), {SENTENCES} sentences in batches",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--programs", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--sides", nargs="+", default=[*INFERENCE, "mybert", "sorted"])
    parser.add_argument("--text", default="python-docs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--markdown", help="file to which the tables are added")
    arguments = parser.parse_args()
    os.environ |= {"RAYON_NUM_THREADS": str(arguments.threads), "TOKENIZERS_PARALLELISM": "true", "TQDM_DISABLE": "1"}
    context = process_context("cpu", PRELOADED)
    with tempfile.TemporaryDirectory() as scratch:
        # MyBERT is not imported where transformers is measured
        texts = in_own_process(read_texts, arguments.text, arguments.folder, scratch)
        for program in arguments.programs:
            measure(program, arguments, texts, scratch, context)


def read_texts(text: str, folder: str, scratch: str) -> list[str]:
    """Sentences; saves a checkpoint for each program, with a random head for tasks, with and without dropout."""
    from inference import sentences

    quiet()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for program, head, labels in (
        ("encode", transformers.BertModel, 2),
        ("trainer", transformers.BertForSequenceClassification, 3),
        ("pipeline", transformers.BertForTokenClassification, 9),
    ):
        model = head.from_pretrained(folder, num_labels=labels)
        for dropout in (0.0, 0.1):
            model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = dropout
            model.save_pretrained(Path(scratch) / f"{program}-{dropout}")
            tokenizer.save_pretrained(Path(scratch) / f"{program}-{dropout}")
    return sentences(text, SENTENCES)


def quiet() -> None:
    logging.disable(logging.WARNING)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def measure(program: str, arguments: argparse.Namespace, texts: list[str], scratch: str, context) -> None:
    from saved_tables import save_table

    names = [name for name in SIDES[program] if name in {"transformers", *arguments.sides}]
    if not importlib.util.find_spec("openvino"):
        names = [name for name in names if name != "OpenVINO"]
    failures: dict[str, str] = {}
    inputs = {name: (program, name, scratch, texts, arguments.threads) for name in names}
    with Sides(context, prepare, inputs, failures) as sides:
        expected = sides.ask("transformers", checked)
        off = {name: difference(expected, sides.ask(name, checked)) for name in names if name not in failures}
        failures |= {name: f"differs by {x:.1e}" for name, x in off.items() if not x < ALLOWED[program]}
        measures = {name: functools.partial(sides.ask, name, seconds) for name in names}
        in_turns(measures, 1, "warm-up")
        found = in_turns(measures, arguments.rounds, program)
    medians = {name: np.median(found[name], axis=0) for name in names if name not in failures}
    theirs = medians["transformers"]
    rows = [
        (name, *(f"{x:.3g}" for x in own), *(f"{x:.2f}" for x in theirs / own), f"{off[name]:.0e}")
        for name, own in medians.items()
    ]
    rows += [(name, why, *[""] * 4) for name, why in failures.items()]
    title = f"{TITLES[program]}, {arguments.threads} threads, torch {torch.__version__}"
    columns = ("side", "seconds", "of a processor", "times as fast", "by processor time", "largest difference")
    save_table(arguments.markdown, title, rows, columns)


def difference(expected: np.ndarray, found: np.ndarray | None) -> float:
    if found is None or found.shape != expected.shape:
        return float("inf")
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def prepare(program: str, side: str, scratch: str, texts: list[str], threads: int) -> tuple[Callable, Callable]:
    """Two functions of a side in its process: for the output that is compared, and for the seconds."""
    quiet()
    torch.set_num_threads(threads)
    if side == "use_for_bert":
        import modeling_mybert

        modeling_mybert.use_for_bert()
    return PROGRAMS[program](side, Path(scratch), texts)


def checked(side: tuple[Callable, Callable]) -> np.ndarray:
    return side[0]()


def seconds(side: tuple[Callable, Callable]) -> tuple[float, float]:
    """Seconds that pass, and of the processor."""
    return side[1]()


def seconds_of(run: Callable[[], object]) -> tuple[float, float]:
    with contextlib.redirect_stdout(None):
        return timed(run)[1:]


def encode(side: str, scratch: Path, texts: list[str]) -> tuple[Callable, Callable]:
    if side == "mybert":
        from mybert import Embedder
        from mybert.common.machine import keep_freed_memory

        keep_freed_memory()  # the default of `mybert embed`
        embedder = Embedder(str(scratch / "encode-0.1"), device="cpu")
        return of_inference(lambda: embedder.texts(texts))
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(scratch / "encode-0.1"), device="cpu")
    change(side, model[0].auto_model)
    return of_inference(lambda: model.encode(texts, batch_size=32, show_progress_bar=False))


def pipeline(side: str, scratch: Path, texts: list[str]) -> tuple[Callable, Callable]:
    tag = transformers.pipeline("token-classification", model=str(scratch / "pipeline-0.1"), device="cpu")
    change(side, tag.model)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i])) if side == "sorted" else range(len(texts))

    def run() -> np.ndarray:
        found = dict(zip(order, tag([texts[i] for i in order], batch_size=32), strict=True))
        return np.array([token["score"] for i in range(len(texts)) for token in found[i]])

    return of_inference(run)


def of_inference(run: Callable[[], np.ndarray]) -> tuple[Callable, Callable]:
    return run, lambda: seconds_of(run)


def embeddings(side: str, scratch: Path, texts: list[str]) -> tuple[Callable, Callable]:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments

    rows = Dataset.from_dict({"anchor": texts[:ROWS], "positive": texts[-ROWS:]})
    if side == "mybert":
        return of_training(functools.partial(retrieval_trainer, scratch, texts))

    def trainer(dropout: float, **more) -> SentenceTransformerTrainer:
        model = SentenceTransformer(str(scratch / f"encode-{dropout}"), device="cpu")
        change(side, model[0].auto_model)
        loss = losses.MultipleNegativesRankingLoss(model)
        return SentenceTransformerTrainer(model, arguments_of(Arguments, scratch, **more), rows, loss=loss)

    return of_training(trainer)


def retrieval_trainer(scratch: Path, texts: list[str], dropout: float, **more) -> transformers.Trainer:
    """The trainer of `mybert finetune --task retrieval` for these pairs."""
    from modeling_mybert import use_for_bert
    from mybert.finetuning.arguments import FinetuningArguments
    from mybert.finetuning.settings import FinetuneSettings
    from mybert.retrieval.kinds import Retrieval
    from mybert.retrieval.pairs import Pair, Pairs

    model = str(scratch / f"encode-{dropout}")
    settings = FinetuneSettings(
        task="retrieval", model=model, train="pairs.jsonl", output="out", max_length=512, hard_negatives=0
    )
    of_trainer = {"weight_decay": 0.0, "adam_epsilon": 1e-8, "warmup_steps": 0, "eval_strategy": "no"}  # its defaults
    pairs = Pairs([Pair(*pair) for pair in zip(texts[:ROWS], texts[-ROWS:], strict=True)])
    with use_for_bert():
        kind = Retrieval(settings, given := arguments_of(FinetuningArguments, scratch, **of_trainer, **more))
        pairs = kind.with_negatives(pairs, [], settings, seed=0)
        return kind.trainer(pairs, settings, args=kind.arguments(given))


def trainer(side: str, scratch: Path, texts: list[str]) -> tuple[Callable, Callable]:
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

    tokenizer = AutoTokenizer.from_pretrained(scratch / "trainer-0.1")
    rows = [{**tokenizer(text), "labels": len(text) % 3} for text in texts[:: len(texts) // ROWS]]
    more = {"train_sampling_strategy": "group_by_length"} if side == "sorted" else {}

    def trainer(dropout: float, **settings) -> Trainer:
        model = AutoModelForSequenceClassification.from_pretrained(scratch / f"trainer-{dropout}")
        change(side, model)
        chosen = arguments_of(TrainingArguments, scratch, **settings, **(more if dropout else {}))
        return Trainer(model, chosen, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)

    return of_training(trainer)


def arguments_of(kind: type, scratch: Path, **more):
    """Settings of both training scripts."""
    quiet = {"report_to": "none", "disable_tqdm": True, "save_strategy": "no", "use_cpu": True}
    size = {"per_device_train_batch_size": BATCH, "num_train_epochs": 1, "learning_rate": 2e-5}
    return kind(output_dir=str(scratch / "out"), **{"logging_strategy": "no", **quiet, **size, **more})


def of_training(trainer: Callable) -> tuple[Callable, Callable]:
    """Losses of the first steps without dropout; seconds of an epoch with dropout."""

    def losses() -> np.ndarray:
        with contextlib.redirect_stdout(None):
            run = trainer(0.0, max_steps=CHECKED_STEPS, logging_strategy="steps", logging_steps=1)
            run.train()
        return np.array([entry["loss"] for entry in run.state.log_history if "loss" in entry])

    return losses, lambda: seconds_of(trainer(0.1).train)


def change(side: str, model: transformers.PreTrainedModel) -> None:
    """Makes the model of a program that of a side."""
    assert type(model).__name__.startswith("MyBert") == (side == "use_for_bert"), type(model)
    if side == "torch.compile":
        for layer in model.base_model.encoder.layer:
            layer.compile(dynamic=True)
    elif side in ("ONNX Runtime", "OpenVINO"):
        run, names = exported(side, model.eval())

        def forward(**inputs) -> transformers.utils.ModelOutput:
            arrays = run({name: inputs[name].numpy() for name in INPUTS})
            outputs = dict(zip(names, map(torch.from_numpy, arrays), strict=True))
            return transformers.utils.ModelOutput(outputs)

        model.forward = forward


PROGRAMS = {"encode": encode, "embeddings": embeddings, "trainer": trainer, "pipeline": pipeline}


if __name__ == "__main__":
    main()
