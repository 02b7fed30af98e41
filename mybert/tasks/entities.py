"""Entities in tags: their scores as in CoNLL's scorer and in seqeval's strict mode, and the wrong ones as text."""

from collections.abc import Iterable, Mapping, Sequence, Set

import numpy as np

from modeling_mybert.entities_mybert import Entity, Mark, TagSet, entity_spans
from mybert.tasks.bootstrap_scores import Scorer, Scores


def find(sentences: Iterable[Sequence[str]], marks: Mapping[str, Mark]) -> list[frozenset[Entity]]:
    """The entities of each sentence."""
    return [frozenset(entity_spans(tags, marks)) for tags in sentences]


def find_strict(sentences: Iterable[Sequence[str]], marks: Mapping[str, Mark], scheme: str) -> list[frozenset[Entity]]:
    """The entities of each sentence whose tags follow the scheme, as in seqeval's strict mode."""
    if scheme in ("IOB1", "IOE1"):
        return [_between_equals(tags, marks, *(("B", -1) if scheme == "IOB1" else ("E", 1))) for tags in sentences]
    single = "S" if any(mark.position == "S" for mark in marks.values()) else "B"

    def follows(tags: Sequence[str]) -> bool:
        inside = "I" * (len(tags) - 1)
        usual = {"IO": f"I{inside}", "IOB2": f"B{inside}", "IOE2": f"{inside}E"}
        expected = usual.get(scheme, f"B{inside[1:]}E" if inside else single)
        return "".join(marks[tag].position for tag in tags) == expected

    return [
        frozenset(span for span in entity_spans(tags, marks) if follows(tags[slice(*span[:2])])) for tags in sentences
    ]


def _between_equals(tags: Sequence[str], marks: Mapping[str, Mark], letter: str, side: int) -> frozenset[Entity]:
    """Entities in IOB1 and IOE1, whose letter stands beside another entity of the type; a stray one is outside.

    seqeval finds no entity of one word with the letter if the letter on its other side is stray.
    """
    outside = Mark("O", "")
    parts = [*(marks.get(tag, outside) for tag in tags), outside]  # the last one is also before the first
    stray = [part.position == letter and parts[at + side].kind != part.kind for at, part in enumerate(parts[:-1])]
    spans = entity_spans(["" if bad else tag for bad, tag in zip(stray, tags, strict=True)], marks)
    stray.append(False)
    return frozenset(
        (start, end, kind)
        for start, end, kind in spans
        if not (end - start == 1 and parts[start].position == letter and stray[start - side])
    )


def scorer(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]], tags: TagSet) -> Scorer:
    """Scores of entities: `precision`, `recall` and `f1` of CoNLL's scorer conlleval, and `strict_f1` of the entities
    whose tags follow the scheme."""
    plain = _counts(*(find(each, tags.marks) for each in (predictions, references)))
    strict = _counts(*(find_strict(each, tags.marks, tags.scheme) for each in (predictions, references)))
    return lambda samples: {**_ratios(plain[samples]), "strict_f1": _ratios(strict[samples])["f1"]}


def _counts(predicted: Sequence[Set[Entity]], true: Sequence[Set[Entity]]) -> np.ndarray:
    """(rows, 3) entities that are right, predicted and true."""
    return np.array([(len(one & other), len(one), len(other)) for one, other in zip(predicted, true, strict=True)])


def _ratios(counts: np.ndarray) -> Scores:
    """(samples, rows, 3) → precision, recall and F1 of all entities of each sample; 0 where undefined."""
    right, found, expected = counts.sum(1).T
    shares = {"precision": (right, found), "recall": (right, expected), "f1": (2 * right, found + expected)}
    return {name: (above / np.maximum(below, 1)).tolist() for name, (above, below) in shares.items()}


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
    lines = []
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
        lines.append(" ".join(filter(None, parts)))
    return lines


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
