"""Data of a fine-tuning run: load, validate, split, describe, and encode as features."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from datasets import Dataset

from mybert.common.errors import UserError
from mybert.finetuning.data.dataset_loading import Split, read_split
from mybert.finetuning.data.labels import find_joined_labels, find_label_typos
from mybert.finetuning.data.summary import overview, print_overview
from mybert.finetuning.data.validation import duplicate_rows, usable_rows
from mybert.finetuning.settings import FinetuneSettings
from mybert.finetuning.tasks.base import Task
from tokenization import MyBertTokenizer

_SHOWN = 5
_FEW_ROWS = 10  # fewer are not split, and get a warning


@dataclass(frozen=True)
class RunData:
    """
    Attributes:
        splits: usable rows of `train`, and of `validation` and `test` where there are any.
        train_features: features that the model is trained on.
        validation_features: features that checkpoints are compared on; None without validation rows.
        overview: statistics of the splits, as printed; see `overview`.
        duplicates: a warning for each two splits that share rows.
    """

    splits: dict[str, Split]
    train_features: Dataset
    validation_features: Dataset | None
    overview: dict[str, dict]
    duplicates: list[str]


def load_data(
    settings: FinetuneSettings, task: Task, tokenizer: MyBertTokenizer, seed: int = 42, verbose: bool = True
) -> tuple[Task, RunData]:
    """Loads and validates all splits, takes the labels from the training rows, and prints statistics.

    Args:
        seed: of the training rows drawn by `max_train_samples` and of the rows held out for validation.

    Returns:
        The task fitted to the training rows, and its data.

    Raises:
        UserError: a file cannot be read, or rows of it cannot be used.
    """
    train = read_split(settings.train, task)
    if settings.max_train_samples is not None:
        train = train.select(draw_rows(len(train.rows), settings.max_train_samples, seed))
    task = _with_inputs(task, train.rows.column_names)
    others = {"validation": settings.validation, "test": settings.test}
    given = {split: read_split(name, task, split=split) for split, name in others.items() if name is not None}
    left_out: list[str] = []
    train = usable_rows(train, task, tokenizer, training=True, errors=settings.errors, report=left_out.append)
    task = task.fitted(train.rows)
    lines = [task.summary(train.rows), *left_out]
    splits = {"train": train}
    if settings.share_held_out:
        splits, line = _hold_out(settings, train, task, seed)
        lines.append(line)
    splits |= {
        name: usable_rows(split, task, tokenizer, training=False, errors=settings.errors, report=lines.append)
        for name, split in given.items()
    }
    if settings.class_weights and task.classes is None:
        raise UserError("--class-weights: expected one class for each text or token; these rows have other targets")
    found, duplicates = overview(splits, task, tokenizer), duplicate_rows(splits, task)
    if verbose:
        print(*lines, sep="\n")
        print_overview(found, task)
        for line in [*duplicates, *_label_warnings(found["train"]["balance"]), *_few_rows(splits["train"])]:
            print(f"warning: {line}")
    validation = splits.get("validation")
    return task, RunData(
        splits=splits,
        train_features=task.features(splits["train"].rows, tokenizer, training=True),
        validation_features=validation and task.features(validation.rows, tokenizer, training=False),
        overview=found,
        duplicates=duplicates,
    )


def _with_inputs(task: Task, columns: Sequence[str]) -> Task:
    """The task with the inputs that the training rows have, which its checkpoint stores."""
    inputs = [name for name in task.inputs if name in columns]
    task = task.with_config(finetuned={**getattr(task.config, "finetuned", {}), "inputs": inputs})
    return replace(task, trained_inputs=tuple(inputs))


def draw_rows(rows: int, count: int, seed: int) -> list[int]:
    """At most `count` row numbers below `rows`, drawn at random without replacement, ascending."""
    return sorted(np.random.default_rng(seed).permutation(rows)[:count].tolist())


def stratified_rows(keys: Sequence[Hashable], share: float, seed: int) -> list[int]:
    """A share of the rows, drawn at random in proportion to how often each key occurs, ascending.

    The only row of a label is never drawn: it would be missing from training.

    Args:
        keys: label of each row, or another value that can be sorted.
        share: between 0 and 1.
    """
    shuffled = np.random.default_rng(seed).permutation(len(keys)).tolist()
    by_key = sorted(shuffled, key=lambda row: keys[row])  # a stable sort: shuffled within each key
    count = round(share * len(keys))
    chosen = {by_key[min(int((number + 0.5) / share), len(keys) - 1)] for number in range(count)}
    times = Counter(keys)
    return sorted(row for row in chosen if times[keys[row]] > 1 or not isinstance(keys[row], str))


def _hold_out(settings: FinetuneSettings, train: Split, task: Task, seed: int) -> tuple[dict[str, Split], str]:
    """Training and validation rows, and the line that reports the split."""
    share, count = settings.share_held_out, len(train.rows)
    chosen = stratified_rows(task.strata(train.rows), share, seed) if count >= _FEW_ROWS else []
    if not chosen:
        for name in ("sweep", "patience", "metric"):
            if getattr(settings, name) is not None:
                raise UserError(f"--{name} needs validation rows, and {count} training rows are too few to split")
        return {"train": train}, f"no validation: {count} training rows are too few to hold out {share:.0%} of them"
    rest = sorted(set(range(count)) - set(chosen))
    held_out = train.select(chosen)._replace(source=f"{share:.0%} of {train.source}", left_out=0)
    line = (
        f"validation: {len(chosen):,} of the {count:,} training rows are held out (--validation-share {share:g}); "
        "0 trains on all of them, --validation FILE uses other rows"
    )
    return {"train": train.select(rest), "validation": held_out}, line


def _label_warnings(counts: dict[str, int]) -> list[str]:
    typos = find_label_typos(counts)
    more = [f"{len(typos) - _SHOWN:,} more labels look like others"] if len(typos) > _SHOWN else []
    return [*find_joined_labels(counts), *typos[:_SHOWN], *more]


def _few_rows(train: Split) -> list[str]:
    rows = len(train.rows)
    return [f"{rows} training rows are very few; scores will mean little"] if rows < _FEW_ROWS else []
