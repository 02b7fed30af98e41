"""Statistics and checks of the data before training: labels, lengths, unknown tokens, leaks, telling words."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from datasets import Dataset
from sklearn.feature_extraction.text import CountVectorizer
from transformers import PreTrainedTokenizerBase

from mybert.common.errors import short_list, visible
from mybert.common.languages import marks
from mybert.common.tables import print_table
from mybert.rows.similar_rows import nearly_equal, plain_text
from mybert.rows.splits import Problem, Split, short_places
from mybert.tasks.base import Task
from mybert.tasks.reading import input_texts, row_digests

_LABELS_SHOWN, _SHOWN = 20, 5  # of a table; rows in two parts
_ROWS, _LABELS = 20_000, 50  # read for words that give labels away
_WORD_TABLE = 20_000
_LIFT = 2
_KEPT = 99  # percent of the rows that are read whole by default


def count_tokens(rows: Dataset, task: Task, tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """(rows, 3) numbers of tokens of each row without truncation: all, those that are not special, and [UNK]."""
    cls, sep, unk = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.unk_token_id
    counts = [
        (len(ids), len(ids) - ids.count(cls) - ids.count(sep), ids.count(unk))
        for ids in task.token_ids(rows, tokenizer)
    ]
    return np.array(counts)


def with_max_length(task: Task, lengths: np.ndarray, limit: int, name: str) -> tuple[Task, list[str]]:
    """The task with a `max_length` that truncates at most 1% of the rows, if the model `name` was trained on as many.

    Args:
        task: with the default, which is kept for shorter rows and for tasks that split long rows into windows.
        lengths: tokens of each training row.
        limit: the length that the model was trained on.

    Returns:
        The task, and a line that says what was chosen, why, and what it costs.
    """
    if task.options.has_windows:
        return task, []
    default = task.options.length
    needed = int(np.percentile(lengths, _KEPT, method="inverted_cdf"))
    if needed <= default:
        return task, []
    length = max(default, min(limit, -(-needed // 8) * 8))
    line = f"using --max-length {length}: {_KEPT}% of the training rows have at most {needed:,} tokens"
    if length < needed:
        line = (
            f"using --max-length {length}, the length that {name} was trained on: "
            f"{(lengths > length).mean():.1%} of the training rows are longer and are truncated"
        )
    if length > default:
        saved = 1 - np.minimum(lengths, default).sum() / np.minimum(lengths, length).sum()
        cut = f"{(lengths > default).mean():.1%}"
        line += f"; --max-length {default} truncates {cut} of them and reads {saved:.1%} fewer tokens"
    return replace(task, options=replace(task.options, max_length=length)), [line]


def overview(splits: Mapping[str, Split], tokens: Mapping[str, np.ndarray], task: Task) -> dict[str, dict[str, Any]]:
    """For each split: rows, count of each label, token lengths, and the shares of long rows and of [UNK] tokens.

    Lengths include special tokens; shares of [UNK] do not.

    Args:
        tokens: of `count_tokens`.
    """
    statistics = {}
    for name, split in splits.items():
        lengths, ordinary, unknown = tokens[name].T
        statistics[name] = {
            "source": split.source,
            "rows": len(split.rows),
            "balance": dict(task.label_distribution(split.rows).most_common()),
            "median_length": float(np.median(lengths)),
            "length_95": int(np.percentile(lengths, 95, method="higher")),
            "longest": int(lengths.max()),
            "longer_than_max_length": float((lengths > task.options.length).mean()),
            "unknown_tokens": float(unknown.sum() / max(ordinary.sum(), 1)),
        }
    return statistics


def print_overview(splits: Mapping[str, dict[str, Any]], task: Task) -> None:
    """Prints two tables: rows with their lengths, and counts of labels with their share of rows or of labels."""
    measures = (("rows", "rows"), ("tokens, median", "median_length"), ("tokens, longest", "longest"))
    rows = [(title, *(split[key] for split in splits.values())) for title, key in measures]
    faults = (
        (f"rows of more than {task.options.length} tokens", "longer_than_max_length"),
        ("unknown tokens", "unknown_tokens"),
    )
    for title, key in faults:
        if any(split[key] for split in splits.values()):
            rows.append((title, *(f"{split[key]:.2%}" for split in splits.values())))
    print_table("Data", rows, ("", *splits))
    labels = list(dict.fromkeys(label for split in splits.values() for label in split["balance"]))
    totals = [split["rows"] if task.counted == "rows" else sum(split["balance"].values()) for split in splits.values()]
    rows = []
    for label in labels[:_LABELS_SHOWN]:
        counts = [split["balance"].get(label, 0) for split in splits.values()]
        cells = [f"{n:,} ({n / max(total, 1):.1%})" for n, total in zip(counts, totals, strict=True)]
        rows.append((visible(label), *cells))
    if len(labels) > _LABELS_SHOWN:
        rows.append((f"… {len(labels) - _LABELS_SHOWN} more", *([""] * len(splits))))
    print_table(f"Labels: count (share of {task.counted})", rows, ("", *splits))


def duplicate_rows(splits: Mapping[str, Split], task: Task) -> list[str]:
    """A warning for each two splits that share inputs, with the places of the rows."""
    keys = {name: row_digests(split.rows, task) for name, split in splits.items()}
    lines = []
    for one, other in itertools.combinations(splits, 2):
        rows_of = {key: row for row, key in reversed([*enumerate(keys[one])])}
        shared = [(rows_of[key], row) for row, key in enumerate(keys[other]) if key in rows_of]
        if shared:
            shown = [
                f"{other} {splits[other].named(row)} is {one} {splits[one].named(twin)}"
                for twin, row in shared[:_SHOWN]
            ]
            shown += ["…"] if len(shared) > _SHOWN else []
            lines.append(
                f"rows of {other} ({splits[other].source}) that are also in {one} ({splits[one].source}): "
                f"{len(shared):,} of {len(keys[other]):,} ({', '.join(shown)})"
            )
    return lines


def differing_labels(split: Split, task: Task) -> list[str]:
    """A warning if rows with equal inputs have different labels, with the places of the first ones."""
    first, pairs = dict[int, int](), list[tuple[int, int]]()
    labels = [sorted(some) for some in task.row_labels(split.rows)]
    for row, key in enumerate(row_digests(split.rows, task)):
        twin = first.setdefault(key, row)
        if labels[row] != labels[twin]:
            pairs.append((twin, row))
    rows = [row for pair in pairs[:_SHOWN] for row in pair]
    places = short_places(split.place(Problem(row, "")) for row in rows)
    named = [f"{place} ({short_list(labels[row]) or 'none'})" for place, row in zip(places, rows, strict=True)]
    shown = map(" and ".join, zip(named[::2], named[1::2], strict=True))
    more = "; …" if len(pairs) > _SHOWN else ""
    line = f"rows of {split.source} with equal texts and different labels: {len(pairs):,} ({split.unit}s "
    return [f"{line}{'; '.join(shown)}{more}); correct one label of each"] if pairs else []


def check_data(splits: Mapping[str, Split], task: Task) -> dict[str, Any]:
    """
    Returns:
        overlaps: for each two parts `of` and `in`: `rows` of the first, and how many of them are in the second:
            `equal`, or `near`: but for case, punctuation, spaces, or a few words (see `similar_rows`).
        giveaway_words: for each label the `word` that tells most about it, its `f1` as a rule, and the numbers of
            rows; the most telling first. Only for one label a row.
    """
    rows = {name: list(input_texts(split.rows, task)) for name, split in splits.items()}
    plain = {name: [tuple(map(plain_text, row)) for row in some] for name, some in rows.items()}
    overlaps = [
        _overlap(other, one, rows, plain)
        for one, other in itertools.combinations(splits, 2)  # train comes first
    ]
    train = splits["train"].rows
    labels = task.references(train)
    checks = {"overlaps": overlaps}
    if all(isinstance(label, str) for label in labels):
        checks["giveaway_words"] = giveaway_words([" \n ".join(row) for row in rows["train"]], labels)
    return checks


def _overlap(of: str, within: str, rows: Mapping[str, list[Any]], plain: Mapping[str, list[Any]]) -> dict[str, Any]:
    equal_to, near_to = set(rows[within]), {row for row in plain[within] if any(row)}
    equal = [row in equal_to for row in rows[of]]
    similar = zip(plain[of], nearly_equal(plain[of], plain[within]), equal, strict=True)
    near = sum(not same and (row in near_to or close) for row, close, same in similar)
    return {"of": of, "in": within, "rows": len(equal), "equal": sum(equal), "near": near}


def giveaway_words(texts: Sequence[str], labels: Sequence[str]) -> list[dict[str, Any]]:
    """The word with the best F1 as a rule for each label: "a text with this word has this label".

    Only words that are `_LIFT` times as frequent in texts with the label count, since the rule "every text" also has
    an F1 of 0.67 for half of the rows. A label without such a word is left out.
    """
    chosen = np.sort(np.random.default_rng(0).permutation(len(texts))[:_ROWS]).tolist()
    names, ids = np.unique([labels[row] for row in chosen], return_inverse=True)
    vectorizer = CountVectorizer(binary=True, token_pattern=rf"\w[\w{marks()}]*", max_features=_WORD_TABLE)
    try:
        words = vectorizer.fit_transform([texts[row] for row in chosen])
    except ValueError:  # no words at all
        return []
    known, total = vectorizer.get_feature_names_out(), np.asarray(words.sum(0)).ravel()
    giveaways = []
    for number in np.argsort(-np.bincount(ids))[:_LABELS].tolist():
        mask = ids == number
        inside, rows = np.asarray(words[mask].sum(0)).ravel(), int(mask.sum())
        outside = (total - inside) / max(len(ids) - rows, 1)
        f1 = np.where(inside / rows >= _LIFT * outside, 2 * inside / (total + rows), 0.0)
        best = int(f1.argmax())
        if not f1[best]:
            continue
        giveaways.append(
            {
                "label": str(names[number]),
                "word": str(known[best]),
                "with_label": int(inside[best]),
                "rows": rows,
                "without": int(total[best] - inside[best]),
                "f1": float(f1[best]),
            }
        )
    return sorted(giveaways, key=lambda word: -word["f1"])
