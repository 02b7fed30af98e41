"""What is said about a corpus: in its manifest and at the end of the command."""

from collections import Counter
from collections.abc import Sequence

import datasets
import numpy as np

from mybert.common.table import print_table

_PERCENTILES = (0, 10, 50, 90, 100)


def summarize(
    parts: dict[str, datasets.Dataset], block_counts: Sequence[dict], documents: Counter, skipped: Counter
) -> dict:
    """Counts and statistics for the manifest.

    Args:
        parts: `training` and, if any was held out, `validation` examples.
        block_counts: of `block_to_examples`, for every block of both.
        documents: of `store_documents`.
        skipped: of `read_documents`.

    Returns:
        `counts`; `statistics` for each part: shares, mean share of segment B, percentiles of length; `skipped` by
        reason.
    """
    counts = Counter(documents)
    for block in block_counts:
        counts.update(block)
    return {
        "counts": dict(counts) | {f"examples_{name}": len(part) for name, part in parts.items()},
        "statistics": {
            "unknown_rate": counts["unknown_tokens"] / max(1, counts["tokens"]),
            "truncated_share": counts["truncated"] / max(1, counts["examples"]),
            "short_share": counts["short"] / max(1, counts["examples"]),
            **{name: _statistics(part) for name, part in parts.items()},
        },
        "skipped": dict(skipped),
    }


def _statistics(part: datasets.Dataset) -> dict:
    lengths, random_next, share_b = [], 0, 0.0
    for table in part.with_format("arrow").iter(10_000):
        types = table.column("token_type_ids").combine_chunks()
        offsets = types.offsets.to_numpy().astype(np.int64)
        values = np.concatenate([[0], types.values.to_numpy().cumsum(dtype=np.int64)])
        of_b = values[offsets[1:]] - values[offsets[:-1]]
        lengths.append(np.diff(offsets))
        share_b += float((np.maximum(of_b - 1, 0) / np.maximum(lengths[-1] - 3, 1)).sum())
        if "next_sentence_label" in part.column_names:
            random_next += int(table.column("next_sentence_label").to_numpy().sum())
    lengths = np.concatenate([*lengths, np.empty(0, np.int64)])
    found = {
        "tokens": int(lengths.sum()),
        "length_mean": float(lengths.mean()) if len(lengths) else None,
        "length_percentiles": {
            str(p): int(np.percentile(lengths, p, method="lower")) for p in _PERCENTILES if len(lengths)
        },
    }
    if "next_sentence_label" in part.column_names and len(part):
        found |= {"is_next_share": 1 - random_next / len(part), "mean_share_of_b": share_b / len(part)}
    return found


def print_report(facts: dict) -> None:
    """The closing tables."""
    counts, statistics, skipped = facts["counts"], facts["statistics"], facts["skipped"]
    rows = [
        ("documents", counts["documents"]),
        ("  empty, left out", counts["documents_empty"]),
        ("  repeating another", counts["documents_duplicate"]),
        ("  of one sentence", counts["documents_of_one_sentence"]),
        ("sentences", counts["sentences"]),
        ("tokens", counts["tokens"]),
        ("unknown tokens", f"{statistics['unknown_rate']:.3%}"),
        ("examples cut to the maximal length", f"{statistics['truncated_share']:.1%}"),
        ("  tokens cut off", counts["tokens_cut"]),
        ("examples of a shorter target length", f"{statistics['short_share']:.1%}"),
    ]
    print_table("Corpus", rows + [(f"left out: {reason}", count) for reason, count in skipped.items()])
    print_table(
        "Examples",
        [_row(name, counts, statistics) for name in ("training", "validation") if name in statistics],
        ["", "examples", "tokens", "IsNext", f"length {'/'.join(map(str, _PERCENTILES))} %"],
    )


def _row(name: str, counts: dict, statistics: dict) -> tuple:
    part = statistics[name]
    share = f"{part['is_next_share']:.1%}" if "is_next_share" in part else None
    lengths = "/".join(map(str, part["length_percentiles"].values()))
    return name, counts[f"examples_{name}"], part["tokens"], share, lengths
