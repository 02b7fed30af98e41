"""Soft labels: a fine-tuned teacher's predictions for the training rows, used in addition to the labels.

Shapes: `B` features of a batch, `S` longest sequence, `C` classes, labels or choices.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from accelerate import PartialState
from datasets import Dataset, Features, concatenate_datasets
from scipy.special import expit
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as binary_cross_entropy

from mybert.common.errors import UserError
from mybert.finetuning.settings import FinetuneSettings
from mybert.inference.checkpoint_tokenizer import trained_tokens
from mybert.inference.logits import logits_of
from mybert.inference.task_checkpoint import Finetuned, load_finetuned
from mybert.tasks.base import Task
from mybert.tasks.settings import PredictorSettings
from mybert.training.objective import soft_loss
from tokenization import MyBertTokenizer

logger = logging.getLogger(__name__)

TEACHER_LOGITS = "teacher_logits"
_STORED = "teacher_logits.parquet"
SPANS = ("start_positions", "end_positions")
OUTSIDE = 2**31 - 1  # a position that the head for spans ignores
_LEAST = -1e4  # a logit whose probability is zero


def load_teacher(name: str, settings: FinetuneSettings, task: Task, tokenizer: MyBertTokenizer) -> Finetuned:
    """Loads the teacher and checks that it has the vocabulary of the student."""
    teacher = load_finetuned(PredictorSettings(model=name))
    if teacher.task.name != task.name:
        raise UserError(f"--teacher {name} was fine-tuned for {teacher.task.name}, not for {task.name}")
    if different := teacher.tokenizer.difference_from(tokenizer):
        raise UserError(
            f"--teacher {name} has another {different} than --model {settings.model}; start from a model with the "
            f"teacher's {different}, such as one made by `mybert distill --teacher {name}`"
        )
    length, trained = task.options.length, trained_tokens(teacher.task.config, teacher.tokenizer)
    if (positions := teacher.task.config.max_position_embeddings) < length:
        raise UserError(f"--max-length {length}: the teacher {name} has {positions} positions")
    if length > trained and PartialState().is_main_process:
        logger.warning(
            "--max-length %d: the teacher %s was trained on sequences of at most %d tokens; its later position "
            "embeddings are untrained. Use --max-length %d",
            *(length, name, trained, trained),
        )
    return teacher


def with_labels_of(teacher: Task, task: Task, name: str, present: Collection[str]) -> Task:
    """The fitted task of a student with the labels of its teacher, in their order. `present` are those of the rows."""
    kinds = [each_task.config.problem_type for each_task in (teacher, task)]
    if kinds[0] != kinds[1]:
        raise UserError(f"--teacher {name} was trained for {kinds[0]}, the training rows are for {kinds[1]}")
    if task.name in ("question-answering", "multiple-choice") or kinds[1] == "regression":
        return task
    known = list(teacher.label2id)
    if unknown := [label for label in task.label2id if label in present and label not in known]:
        raise UserError(f"--teacher {name} does not know the label {unknown[0]!r}; it has {', '.join(known)}")
    return task.with_labels(known)


@dataclass(frozen=True)
class SoftLabels:
    """The loss between the logits of a student and its teacher.

    Attributes:
        kind: `classes`: one distribution for a feature or token; `labels`: independent labels; `value`: a number;
            `spans`: one distribution over the tokens for each end of an answer.
        width: number of logits of a token; None for logits of whole features.
        temperature: of distributions.
        share: of the soft loss in the whole loss; the rest is the loss of the labels.
    """

    kind: str
    width: int | None
    temperature: float
    share: float

    @classmethod
    def of(cls, task: Task, settings: FinetuneSettings) -> "SoftLabels":
        problem = {"regression": "value", "multi_label_classification": "labels"}.get(str(task.config.problem_type))
        kind = "spans" if task.name == "question-answering" else problem or "classes"
        width = {"question-answering": 2, "token-classification": task.config.num_labels}.get(task.name)
        return cls(kind, width, settings.temperature, settings.soft_share)

    def of_teacher(self, teacher: Finetuned, task: Task, features: Dataset) -> list[np.ndarray]:
        """The logits of each feature: (C,), (S, C) or (S, 2), NaN where a token predicts nothing."""
        all_logits = logits_of(teacher.model, task, teacher.tokenizer, features)
        if self.width is None:
            return all_logits
        all_logits = [logits[: len(ids)] for logits, ids in zip(all_logits, features["input_ids"][:], strict=True)]
        if "words" in features.column_names:
            all_logits = [
                np.where(np.array(words)[:, None] < 0, np.nan, logits)
                for words, logits in zip(features["words"][:], all_logits, strict=True)
            ]
        return all_logits

    def without_labels(self, features: Dataset, logits: list[np.ndarray], labelled: Features) -> Dataset:
        """Features of unlabelled rows with targets that the loss ignores; in regression, the teacher's predictions."""
        if self.kind == "spans":
            columns: dict[str, list[Any]] = dict.fromkeys(SPANS, [-100] * len(features))
        elif self.kind == "value":
            columns = {"labels": [float(value[0]) for value in logits]}
        elif self.kind == "labels":
            columns = {"labels": [expit(values).tolist() for values in logits]}
        elif self.width is None:
            columns = {"labels": [-100] * len(features)}
        else:
            columns = {"labels": [[-100] * len(ids) for ids in features["input_ids"][:]]}
        targets = Dataset.from_dict(columns, features=Features({name: labelled[name] for name in columns}))
        return concatenate_datasets([features, targets], axis=1).select_columns(list(labelled))

    def collator(
        self, inner: Callable[[list[dict[str, Any]]], dict[str, Any]]
    ) -> Callable[[list[dict[str, Any]]], dict[str, Any]]:
        """Adds the teacher's logits to batches: (B, C) or (B, S, width), NaN where there are none."""

        def collate(features: list[dict[str, Any]]) -> dict[str, Any]:
            rows = [dict(row) for row in features]
            logits = [row.pop(TEACHER_LOGITS, None) for row in rows]
            batch = inner(rows)
            if logits[0] is not None:
                arrays = [np.array(x, dtype=np.float32).reshape(-1, self.width or 1) for x in logits]
                longest = batch["input_ids"].shape[1] if self.width else max(map(len, arrays))
                out = torch.full((len(arrays), longest, self.width or 1), torch.nan)
                for place, array in enumerate(arrays):
                    out[place, : len(array)] = torch.from_numpy(array)
                batch[TEACHER_LOGITS] = out if self.width else out[..., 0]
            return batch

        return collate

    def items(self, logits: Tensor) -> Tensor:
        """The number of soft targets in a batch."""
        if self.kind == "classes":
            return logits[..., 0].isfinite().sum()
        return torch.tensor(len(logits)) if self.kind == "spans" else logits.isfinite().sum()

    def loss(self, outputs: Mapping[str, Tensor], teacher: Tensor) -> Tensor:
        """The soft loss, summed over the soft targets."""
        if self.kind == "spans":
            student = torch.stack([outputs["start_logits"], outputs["end_logits"]], dim=1)  # (B, 2, S)
            return self._divergence(student, teacher.transpose(1, 2)) / 2
        student = outputs["logits"]
        if self.kind == "classes":
            real = teacher[..., 0].isfinite()
            return self._divergence(student[real], teacher[real])
        if self.kind == "value":
            return (student.float() - teacher).square().sum()
        expected = (teacher / self.temperature).sigmoid()
        entropies = [binary_cross_entropy(x.float() / self.temperature, expected) for x in (student, teacher)]
        return (entropies[0] - entropies[1]) * teacher.numel() * self.temperature**2

    def _divergence(self, student: Tensor, teacher: Tensor) -> Tensor:
        absent = teacher.isnan()  # added choices, and padding
        student, teacher = (x.float().masked_fill(absent, _LEAST) for x in (student, teacher))
        return soft_loss(student, teacher, self.temperature).sum()


def with_logits(features: Dataset, logits: list[np.ndarray]) -> Dataset:
    """Features with a column of flat logits."""
    flat = [array.ravel().astype(np.float32) for array in logits]
    offsets = np.cumsum([0, *map(len, flat)]).astype(np.int32)
    column = pa.ListArray.from_arrays(offsets, np.concatenate(flat))
    return concatenate_datasets([features, Dataset(pa.table({TEACHER_LOGITS: column}))], axis=1)


def store_logits(features: Dataset, folder: Path) -> None:
    """Writes the logits of a run with a teacher into its output folder."""
    if TEACHER_LOGITS in features.column_names:
        aside = folder / f".{_STORED}.partial"
        pq.write_table(features.select_columns(TEACHER_LOGITS).with_format("arrow")[:], aside)
        aside.replace(folder / _STORED)


def stored_logits(folder: Path) -> list[np.ndarray] | None:
    """The flat logits of each feature that `store_logits` has written; None if there are none."""
    if not (folder / _STORED).is_file():
        return None
    column = pq.read_table(folder / _STORED)[TEACHER_LOGITS].combine_chunks()
    return np.split(column.values.to_numpy(), column.offsets.to_numpy()[1:-1])


def remove_logits(folder: Path) -> None:
    (folder / _STORED).unlink(missing_ok=True)
