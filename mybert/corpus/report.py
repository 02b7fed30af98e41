"""Statistics of a corpus, for its manifest and the tables at the end of the command."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np

from mybert.common.tables import print_table
from mybert.corpus.settings import CorpusSettings

_PERCENTILES = (0, 10, 50, 90, 100)


def summarize(
    parts: dict[str, list[dict[str, Any]]], documents: dict[str, Any], skipped: Counter[str]
) -> dict[str, Any]:
    """`counts`, `statistics` by part and `skipped` by reason for the manifest, from records of `make_shard`."""
    counts = Counter(documents)
    for record in chain.from_iterable(parts.values()):
        counts.update(record["counts"])
    counts.pop("random_next", None)
    of_parts = {name: _statistics(records) for name, records in parts.items()}
    return {
        "counts": dict(counts) | {f"examples_{name}": facts.pop("examples") for name, facts in of_parts.items()},
        "statistics": {
            "unknown_rate": counts["unknown_tokens"] / max(1, counts["tokens"]),
            "truncated_share": counts["truncated"] / max(1, counts["examples"]),
            "short_share": counts["short"] / max(1, counts["examples"]),
            **of_parts,
        },
        "skipped": dict(skipped),
    }


def length_counts(records: Iterable[dict[str, Any]]) -> Counter[int]:
    """Number of examples of each length, ascending, from records of `make_shard`."""
    counts: Counter[int] = Counter()
    for record in records:
        counts.update({int(length): number for length, number in record["lengths"].items()})
    return Counter(dict(sorted(counts.items())))


def _statistics(records: list[dict[str, Any]]) -> dict[str, Any]:
    counts = length_counts(records)
    lengths, up_to = np.array(list(counts), dtype=np.int64), np.cumsum(list(counts.values()))
    examples = int(up_to[-1]) if len(up_to) else 0
    tokens = sum(length * number for length, number in counts.items())
    statistics = {
        "examples": examples,
        "tokens": tokens,
        "length_mean": tokens / examples if examples else None,
        "length_percentiles": {
            str(p): int(lengths[np.searchsorted(up_to, p * (examples - 1) // 100, side="right")])
            for p in _PERCENTILES
            if examples
        },
    }
    random = [record["counts"]["random_next"] for record in records if "random_next" in record["counts"]]
    return statistics | ({"is_next_share": 1 - sum(random) / examples} if random and examples else {})


def print_report(facts: dict[str, Any], settings: CorpusSettings, is_limit: bool) -> None:
    """Prints the tables of a corpus. `is_limit` says whether the maximum length is that of the tokenizer."""
    counts, statistics, skipped = facts["counts"], facts["statistics"], facts["skipped"]
    cut, kept = counts["tokens_cut"], sum(part["tokens"] for part in statistics.values() if isinstance(part, dict))
    near = counts["documents_near_duplicate"]
    rows = [
        ("documents", counts["documents"]),
        ("  empty (removed)", counts["documents_empty"]),
        *((f"  removed by {name}", number) for name, number in counts["documents_filtered"].items()),
        (f"  duplicates ({'removed' if settings.removes_duplicates else 'kept'})", counts["documents_duplicate"]),
        *([("  near duplicates (removed)", near)] if near else []),
        ("  of one sentence", counts["documents_of_one_sentence"]),
        ("  held out for validation", counts["documents_held_out"]),
        ("sentences", counts["sentences"]),
        ("tokens", counts["tokens"]),
        ("unknown tokens", f"{statistics['unknown_rate']:.3%}"),
        ("maximum length", f"{settings.max_length}, of the tokenizer" if is_limit else settings.max_length),
        ("truncated examples", f"{statistics['truncated_share']:.1%}"),
        ("  truncated tokens", f"{cut / max(1, kept + cut):.1%}"),
        ("examples with a short target length", f"{statistics['short_share']:.1%}"),
    ]
    print_table("Corpus", rows + [(f"skipped: {reason}", count) for reason, count in skipped.items()])
    parts = []
    for name in [name for name in ("training", "validation") if name in statistics]:
        part = statistics[name]
        share = f"{part['is_next_share']:.1%}" if "is_next_share" in part else None
        lengths = " / ".join(map(str, part["length_percentiles"].values()))
        parts.append((name, counts[f"examples_{name}"], part["tokens"], share, lengths))
    print_table("Examples", parts, ["", "examples", "tokens", "B follows A", "length: min / 10% / median / 90% / max"])
