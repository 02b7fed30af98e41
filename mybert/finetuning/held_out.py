"""Rows drawn by their texts and the seed, whatever their labels are: to train on, or held out for validation."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from datasets import Dataset

from mybert.common.errors import UserError
from mybert.tasks.base import Task
from mybert.tasks.reading import hash_of, row_digests

_LARGE = 0.2  # share of the rows with one context; more are split by all their texts


def held_out_rows(rows: Dataset, task: Task, share: float, seed: int) -> list[int]:
    """The rows to hold out, ascending: those whose texts and `seed` have a hash, a number from 0 to 1, below `share`.

    A row stays on its side if labels are corrected, rows are added or their order changes. Equal texts are on one
    side, and so are the rows of a context. Three rules move the rows with the nearest hashes:

    - The number of held-out rows differs from the share by half at most, which matters if there are few rows.
    - A label of 1 / `share` rows or more has a held-out row.
    - A label of two rows or more has a training row.
    """
    keys, labels = _groups(rows, task), task.row_labels(rows)
    sizes, total = Counter(keys), Counter(label for some in labels for label in some)
    labels_of: dict[int, Counter[str]] = {key: Counter() for key in sizes}
    for key, some in zip(keys, labels, strict=True):
        labels_of[key].update(some)
    expected, half = share * len(keys), min(share, 1 - share) * len(keys) / 2
    least, most = max(math.ceil(expected - half), 1), max(math.floor(expected + half), 1)
    hashes = {key: hash_of(f"{seed} {key}") / 2**64 for key in sizes}
    chosen: set[int] = set()
    count, held = 0, Counter[str]()
    for key in sorted(sizes, key=hashes.__getitem__):
        own = labels_of[key]
        wanted = count < least or (hashes[key] < share and count + sizes[key] <= most)
        wanted = wanted or any(total[label] * share >= 1 and not held[label] for label in own)
        needed = any(held[label] + number == total[label] > 1 for label, number in own.items())
        if wanted and not needed and count + sizes[key] < len(keys):
            chosen.add(key)
            held.update(own)
            count += sizes[key]
    return [row for row, key in enumerate(keys) if key in chosen]


def _groups(rows: Dataset, task: Task) -> Sequence[int]:
    """Rows with the same number are held out together."""
    keys = row_digests(rows, task)
    if not task.grouped_by:
        return keys
    contexts = row_digests(rows, task, task.grouped_by)
    counts, most = Counter(contexts), _LARGE * len(keys)
    return [key if counts[context] > most else context for key, context in zip(keys, contexts, strict=True)]


def fold_of_rows(rows: Dataset, task: Task, folds: int, seed: int) -> np.ndarray:
    """(rows,) the fold of each row, from 0. A label is spread evenly over the folds; equal texts are in one fold.

    Raises:
        UserError: there are fewer different texts than folds.
    """
    keys, labels = _groups(rows, task), task.row_labels(rows)
    first = {key: sorted(labels[row]) for row, key in reversed([*enumerate(keys)])}
    order = sorted(first, key=lambda key: (first[key], hash_of(f"{seed} {key}")))
    if len(order) < folds:
        raise UserError(
            f"{folds} folds need as many rows with different texts, and the {len(keys):,} training rows have "
            f"{len(order):,}; choose fewer by --folds, or add rows"
        )
    places = {key: place % folds for place, key in enumerate(order)}
    return np.array([places[key] for key in keys])


def draw_by_content(rows: Dataset, task: Task, count: int, seed: int) -> list[int]:
    """At most `count` rows, ascending, drawn by their texts: order, labels and other rows do not change the draw."""
    keys = [hash_of(f"drawn {seed} {key}") for key in row_digests(rows, task)]
    return sorted(sorted(range(len(keys)), key=keys.__getitem__)[:count])
