"""Verification of a model in a clean process: every Auto class, bit for bit, and the pipeline on a long text."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from modeling_mybert import MyBertConfig
from mybert.common.errors import UserError
from mybert.release.convert.compare_models import outputs_of, ragged_batches
from mybert.release.convert.export_bert import write_bert
from mybert.release.convert.full_checkpoint import load_checkpoint
from mybert.release.heads import HEADS, PIPELINE_ARGUMENTS

CLEAN_PROCESS_SCRIPT = Path(__file__).with_name("clean_process_check.py")
TOLERANCE = 1e-4  # for plain BERT, as in `mybert export`
_TEXTS = ["A text.", "Text, with “quotes”, 数字 123 and ñandú.", "", "long " * 40]
_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Expected:
    """Outputs of the checkpoint by the classes of this package.

    Attributes:
        head, base: names of its class and of the class of its encoder.
        batches: padded inputs.
        outputs: of each batch.
        encoder: last hidden states of the last batch.
        labels: its id2label.
        ids: of the texts, by its tokenizer.
        pipeline: task, inputs and arguments of a pipeline call on a long text, if the head has a pipeline.
    """

    head: str
    base: str
    batches: list[Mapping[str, Tensor]]
    outputs: list[dict[str, Tensor]]
    encoder: Tensor
    labels: dict[str, str]
    ids: list[list[int]]
    pipeline: dict | None

    @classmethod
    def of(cls, folder: Path) -> "Expected":
        """Loads a checkpoint and computes its outputs.

        Raises:
            UserError: it cannot be loaded.
        """
        checkpoint = load_checkpoint(str(folder))
        model, tokenizer = checkpoint.model, checkpoint.tokenizer
        is_pair = model.config.is_encoder_decoder
        encoder = model.encoder if is_pair else model.base_model
        batches = list(ragged_batches(encoder if is_pair else model))
        states = outputs_of(encoder, {name: x.flatten(0, -2) for name, x in batches[-1].items()})["last_hidden_state"]
        if is_pair:
            batches = [_with_decoder_ids(batch, model.config.decoder) for batch in batches]
        return cls(
            head=type(model).__name__,
            base=type(encoder).__name__,
            batches=batches,
            outputs=[outputs_of(model, batch) for batch in batches],
            encoder=states,
            labels={str(index): label for index, label in model.config.id2label.items()},
            ids=[tokenizer(text)["input_ids"] for text in _TEXTS],
            pipeline=_pipeline_call(type(model).__name__, encoder.config, tokenizer.mask_token),
        )


def _with_decoder_ids(batch: Mapping[str, Tensor], decoder: MyBertConfig) -> dict[str, Tensor]:
    ids = batch["input_ids"][:, : decoder.max_position_embeddings] % decoder.vocab_size
    return {**batch, "decoder_input_ids": ids}


def _pipeline_call(head: str, config: MyBertConfig, mask: str) -> dict | None:
    task, long_text = HEADS[head].pipeline, "long " * (config.max_position_embeddings + 8)
    inputs = {
        "fill-mask": f"{mask} {long_text}",
        "question-answering": {"question": "Where?", "context": long_text},
        **dict.fromkeys(("text-classification", "token-classification", "feature-extraction"), long_text),
    }
    if task not in inputs:
        return None
    return {"task": task, "inputs": inputs[task], "arguments": PIPELINE_ARGUMENTS.get(task, {})}


def verify(
    model: str, expected: Expected, classes: list[str], revision: str = "main", home: Path | None = None
) -> None:
    """Loads `model` with each of `classes` in a process without this package and without network.

    Args:
        model: a folder, or the name of a repository in the cache of `home`.
        classes: names of Auto classes, except AutoConfig.
        home: HF_HOME of that process (default: an empty folder).

    Raises:
        UserError: a class or the pipeline fails, or an output, a label or a token id differs.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        inputs = {f"{i}/{name}": x for i, batch in enumerate(expected.batches) for name, x in batch.items()}
        save_file({name: x.contiguous() for name, x in inputs.items()}, folder / "inputs.safetensors")
        job = {
            "model": model,
            "revision": revision,
            "classes": classes,
            "head": expected.head,
            "base": expected.base,
            "pipeline": expected.pipeline,
            "inputs": str(folder / "inputs.safetensors"),
            "outputs": str(folder / "outputs.safetensors"),
            "batches": len(expected.batches),
            "texts": _TEXTS,
            "threads": torch.get_num_threads(),
        }
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        found = _run(folder, home or folder / "home")
        compare(expected, classes, load_file(folder / "outputs.safetensors"), found["labels"], found["ids"])


def _run(folder: Path, home: Path) -> dict:
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}  # without the token
    environment |= {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-P", "-E", str(CLEAN_PROCESS_SCRIPT), str(folder / "job.json")]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise UserError(f"the model does not work in a process without MyBERT: {reason[0]}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(expected: Expected, classes: list[str], found: dict[str, Tensor], labels: dict, ids: list) -> None:
    """Compares the results of the clean process with those of the checkpoint.

    Args:
        found: tensors named `class/batch/output` or `class/encoder`.
        labels: id2label.
        ids: token ids of the texts, by each tokenizer.

    Raises:
        UserError: they differ.
    """
    wanted = {name: expected.encoder for name in found if name.endswith("/encoder")}
    outputs = [(f"{i}/{name}", x) for i, batch in enumerate(expected.outputs) for name, x in batch.items()]
    by_head = [auto for auto in classes if all(f"{auto}/{key}" in found for key, _ in outputs)]
    if not by_head:
        raise UserError(f"none of {', '.join(classes)} loads the saved head, {expected.head}")
    wanted |= {f"{auto}/{key}": x for auto in by_head for key, x in outputs}
    for name, tensor in wanted.items():
        if not torch.equal(found[name], tensor):
            auto, *_, output = name.split("/")
            raise UserError(f"{output} by {auto} differs from that of the checkpoint")
    if labels != expected.labels:
        raise UserError("the labels differ from those of the checkpoint")
    if any(each != expected.ids for each in ids):
        raise UserError("the token ids by AutoTokenizer differ from those of the checkpoint's tokenizer")


def compare_with_bert(folder: Path) -> float | None:
    """Exports a bundle to transformers' own BERT and compares the outputs.

    Returns:
        The largest difference; None for an encoder-decoder, which transformers has no BERT class for.

    Raises:
        UserError: it is above the tolerance, or transformers has no such head.
    """
    model = load_checkpoint(str(folder)).model
    if model.config.is_encoder_decoder:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        largest = max(write_bert(model, Path(scratch)).values())
    if not largest <= TOLERANCE:
        raise UserError(f"as plain BERT, the outputs differ by {largest:.3g}, above {TOLERANCE:g}")
    return largest
