"""Features: the arguments of a model, which a task makes from batches of rows."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from datasets import Dataset
from datasets.fingerprint import generate_random_fingerprint

from mybert.common.progress import Bar, no_dataset_bars
from mybert.rows.tables import MemoryRows

ROW = "row"  # column of features: index of the row that the feature belongs to
CUT = "cut"  # column of features: whether the text was truncated; only in tasks that truncate


def map_rows(
    rows: Dataset | MemoryRows, encode: Callable[[dict[str, list[Any]], list[int]], dict[str, list[Any]]]
) -> Dataset | MemoryRows:
    """The features that `encode` makes from batches of rows and their indices."""
    if isinstance(rows, MemoryRows):
        return MemoryRows(encode(rows[:], list(range(len(rows)))))
    with no_dataset_bars(), Bar(total=len(rows), desc="tokenizing", unit="rows", leave=False) as bar:

        def encode_shown(batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
            bar.update(len(indices))
            return encode(batch, indices)

        return rows.map(
            encode_shown,
            batched=True,
            with_indices=True,
            remove_columns=rows.column_names,
            keep_in_memory=True,
            new_fingerprint=generate_random_fingerprint(),  # or `encode` and the tokenizer are pickled for a hash
        )


def mean_by_row(values: Sequence[np.ndarray], features: Dataset, rows: int) -> np.ndarray:
    """(rows, …) the mean over the features of each row; `values` are of the features."""
    owners = np.asarray(features[ROW][:])
    sums = np.zeros((rows, *np.shape(values)[1:]))
    np.add.at(sums, owners, np.asarray(values, dtype=np.float64))
    return sums / np.bincount(owners, minlength=rows)[:, None]


def rows_cut(features: Dataset) -> int:
    """Number of truncated rows."""
    return sum(features[CUT][:]) if CUT in features.column_names else 0
