"""Wrong tags of a sentence as readable lines: the spans that differ, in their context."""

from collections.abc import Mapping, Sequence

from modeling_mybert.entities_mybert import Mark, entity_spans

_CONTEXT = 5  # words on each side


def tag_differences(
    text: str,
    offsets: Sequence[Sequence[int]],
    predicted: Sequence[str],
    reference: Sequence[str],
    marks: Mapping[str, Mark] | None,
) -> list[str]:
    """A line for each span of words with differing entities (or tags): `… in [Paris: LOC → predicted ORG] on …`.

    `offsets` are the start and end of each word in `text`, in characters. `marks` are of a `TagSet`, None for other
    tags.
    """
    spans = [set() if marks is None else set(entity_spans(tags, marks)) for tags in (reference, predicted)]
    if spans[0] == spans[1]:  # no entities, or the same ones in other tags
        wrong = [word for word, pair in enumerate(zip(reference, predicted, strict=True)) if len(set(pair)) > 1]
        spans = [{(word, word + 1, tags[word]) for word in wrong} for tags in (reference, predicted)]
    found = []
    for start, end in _regions(spans[0] ^ spans[1]):
        sides = [sorted(span for span in side if span[0] < end and span[1] > start) for side in spans]
        left, right = max(0, start - _CONTEXT), min(len(offsets), end + _CONTEXT)
        before, inside, after = (
            " ".join(text[offsets[a][0] : offsets[b - 1][1]].split()) if a < b else ""
            for a, b in ((left, start), (start, end), (end, right))
        )
        names = [
            ", ".join(
                kind if (a, b) == (start, end) else f'"{text[offsets[a][0] : offsets[b - 1][1]]}" {kind}'
                for a, b, kind in side
            )
            for side in sides
        ]
        change = f"{names[0]} → predicted {names[1]}" if all(names) else ""
        change = change or (f"{names[0]} → missed" if names[0] else f"spurious {names[1]}")
        parts = ["…" * (left > 0), before, f"[{inside}: {change}]", after, "…" * (right < len(offsets))]
        found.append(" ".join(filter(None, parts)))
    return found


def _regions(spans: set[tuple[int, int, str]]) -> list[tuple[int, int]]:
    """Spans that overlap, united."""
    regions: list[tuple[int, int]] = []
    for start, end, _ in sorted(spans):
        if regions and start < regions[-1][1]:
            regions[-1] = regions[-1][0], max(end, regions[-1][1])
        else:
            regions.append((start, end))
    return regions


def joined(words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Words as a text with spaces between, and the start and end of each in it."""
    offsets, start = [], 0
    for word in words:
        offsets.append((start, start + len(word)))
        start += len(word) + 1
    return " ".join(words), offsets
