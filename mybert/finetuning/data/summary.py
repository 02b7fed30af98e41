"""Statistics of the data before training: labels, lengths, truncated rows, unknown tokens."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from mybert.common.errors import visible
from mybert.common.tables import print_table
from mybert.finetuning.data.dataset_loading import Split
from mybert.finetuning.tasks.base import Task

_LABELS_SHOWN = 20


_KEPT = 99  # percent of the rows that are read whole by default


def with_max_length(
    task: Task, tokenizer: PreTrainedTokenizerBase, rows: Dataset, limit: int, name: str
) -> tuple[Task, list[str]]:
    """The task with a `max_length` that truncates at most 1% of the rows, if the model `name` was trained on as many.

    Args:
        task: with the default, which is kept for shorter rows and for tasks that split long rows into windows.
        limit: the length that the model was trained on.

    Returns:
        The task, and a line that says what was chosen, why, and what it costs.
    """
    if not task.truncates:
        return task, []
    lengths, default = np.array([len(ids) for ids in task.token_ids(rows, tokenizer)]), task.options.max_length
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
        cost = np.minimum(lengths, length).sum() / np.minimum(lengths, default).sum()
        cut = f"{(lengths > default).mean():.1%}"
        line += f"; --max-length {default} truncates {cut} of them and reads {cost:.1f} times fewer tokens"
    return replace(task, options=replace(task.options, max_length=length)), [line]


def overview(splits: Mapping[str, Split], task: Task, tokenizer: PreTrainedTokenizerBase) -> dict[str, dict]:
    """For each split: rows, count of each label, token lengths, and the shares of long rows and of [UNK] tokens.

    Lengths include special tokens; shares of [UNK] do not.
    """
    found = {}
    for name, split in splits.items():
        lengths, tokens, unknown = [], 0, 0
        for ids in task.token_ids(split.rows, tokenizer):
            lengths.append(len(ids))
            tokens += len(ids) - ids.count(tokenizer.cls_token_id) - ids.count(tokenizer.sep_token_id)
            unknown += ids.count(tokenizer.unk_token_id)
        found[name] = {
            "source": split.source,
            "rows": len(split.rows),
            "balance": dict(task.label_distribution(split.rows).most_common()),
            "median_length": float(np.median(lengths)),
            "length_95": int(np.percentile(lengths, 95, method="higher")),
            "longest": max(lengths),
            "longer_than_max_length": float(np.mean(np.array(lengths) > task.options.max_length)),
            "unknown_tokens": unknown / max(tokens, 1),
        }
    return found


def print_overview(found: Mapping[str, dict], task: Task) -> None:
    """Prints two tables: lengths of the splits, and counts of labels with their share of rows or of labels."""
    measures = (
        ("rows", "rows"),
        ("tokens, median", "median_length"),
        ("tokens, 95th percentile", "length_95"),
        ("tokens, longest", "longest"),
        (f"rows of more than {task.options.max_length} tokens", "longer_than_max_length"),
        ("unknown tokens", "unknown_tokens"),
    )
    shares = ("longer_than_max_length", "unknown_tokens")
    rows = [
        (title, *(f"{split[key]:.2%}" if key in shares else split[key] for split in found.values()))
        for title, key in measures
    ]
    print_table("Data", rows, ("", *found))
    labels = list(dict.fromkeys(label for split in found.values() for label in split["balance"]))
    totals = [split["rows"] if task.counted == "rows" else sum(split["balance"].values()) for split in found.values()]
    rows = []
    for label in labels[:_LABELS_SHOWN]:
        counts = [split["balance"].get(label, 0) for split in found.values()]
        shares = (f"{n:,} ({n / max(total, 1):.1%})" for n, total in zip(counts, totals, strict=True))
        rows.append((visible(label), *shares))
    if len(labels) > _LABELS_SHOWN:
        rows.append((f"… {len(labels) - _LABELS_SHOWN} more", *([""] * len(found))))
    print_table(f"Labels: count (share of {task.counted})", rows, ("", *found))
