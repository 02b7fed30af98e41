"""Entities in tags: the scheme that they follow, and precision, recall and F1 as seqeval has them in strict mode."""

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from seqeval import scheme as seqeval_schemes
from seqeval.scheme import Entities

_ENTITY = re.compile(r"[BIESLUM]-.+")
Entity = tuple[int, int, str]  # first word, the word after the last, type


def scheme_of(sentences: Iterable[Sequence[str]]) -> str | None:
    """The scheme that tags follow, by seqeval's name: IOB1, IOB2, IOBES or BILOU; None if they are no entity tags.

    IOB1 begins entities by I-, and by B- only where one follows another of its type; where both begin them, as a stray
    I- does in IOB2, the more frequent decides.
    """
    sentences = list(sentences)
    named = scheme_of_labels({tag for tags in sentences for tag in tags})
    if named != "IOB2":
        return named
    begun_by = Counter(
        tag[0] for tags in sentences for before, tag in zip(["O", *tags], tags, strict=False) if before[2:] != tag[2:]
    )
    return "IOB1" if begun_by["I"] > begun_by["B"] else "IOB2"


def scheme_of_labels(labels: Iterable[str]) -> str | None:
    """The same, as far as the names of labels say it; IOB2 stands for IOB1 too."""
    labels = set(labels) - {"O"}
    if not labels or not all(map(_ENTITY.fullmatch, labels)):
        return None
    prefixes = {label[0] for label in labels}
    if prefixes <= set("BI"):
        return "IOB2"
    return "IOBES" if prefixes <= set("BIES") else "BILOU" if prefixes <= set("BILU") else None


def find(sentences: Iterable[Sequence[str]], scheme: str) -> list[frozenset[Entity]]:
    """The entities of each sentence; what breaks the scheme is none."""
    return [_find(tuple(tags), scheme) for tags in sentences]


@functools.lru_cache(1 << 18)  # each score asks for them anew, and finding them is slow
def _find(tags: tuple[str, ...], scheme: str) -> frozenset[Entity]:
    found = Entities([list(tags)], getattr(seqeval_schemes, scheme)).entities[0]
    return frozenset((entity.start, entity.end, entity.tag) for entity in found)


def lost(sentences: Sequence[Sequence[str]], scheme: str) -> int:
    """How many words have a tag of an entity and belong to none, because the tags around break the scheme."""
    tagged = sum(tag != "O" for tags in sentences for tag in tags)
    return tagged - sum(end - start for found in find(sentences, scheme) for start, end, _ in found)


def score(
    said: Sequence[Sequence[str]], true: Sequence[Sequence[str]], scheme: str, samples: np.ndarray
) -> dict[str, list[float]]:
    """Precision, recall and F1 of all entities together on each of `samples` (samples, rows); 0 where undefined."""
    found = list(zip(find(said, scheme), find(true, scheme), strict=True))
    counts = np.array([(len(one & other), len(one), len(other)) for one, other in found])
    hits, predicted, wanted = counts[samples].sum(1).T
    pairs = {"precision": (hits, predicted), "recall": (hits, wanted), "f1": (2 * hits, predicted + wanted)}
    return {name: (above / np.maximum(below, 1)).tolist() for name, (above, below) in pairs.items()}
