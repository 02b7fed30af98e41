"""What is said about a corpus: in its manifest and at the end of the command."""

from collections import Counter
from itertools import chain

import numpy as np
import pyarrow as pa

from mybert.common.tables import print_table

_PERCENTILES = (0, 10, 50, 90, 100)
_MUCH = 0.1  # of the examples held out


def measure(examples: pa.Table) -> tuple[Counter, Counter]:
    """What `summarize` adds up.

    Returns:
        lengths: examples of each length, the length as a string.
        sums: `share_of_b`: of the tokens that are not special those in segment B; `random_next`: examples with a
            random B; `pairs`: examples that have a label.
    """
    types = examples.column("token_type_ids").combine_chunks()
    offsets = types.offsets.to_numpy().astype(np.int64)
    values = np.concatenate([[0], types.values.to_numpy().cumsum(dtype=np.int64)])
    of_b = values[offsets[1:]] - values[offsets[:-1]]
    lengths = np.diff(offsets)
    sums = Counter(share_of_b=float((np.maximum(of_b - 1, 0) / np.maximum(lengths - 3, 1)).sum()))
    if "next_sentence_label" in examples.column_names:
        sums["random_next"] = int(examples.column("next_sentence_label").to_numpy().sum())
        sums["pairs"] = len(lengths)
    found = np.bincount(lengths)
    return Counter({str(length): int(found[length]) for length in found.nonzero()[0]}), sums


def summarize(parts: dict[str, list[dict]], documents: Counter, skipped: Counter) -> dict:
    """Counts and statistics for the manifest.

    Args:
        parts: records of `make_shard` for `training` and, if any was held out, `validation`.
        documents: counts of documents.
        skipped: of `read_documents`.

    Returns:
        `counts`; `statistics` for each part: shares, mean share of segment B, percentiles of length; `skipped` by
        reason.
    """
    counts = Counter(documents)
    for record in chain.from_iterable(parts.values()):
        counts.update(record["counts"])
    of_parts = {name: _statistics(records) for name, records in parts.items()}
    return {
        "counts": dict(counts) | {f"examples_{name}": found.pop("examples") for name, found in of_parts.items()},
        "statistics": {
            "unknown_rate": counts["unknown_tokens"] / max(1, counts["tokens"]),
            "truncated_share": counts["truncated"] / max(1, counts["examples"]),
            "short_share": counts["short"] / max(1, counts["examples"]),
            **of_parts,
        },
        "skipped": dict(skipped),
    }


def _statistics(records: list[dict]) -> dict:
    counts, sums = Counter(), Counter()
    for record in records:
        counts.update({int(length): number for length, number in record["lengths"].items()})
        sums.update(record["sums"])
    lengths = np.array(sorted(counts), dtype=np.int64)
    up_to = np.cumsum([counts[length] for length in lengths.tolist()])
    examples = int(up_to[-1]) if len(up_to) else 0
    tokens = sum(length * number for length, number in counts.items())
    found = {
        "examples": examples,
        "tokens": tokens,
        "length_mean": tokens / examples if examples else None,
        "length_percentiles": {
            str(p): int(lengths[np.searchsorted(up_to, p * (examples - 1) // 100, side="right")])
            for p in _PERCENTILES
            if examples
        },
    }
    if sums["pairs"]:
        found |= {
            "is_next_share": 1 - sums["random_next"] / examples,
            "mean_share_of_b": sums["share_of_b"] / examples,
        }
    return found


def print_report(facts: dict, validation_share: float) -> None:
    """The closing tables, and remarks on what was probably not meant.

    Args:
        facts: of `summarize`.
        validation_share: of the documents, that was asked for.
    """
    counts, statistics, skipped = facts["counts"], facts["statistics"], facts["skipped"]
    cut, kept = counts["tokens_cut"], sum(part["tokens"] for part in statistics.values() if isinstance(part, dict))
    rows = [
        ("documents", counts["documents"]),
        ("  empty, left out", counts["documents_empty"]),
        *((f"  refused by {name}", number) for name, number in counts["documents_filtered"].items()),
        ("  repeating another", counts["documents_duplicate"]),
        *([("  nearly repeating another, left out", near)] if (near := counts["documents_near_duplicate"]) else []),
        ("  of one sentence", counts["documents_of_one_sentence"]),
        ("  held out for validation", counts["documents_held_out"]),
        ("sentences", counts["sentences"]),
        ("tokens", counts["tokens"]),
        ("unknown tokens", f"{statistics['unknown_rate']:.3%}"),
        ("examples cut to the maximal length", f"{statistics['truncated_share']:.1%}"),
        ("  tokens cut off, of all in examples", f"{cut / max(1, kept + cut):.1%}"),
        ("examples of a shorter target length", f"{statistics['short_share']:.1%}"),
    ]
    print_table("Corpus", rows + [(f"left out: {reason}", count) for reason, count in skipped.items()])
    print_table(
        "Examples",
        [_row(name, counts, statistics) for name in ("training", "validation") if name in statistics],
        ["", "examples", "tokens", "IsNext", f"length {'/'.join(map(str, _PERCENTILES))} %"],
    )
    training, held = (counts.get(f"examples_{name}", 0) for name in ("training", "validation"))
    share = held / (training + held)
    if validation_share and not held:
        print(
            "No document is held out, so that a model of this corpus is not evaluated; more documents help, or "
            "--split-documents, which cuts them up."
        )
    elif share > max(_MUCH, 3 * validation_share):
        print(
            f"{share:.0%} of the examples are held out: whole documents are, and these are few or long; "
            "--split-documents cuts them up."
        )
    if "is_next_share" in statistics["training"] and 2 * counts["documents_of_one_sentence"] > counts["documents"]:
        print(
            "Most documents have one sentence, after which a random one must come: next sentences are learned from "
            "documents of several. Join the parts of a document, or leave pairs out with --no-nsp."
        )


def _row(name: str, counts: dict, statistics: dict) -> tuple:
    part = statistics[name]
    share = f"{part['is_next_share']:.1%}" if "is_next_share" in part else None
    lengths = "/".join(map(str, part["length_percentiles"].values()))
    return name, counts[f"examples_{name}"], part["tokens"], share, lengths
