"""Verification of a model in a clean process: every Auto class, bit for bit, and the pipeline on a long text."""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

from modeling_mybert import MyBertConfig, MyBertModel, operations_mybert
from mybert.common.errors import UserError
from mybert.inference.checkpoint import Checkpoint, open_checkpoint, quiet_loading
from mybert.release.convert.compare_models import largest_differences, outputs_of, ragged_batches
from mybert.release.hub.handler import PIPELINE_ARGUMENTS, PIPELINES

SCRIPT = Path(__file__).with_name("clean_process_check.py")
TOLERANCE = 1e-4  # of transformers' BERT
_TEXTS = ["A text.", "Text, with “quotes”, 数字 123 and ñandú.", "", "long " * 40]
_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT")
_COMPUTING = ("ATEN_", "DNNL_", "GOMP_", "KMP_", "MKL_", "OMP_", "ONEDNN_")  # threads and instructions: outputs differ


def write_reference(checkpoint: Path, folder: Path) -> None:
    """Writes outputs, labels and token ids by the classes of this package into the new `folder`."""
    folder.mkdir()
    loaded, faster = open_checkpoint(str(checkpoint)), operations_mybert.faster
    if loaded.model.config.int8_outliers is None:  # the code of a checkpoint computes without this package
        operations_mybert.faster = None
    try:
        _write_reference(loaded, folder)
    finally:
        operations_mybert.faster = faster


def _write_reference(loaded: Checkpoint, folder: Path) -> None:
    model, tokenizer, head = loaded.model, loaded.tokenizer, type(loaded.model).__name__
    encoder, batches = model.base_model, list(ragged_batches(model))
    flat = {name: x.flatten(0, -2) for name, x in batches[-1].items()}  # choices as rows
    tensors = {"encoder": outputs_of(encoder, flat)["last_hidden_state"]}
    for number, batch in enumerate(batches):
        tensors |= {f"inputs/{number}/{name}": x for name, x in batch.items()}
        tensors |= {f"outputs/{number}/{name}": x for name, x in outputs_of(model, batch).items()}
    reference = {
        "head": head,
        "batches": len(batches),
        "labels": {str(index): label for index, label in model.config.id2label.items()},
        "texts": _TEXTS,
        "ids": [tokenizer(text)["input_ids"] for text in _TEXTS],
        "pipeline": pipeline_call(head, encoder.config, tokenizer.mask_token),
        "threads": torch.get_num_threads(),
        "needs_package": encoder.config.int8_outliers is not None,
    }
    save_file({name: x.contiguous() for name, x in tensors.items()}, folder / "reference.safetensors")
    (folder / "reference.json").write_text(json.dumps(reference), encoding="utf-8", newline="\n")


def pipeline_call(head: str, config: MyBertConfig, mask: str) -> dict[str, Any] | None:
    """Task, arguments and an input longer than the model can read; None for heads without a pipeline of texts.

    `trust` are the values of `trust_remote_code` to try.
    """
    task, long_text = PIPELINES[head], "long " * (config.max_position_embeddings + 8)
    inputs = {
        "fill-mask": f"{mask} {long_text}",
        "question-answering": {"question": "Where?", "context": long_text},
        **dict.fromkeys(("text-classification", "token-classification", "feature-extraction"), long_text),
    }
    if task not in inputs:
        return None
    is_int8 = config.int8_outliers is not None
    trust = [True] if is_int8 or task == "question-answering" else [True, False]
    return {"task": task, "inputs": inputs[task], "arguments": pipeline_arguments(task, is_int8), "trust": trust}


def pipeline_arguments(task: str | None, is_int8: bool) -> dict[str, Any]:
    """Arguments of a pipeline, which uses a GPU if there is one; int8 weights work on the CPU only."""
    return {**PIPELINE_ARGUMENTS.get(task or "", {}), **({"device": "cpu"} if is_int8 else {})}


def clean_environment() -> dict[str, str]:
    """The environment of a clean process: without tokens, and with the same threads and instructions."""
    return {name: value for name, value in os.environ.items() if name in _ENVIRONMENT or name.startswith(_COMPUTING)}


def verify(model: str, reference: Path, classes: list[str], revision: str = "main", home: Path | None = None) -> None:
    """Compares `model` with a reference, in a process without this package, without network and without the token.

    int8 weights need the package `mybert`; the code of the model is that of the checkpoint all the same.

    Args:
        model: a folder, or the name of a repository in the cache of `home`.
        reference: a folder of `write_reference`.
        classes: names of Auto classes, except AutoConfig.
        home: HF_HOME of that process (default: an empty folder).
    """
    with tempfile.TemporaryDirectory() as scratch:
        environment = clean_environment() | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
        environment |= {"HF_HOME": str(home or scratch), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, "-P", "-E", str(SCRIPT), model, revision, str(reference), *classes]
        done = subprocess.run(
            command, env=environment, cwd=scratch, capture_output=True, text=True, encoding="utf-8", errors="replace"
        )
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise UserError(f"the model does not work in a clean process: {reason[0]}")


def compare_with_bert(folder: Path) -> float | None:
    """The largest difference of the outputs from those of transformers' own BERT; raises above the tolerance.

    None for int8 weights, which transformers has no BERT class for.
    """
    model = open_checkpoint(str(folder)).model
    if model.config.int8_outliers is not None:
        return None
    arguments = {"add_pooling_layer": False} if isinstance(model, MyBertModel) and model.pooler is None else {}
    cls = getattr(transformers, type(model).__name__.removeprefix("My"))
    with quiet_loading():
        bert = cls.from_pretrained(folder, dtype="float32", **arguments).eval()
    expected, actual = functools.partial(outputs_of, bert), functools.partial(outputs_of, model.float())
    differences = largest_differences(expected, actual, ragged_batches(model))
    largest = max(differences.values(), key=lambda x: (x != x, x))  # NaN is largest
    if not largest <= TOLERANCE:
        raise UserError(f"without remote code, the outputs differ by {largest:.3g}, above {TOLERANCE:g}")
    return largest
