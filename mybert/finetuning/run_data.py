"""Data of a fine-tuning run: load, validate, split, describe, and encode as features."""

import logging
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState
from datasets import Dataset, concatenate_datasets

from mybert.common.errors import UserError, short_list
from mybert.common.quantities import counted
from mybert.finetuning.few_labels import has_few_labels
from mybert.finetuning.held_out import draw_by_content, held_out_rows
from mybert.finetuning.settings import FinetuneSettings
from mybert.finetuning.soft_labels import SoftLabels, load_teacher, stored_logits, with_labels_of, with_logits
from mybert.finetuning.summary import (
    count_tokens,
    differing_labels,
    duplicate_rows,
    overview,
    print_overview,
    with_max_length,
)
from mybert.inference.checkpoint_tokenizer import trained_tokens
from mybert.inference.sentence_modules import find_modules
from mybert.inference.task_checkpoint import Finetuned, load_config, make_task
from mybert.rows.labels import (
    differ,
    find_joined_labels,
    find_label_typos,
    find_marks,
    is_missing,
    joined_label,
    label_name,
)
from mybert.rows.splits import Split
from mybert.tasks import task_class
from mybert.tasks.base import Task
from mybert.tasks.reading import input_texts, read_split, read_splits, usable_rows
from tokenization import MyBertTokenizer

logger = logging.getLogger(__name__)

_OF_EARLIER = (  # what the configuration says about labels, rows, activation and search of an earlier fine-tuning
    *("label_threshold", "tag_scheme", "word_rules", "words_weight"),
    *("sentence_transformers", "sbert_ce_default_activation_function"),
)
_OF_UNKNOWN = "move a row of each label that the training rows lack into a file of --train"
_SHOWN = 5
_FEW_ROWS = 10  # fewer are not split, and get a warning
_FEW_HELD_OUT = 20


@dataclass(frozen=True)
class RunData:
    """The usable rows of each split, and features of those that train the model and those that compare checkpoints.

    Without validation rows, `validation_features` is None. `overview` has the statistics of the splits. `few_labels`:
    whether the encoder is trained for few labels. `out_of_fold` has logits of the training rows, which are then the
    validation rows too.
    """

    splits: dict[str, Split]
    train_features: Dataset
    validation_features: Dataset | None
    overview: dict[str, dict[str, Any]]
    few_labels: bool = False
    out_of_fold: list[np.ndarray] | None = None


def new_task(settings: FinetuneSettings) -> tuple[Task, MyBertTokenizer]:
    """The task with the configuration of the checkpoint to start from, without its labels and problem type.

    The tokenizer has the length of `--max-length`, or else the one that the checkpoint was trained on.
    """
    config, tokenizer = load_config(settings.model)
    config.problem_type = None
    for name in _OF_EARLIER:
        vars(config).pop(name, None)
    if settings.attn_implementation is not None:
        config._attn_implementation = settings.attn_implementation
    if settings.dropout is not None:
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = settings.dropout
        config.classifier_dropout = None  # the head then uses hidden_dropout_prob
    task = make_task(task_class(settings.task), settings, config, tokenizer, {})
    trained, length = trained_tokens(config, tokenizer), task.options.length
    if length > trained and PartialState().is_main_process:
        logger.warning(
            "%s was pretrained on sequences of at most %d tokens. Its later position embeddings are untrained; "
            "fine-tuning with --max-length %d trains them on these rows only",
            *(settings.model, trained, length),
        )
    tokenizer.model_max_length = settings.max_length or trained  # pipelines truncate where `mybert predict` does
    return task.with_config(finetuned={"task": task.name, **asdict(task.options)}), tokenizer


def load_data(
    settings: FinetuneSettings,
    task: Task,
    tokenizer: MyBertTokenizer,
    seed: int = 42,
    verbose: bool = True,
    few_labels: bool = False,
) -> tuple[Task, RunData]:
    """Loads and validates all splits, fits the task to the training rows, and prints statistics.

    `seed` draws the rows of `max_train_samples` and those held out for validation. `few_labels` allows the training
    for few labels.
    """
    task, train, given, replaced = _read(settings, task, seed)
    left_out: list[str] = []
    usable = partial(usable_rows, tokenizer=tokenizer, errors=settings.errors)
    train = usable(train, task, training=True, report=left_out.append)
    task = task.fitted(train.rows)
    few_labels = few_labels and has_few_labels(task, train.rows)
    counts = count_tokens(train.rows, task, tokenizer)
    task, length = _with_length(settings, task, tokenizer, counts, few_labels)
    teacher = load_teacher(settings.teacher, settings, task, tokenizer) if settings.teacher else None
    if teacher and settings.teacher:
        task = with_labels_of(teacher.task, task, settings.teacher, task.label_distribution(train.rows))
    renamed = [line for split in (train, *given.values()) for line in split.describe_columns()]
    lines = [task.summary(train.rows), *length, *renamed, *replaced, *left_out]
    places = {"train": [*range(len(train.rows))]}
    if settings.share_held_out and not few_labels:
        places, line = _hold_out(settings, train, task, seed)
        lines.append(line)
    splits = {name: train.select(rows) for name, rows in places.items()}
    if "validation" in splits:
        held_out = f"{settings.share_held_out:.0%} of {train.source}"
        splits["validation"] = splits["validation"]._replace(source=held_out, left_out=0)
    usable = partial(usable, task=task, training=False, report=lines.append, of_unknown=_of_unknown(task, train))
    others = {name: usable(split) for name, split in given.items()}
    splits |= others
    unlabelled = None
    if settings.unlabelled is not None:
        unlabelled = usable(read_split(settings.unlabelled, task, labelled=False))
        lines.append(f"unlabelled: {counted(len(unlabelled.rows), 'row')} of {settings.unlabelled}")
    if settings.class_weights and task.classes is None:
        raise UserError("--class-weights: expected one class for each text or token; these rows have other targets")
    tokens = {name: counts[rows] for name, rows in places.items()}
    tokens |= {name: count_tokens(split.rows, task, tokenizer) for name, split in others.items()}
    statistics = overview(splits, tokens, task)
    if verbose:
        print(*lines, sep="\n")
        print_overview(statistics, task)
        for line in [
            *duplicate_rows(splits, task),
            *differing_labels(train, task),
            *_warnings(statistics["train"]["rows"], task.label_distribution(train.rows), task),
        ]:
            print(f"warning: {line}")
    train_features = task.features(splits["train"].rows, tokenizer, training=True)
    if teacher:
        more = unlabelled and task.features(unlabelled.rows, tokenizer, training=True)
        train_features = _with_teacher(settings, task, teacher, train_features, more, verbose)
    validation = splits.get("validation")
    return task, RunData(
        splits=splits,
        train_features=train_features,
        validation_features=validation and task.features(validation.rows, tokenizer, training=False),
        overview=statistics,
        few_labels=few_labels,
    )


def _read(settings: FinetuneSettings, task: Task, seed: int) -> tuple[Task, Split, dict[str, Split], list[str]]:
    """The task that reads all rows alike, the training rows, the other splits by name, and lines for the user."""
    train, replaced = _latest(read_splits(settings.train_files, task), task)
    if settings.max_train_samples is not None:
        train = train.select(draw_by_content(train.rows, task, settings.max_train_samples, seed))
    task = task.reading_like(train.rows)
    others = {"validation": settings.validation, "test": settings.test}
    given = {split: read_split(name, task, split=split) for split, name in others.items() if name is not None}
    return task.with_label_reading([train, *given.values()]), train, given, replaced


def _of_unknown(task: Task, train: Split) -> str:
    """What to do about labels of other rows that the training rows lack."""
    name, separator = joined_label(task.label_distribution(train.rows))
    if not separator:
        return _OF_UNKNOWN
    return (
        f"read several labels in a cell by --label-separator '{separator}', if {name!r} is several, or {_OF_UNKNOWN}"
    )


def _with_length(
    settings: FinetuneSettings, task: Task, tokenizer: MyBertTokenizer, counts: np.ndarray, few_labels: bool
) -> tuple[Task, list[str]]:
    """The task with the length of its sequences, chosen by the `counts` of the training rows unless it is given, and
    lines for the user. The tokenizer gets the same length.
    """
    lines: list[str] = []
    if settings.max_length is None:
        limit = trained_tokens(task.config, tokenizer)
        own = find_modules(settings.model)[0].max_length if few_labels else None
        limit = min(limit, own or limit)
        task, lines = with_max_length(task, counts[:, 0], limit, settings.model)
        if not lines and task.options.length < task.Options.defaults["max_length"]:
            lines = [f"using --max-length {task.options.length}, the length that {settings.model} was trained on"]
    length = tokenizer.model_max_length = task.options.length
    return task.with_config(finetuned={**task.config.finetuned, "max_length": length}), lines


def _latest(train: Split, task: Task) -> tuple[Split, list[str]]:
    """Rows of several files without those that a labelled row of a later file with the same texts corrects, and a line
    that says how many, and how many of them have another label there.
    """
    if not train.parts:
        return train, []
    keys = [tuple("".join(text.split()) for text in texts) for texts in input_texts(train.rows, task)]
    columns = [train.rows[name][:] for name in task.targets if name in train.rows.column_names]
    targets = list(zip(*columns, strict=True))
    names = [[label_name(value) for value in values] for values in targets]
    files = [number for number, part in enumerate(train.parts) for _ in range(len(part.rows))]
    has_label = [not any(is_missing(value) or differ(value) for value in values) for values in targets]
    last = {key: row for row, (key, labelled) in enumerate(zip(keys, has_label, strict=True)) if labelled}
    replaced = [row for row, key in enumerate(keys) if files[row] < files[last.get(key, row)]]
    if not replaced:
        return train, []
    changed = sum(names[row] != names[last[keys[row]]] for row in replaced)
    line = f"corrected by rows of later files: {counted(len(replaced), 'row')}, {changed:,} with another label"
    return train.select(sorted(set(range(len(keys))).difference(replaced))), [line]


def _with_teacher(
    settings: FinetuneSettings,
    task: Task,
    teacher: Finetuned,
    features: Dataset,
    unlabelled: Dataset | None,
    verbose: bool,
) -> Dataset:
    """The features with the teacher's logits, and those of unlabelled rows after them."""
    parts = [features] if unlabelled is None else [features, unlabelled]
    count, soft = sum(map(len, parts)), SoftLabels.of(task, settings)
    logits = stored_logits(Path(settings.output)) if settings.resume else None
    if logits is None or len(logits) != count:
        if verbose:
            kept = f"; its predictions are kept in {settings.output} until the end, for --resume"
            print(
                f"teacher: {settings.teacher} predicts {count:,} features once, for all epochs and runs"
                + ("" if settings.dry_run else kept),
                flush=True,
            )
        logits = [row for part in parts for row in soft.of_teacher(teacher, task, part)]
    elif verbose:
        print(f"--resume: the predictions of the teacher {settings.teacher} for {count:,} features are used again")
    scored, others = with_logits(features, logits[: len(features)]), logits[len(features) :]
    if unlabelled is None:
        return scored
    return concatenate_datasets(
        [scored, with_logits(soft.without_labels(unlabelled, others, features.features), others)]
    )


def _hold_out(settings: FinetuneSettings, train: Split, task: Task, seed: int) -> tuple[dict[str, list[int]], str]:
    """The rows that train and those held out for validation, and the line that reports the split."""
    share, count = settings.share_held_out, len(train.rows)
    chosen = held_out_rows(train.rows, task, share, seed) if count >= _FEW_ROWS else []
    if not chosen:
        for name in ("sweep", "patience", "metric"):
            if getattr(settings, name) is not None:
                raise UserError(f"--{name} needs validation rows, and {count} training rows are too few to split")
        line = f"no validation: {count} training rows are too few to hold out {share:.0%} of them"
        return {"train": [*range(count)]}, line
    places = {"train": sorted(set(range(count)) - set(chosen)), "validation": chosen}
    line = (
        f"validation: {len(chosen):,} of the {count:,} training rows are held out (--validation FILE and "
        "--validation-share 0 change this)"
    )
    if len(chosen) < _FEW_HELD_OUT:
        line += "; they are too few to choose a good checkpoint: --folds 4 scores all rows"
    labels = task.row_labels(train.rows)
    for part, name in (("validation", "validation"), ("train", "training")):
        if lacking := set().union(*labels).difference(*(labels[row] for row in places[part])):
            line += f"; labels without a {name} row: {short_list(sorted(lacking))}"
    return places, line


def _warnings(rows: int, balance: Counter[str], task: Task) -> list[str]:
    """Warnings about the number of training rows, and about the labels of these and of those held out."""
    typos = find_label_typos(balance)
    marks = find_marks(balance) if task.name == "text-classification" else []  # a tag may be -
    lines = [*find_joined_labels(balance), *marks, *typos[:_SHOWN]]
    if len(typos) > _SHOWN:
        lines.append(f"other pairs of labels that look alike: {len(typos) - _SHOWN:,}")
    if 2 * len(balance) > balance.total() >= _FEW_ROWS:
        lines.append(
            f"{len(balance):,} labels for {balance.total():,} rows: is --columns label=COLUMN the right column?"
        )
    if rows < _FEW_ROWS:
        lines.append(f"{rows} training rows are very few; scores will mean little")
    return lines
