"""`mybert suggest`: a fine-tuned model + rows without labels → the rows worth labelling next."""

import heapq
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset

from mybert.artifacts.manifest import identity, write_manifest
from mybert.artifacts.staging import staged_file
from mybert.common.errors import UserError
from mybert.common.progress import Bar
from mybert.common.quantities import counted
from mybert.evaluation.labelling_files import RowToLabel, check_form, label_columns, write_rows_to_label
from mybert.inference.logits import logits_of
from mybert.inference.onnx_model import OnnxModel
from mybert.inference.predict import checked_parts
from mybert.inference.predictor import Predictor
from mybert.inference.sentence_modules import TextVectors
from mybert.rows.labels import REGRESSION, is_missing
from mybert.rows.similar_rows import Row, SimilarRows, plain_text
from mybert.rows.tables import MemoryRows
from mybert.suggestion.choice import facility_location, most_similar, pool_size, uncertainty_of
from mybert.suggestion.next_step import next_step
from mybert.suggestion.settings import SuggestSettings
from mybert.tasks.base import Task
from mybert.tasks.features import mean_by_row
from mybert.tasks.reading import input_texts


class _Candidate(NamedTuple):
    """A row of the pool: as given, its columns, its texts in a plain form, and what the model says."""

    given: dict[str, Any] | str
    row: dict[str, Any]
    plain: Row
    prediction: dict[str, Any]
    uncertainty: float
    reason: str


_UNUSABLE, _LABELLED, _SIMILAR, _SAME = "unusable", "with a label", "like labelled rows", "like other rows"
"""Rows that are left out."""


def suggest(settings: SuggestSettings) -> Path:
    """Writes the rows worth labelling next, the best first; see `choice`.

    Returns:
        The file. `OUTPUT.manifest.json` records settings, inputs and counts.

    Raises:
        UserError: the checkpoint, a row or the output cannot be used, or all rows are labelled. Nothing is written.
    """
    read = [*settings.inputs, *settings.labelled]
    with staged_file(settings.output, read, overwrite=settings.overwrite) as path:
        predictor = Predictor(settings)
        encoder = _encoder(settings, predictor)
        known = checked_parts(settings.labelled, settings.errors, predictor) if settings.labelled else ()
        labelled = [rows for part in known for _, rows in part.tables]
        rows, pool, left_out = _most_uncertain(settings, predictor, labelled)
        if not pool:
            raise UserError(f"{', '.join(settings.inputs)}: no row is left to suggest{_reasons(left_out)}")
        assert settings.format is not None  # the settings have chosen it
        suggestions = _choose(settings, predictor, encoder, pool, labelled)
        model = Path(settings.model).name
        write_rows_to_label(path, suggestions, settings.format, model, predictor.task, settings.spreadsheet_safe)
        write_manifest(
            path.parent,
            "suggest",
            settings=settings,
            inputs={
                "model": identity(settings.model),
                "rows": [identity(name) for name in settings.inputs],
                "labelled": [identity(name) for name in settings.labelled],
            },
            counts={
                "rows": rows,
                "labelled": sum(map(len, labelled)),
                "pool": len(pool),
                "suggestions": len(suggestions),
            },
        )
    if len(suggestions) < settings.count:
        left_out[_SAME] += len(pool) - len(suggestions)
    print(f"suggestions: {len(suggestions):,} of {counted(rows, 'row')}{_reasons(left_out)}", file=sys.stderr)
    label = " and ".join(label_columns(suggestions[0].row, predictor.task))
    print(next_step(settings, label), file=sys.stderr)
    return Path(settings.output)


def _reasons(left_out: Mapping[str, int]) -> str:
    """How many rows are left out, by reason; empty without any."""
    counts = [f"{count:,} {reason}" for reason, count in left_out.items() if count]
    return f"; left out: {', '.join(counts)}" if counts else ""


def _encoder(settings: SuggestSettings, predictor: Predictor) -> TextVectors:
    """The mean hidden states of a model, which has to give probabilities of labels."""
    task, model = predictor.task, predictor.model
    if task.name not in ("text-classification", "token-classification") or task.config.problem_type == REGRESSION:
        kind = "regression" if task.config.problem_type == REGRESSION else task.name
        raise UserError(
            f"expected a model of text-classification with labels or of token-classification, found {kind} in "
            f"{settings.model}, which gives no probabilities of labels; label random rows instead"
        )
    if isinstance(model, OnnxModel):
        raise UserError(
            f"suggest compares the hidden states of rows, which the ONNX model {settings.model} lacks; use the "
            "checkpoint that it was exported from"
        )
    encoder: Any = model.base_model
    return TextVectors(encoder, None, settings.model)


def _most_uncertain(
    settings: SuggestSettings, predictor: Predictor, labelled: Sequence[Dataset | MemoryRows]
) -> tuple[int, list[_Candidate], Counter[str]]:
    """The number of rows, the most uncertain ones that are unlike `labelled`, each text once, and why others are not.

    Rows with a label are used only if no row lacks one, as in a pool whose labels are not looked at.
    """
    assert settings.format is not None  # the settings have chosen it
    known = [row for rows in labelled for row in _plain_rows(rows, predictor.task)]
    size, exact, seen, near = pool_size(settings.count), set(known), set[Row](), SimilarRows(known)
    for one in known:
        near.add(one)
    count = usable = with_label = 0
    pools: dict[bool, list[_Candidate]] = {False: [], True: []}  # by whether the rows have a label
    left_out = {has_label: Counter[str]() for has_label in pools}
    threshold = getattr(predictor.task.config, "label_threshold", None) or 0.5
    with Bar(desc="predicting", unit="features") as bar:
        for part in checked_parts(settings.inputs, settings.errors, predictor):
            for _, table in part.tables:
                check_form("--format", settings.format, predictor.task, table.column_names)
            count += len(part.numbers)
            given: dict[int, Any] = dict(zip(part.numbers, part.given, strict=True))
            for numbers, rows, _, _, predictions in predictor.outputs(part, bar.update):
                plain = _plain_rows(rows, predictor.task)
                for number, row, text, prediction in zip(numbers, rows, plain, predictions, strict=True):
                    names = label_columns(row, predictor.task) if isinstance(given[number], dict) else ()
                    labels = [given[number].get(name) for name in names]
                    has_label = not all(is_missing(value) or value == [] for value in labels)
                    usable, with_label = usable + 1, with_label + has_label
                    if text in exact or near.similar(text):
                        left_out[has_label][_SIMILAR] += 1
                    elif text in seen:
                        left_out[has_label][_SAME] += 1
                    else:
                        seen.add(text)
                        candidate = _Candidate(
                            given[number], row, text, prediction, *uncertainty_of(prediction, threshold)
                        )
                        pools[has_label].append(candidate)
            for has_label, pool in pools.items():
                pools[has_label] = heapq.nlargest(size, pool, key=lambda candidate: candidate.uncertainty)
    every_has_label = usable == with_label
    if usable and every_has_label:
        print("every row has a label: rows are chosen as if none had one", file=sys.stderr)
    reasons = left_out[every_has_label] + Counter({_UNUSABLE: count - usable})
    if not every_has_label:
        reasons[_LABELLED] = with_label
    return count, pools[every_has_label], reasons


def _plain_rows(rows: Dataset | MemoryRows, task: Task) -> list[Row]:
    return [tuple(map(plain_text, texts)) for texts in input_texts(rows, task)]


def _choose(
    settings: SuggestSettings,
    predictor: Predictor,
    encoder: TextVectors,
    pool: Sequence[_Candidate],
    labelled: Sequence[Dataset | MemoryRows],
) -> list[RowToLabel]:
    names = dict.fromkeys(name for candidate in pool for name in candidate.row)
    table = MemoryRows({name: [candidate.row.get(name) for candidate in pool] for name in names})
    vectors = _vectors(settings, predictor, encoder, table)
    known = np.concatenate([vectors[:0], *(_vectors(settings, predictor, encoder, rows) for rows in labelled)])
    weights = np.array([candidate.uncertainty for candidate in pool], dtype=np.float32)
    chosen, near = list[int](), SimilarRows(candidate.plain for candidate in pool)
    for row in facility_location(vectors, weights, known):
        if not near.similar(pool[row].plain):
            chosen.append(row)
            near.add(pool[row].plain)
        if len(chosen) == settings.count:
            break
    others = np.bincount(most_similar(vectors, chosen), minlength=len(chosen)) - 1
    suggestions = []
    for one, number in zip([pool[row] for row in chosen], others.tolist(), strict=True):
        similar = f"; most similar to {counted(number, 'other uncertain row')}" if number else ""
        notes = {"uncertainty": round(one.uncertainty, 4), "reason": one.reason + similar}
        suggestions.append(RowToLabel(one.given, one.row, one.prediction, 1 - one.uncertainty, notes))
    return suggestions


def _vectors(
    settings: SuggestSettings, predictor: Predictor, encoder: TextVectors, rows: Dataset | MemoryRows
) -> np.ndarray:
    """(rows, H) the mean hidden state of the tokens of each row."""
    features = predictor.features(rows)
    means = logits_of(encoder, predictor.task, predictor.tokenizer, features, settings.max_tokens_per_batch)
    return mean_by_row(means, features, len(rows)).astype(np.float32)
