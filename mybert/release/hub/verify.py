"""Does who downloads the model get what was meant? Every Auto class, in a clean process, to the last bit."""

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
from mybert.release.convert.full_checkpoint import is_pair, load_checkpoint, load_pair

CLEAN_PROCESS_SCRIPT = Path(__file__).with_name("clean_process_check.py")
TOLERANCE = 1e-4  # of plain BERT, as in `mybert export`
_TEXTS = ["A text.", "Text, with “quotes”, 数字 123 and ñandú.", "", "long " * 40]
_KEPT = (
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "SYSTEMROOT",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
)


@dataclass(frozen=True)
class Expected:
    """What the checkpoint says by this package's own classes.

    Attributes:
        head, base: its class, and that of its encoder.
        batches: padded inputs.
        outputs: of each batch.
        encoder: last hidden states of the last batch.
        labels: its id2label.
        ids: of the texts, by its tokenizer.
    """

    head: str
    base: str
    batches: list[Mapping[str, Tensor]]
    outputs: list[dict[str, Tensor]]
    encoder: Tensor
    labels: dict[str, str]
    ids: list[list[int]]

    @classmethod
    def of(cls, checkpoint: Path) -> "Expected":
        """
        Raises:
            UserError: it cannot be read.
        """
        loaded = load_pair(str(checkpoint)) if is_pair(checkpoint) else load_checkpoint(str(checkpoint))
        model = loaded.model
        encoder = model.encoder if model.config.is_encoder_decoder else model.base_model
        batches = list(ragged_batches(encoder if model.config.is_encoder_decoder else model))
        flat = {name: x.flatten(0, -2) for name, x in batches[-1].items()}
        with torch.no_grad():
            states = encoder(**flat).last_hidden_state
        if model.config.is_encoder_decoder:
            batches = [_for_pair(batch, model.config.decoder) for batch in batches]
        return cls(
            type(model).__name__,
            type(encoder).__name__,
            batches,
            [outputs_of(model, batch) for batch in batches],
            states,
            {str(index): label for index, label in model.config.id2label.items()},
            [loaded.tokenizer(text)["input_ids"] for text in _TEXTS],
        )


def _for_pair(batch: Mapping[str, Tensor], decoder: MyBertConfig) -> dict[str, Tensor]:
    """The batch, and what the decoder has written so far: the same ids, as far as it knows and holds them."""
    written = batch["input_ids"][:, : decoder.max_position_embeddings] % decoder.vocab_size
    return {**batch, "decoder_input_ids": written}


def verify(
    model: str, expected: Expected, classes: list[str], revision: str = "main", home: Path | None = None
) -> None:
    """Loads `model` by every one of `classes` in a process that knows nothing of this project and has no network.

    Args:
        model: folder, or the name of a repository that lies in the cache of `home`.
        classes: names of Auto classes, AutoConfig apart.
        home: HF_HOME of that process; an empty one when not given.

    Raises:
        UserError: a class does not load, or an output is not the same to the last bit.
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
            "inputs": str(folder / "inputs.safetensors"),
            "outputs": str(folder / "outputs.safetensors"),
            "batches": len(expected.batches),
            "texts": _TEXTS,
            "threads": torch.get_num_threads(),
        }
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        said = _run(folder, home or folder / "home")
        _compare(load_file(folder / "outputs.safetensors"), said, expected, classes)


def _run(folder: Path, home: Path) -> dict:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}  # no token among them
    environment |= {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-P", "-E", str(CLEAN_PROCESS_SCRIPT), str(folder / "job.json")]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise UserError(f"the model cannot be loaded by a process that has no MyBERT installed: {reason[0]}")
    return json.loads(done.stdout.splitlines()[-1])


def _compare(found: dict[str, Tensor], said: dict, expected: Expected, classes: list[str]) -> None:
    wanted = {name: expected.encoder for name in found if name.endswith("/encoder")}
    compared = 0
    for auto in classes:
        for index, outputs in enumerate(expected.outputs):
            keys = {f"{auto}/{index}/{name}": x for name, x in outputs.items()}
            if keys.keys() <= found.keys():
                wanted |= keys
                compared += 1
    if not compared:
        raise UserError(f"none of {', '.join(classes)} gives the head that was saved, {expected.head}")
    for name, tensor in wanted.items():
        if not torch.equal(found[name], tensor):
            raise UserError(f"{name.split('/')[0]} gives another {name.split('/')[-1]} than the checkpoint did")
    if said["labels"] != expected.labels:
        raise UserError("the labels are not those of the checkpoint")
    if any(ids != expected.ids for ids in said["ids"]):
        raise UserError("AutoTokenizer gives other ids than the checkpoint's tokenizer did")


def verify_plain_bert(folder: Path) -> float | None:
    """Exports the bundle to transformers' own BERT and compares what that says.

    Returns:
        The largest difference of any output; None for a pair of models, which transformers has no BERT of.

    Raises:
        UserError: it is above the tolerance, or there is no such BERT.
    """
    if is_pair(folder):
        return None
    with tempfile.TemporaryDirectory() as scratch:
        largest = max(write_bert(load_checkpoint(str(folder)).model, Path(scratch)).values())
    if not largest <= TOLERANCE:
        raise UserError(f"as plain BERT the model gives outputs that differ by {largest:.3g}, above {TOLERANCE:g}")
    return largest
