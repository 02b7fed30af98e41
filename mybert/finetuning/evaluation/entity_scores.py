"""Entities in tags: their tagging scheme, and precision, recall and F1 as in seqeval's strict mode."""

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
    """The scheme of tags, by seqeval's name: IOB1, IOB2, IOBES or BILOU; None if they are not tags of entities.

    In IOB1, entities begin with I-, in IOB2 with B-. The more frequent of both decides, since data may have some
    inconsistent tags.
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
    """The scheme by the names of labels alone, which do not distinguish IOB1 from IOB2."""
    labels = set(labels) - {"O"}
    if not labels or not all(map(_ENTITY.fullmatch, labels)):
        return None
    prefixes = {label[0] for label in labels}
    if prefixes <= set("BI"):
        return "IOB2"
    return "IOBES" if prefixes <= set("BIES") else "BILOU" if prefixes <= set("BILU") else None


def find(sentences: Iterable[Sequence[str]], scheme: str) -> list[frozenset[Entity]]:
    """The entities of each sentence. Tags that violate the scheme are not part of an entity."""
    return [_find(tuple(tags), scheme) for tags in sentences]


@functools.lru_cache(1 << 18)  # several scores need the same entities, and seqeval is slow
def _find(tags: tuple[str, ...], scheme: str) -> frozenset[Entity]:
    found = Entities([list(tags)], getattr(seqeval_schemes, scheme)).entities[0]
    return frozenset((entity.start, entity.end, entity.tag) for entity in found)


def lost(sentences: Sequence[Sequence[str]], scheme: str) -> int:
    """Number of words whose tag names an entity but is part of none, because it violates the scheme."""
    tagged = sum(tag != "O" for tags in sentences for tag in tags)
    return tagged - sum(end - start for found in find(sentences, scheme) for start, end, _ in found)


def score(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]], scheme: str, samples: np.ndarray
) -> dict[str, list[float]]:
    """Precision, recall and F1 of all entities on each of `samples` (samples, rows); 0 where undefined."""
    pairs = zip(find(predictions, scheme), find(references, scheme), strict=True)
    counts = np.array([(len(one & other), len(one), len(other)) for one, other in pairs])
    right, predicted, true = counts[samples].sum(1).T
    ratios = {"precision": (right, predicted), "recall": (right, true), "f1": (2 * right, predicted + true)}
    return {name: (above / np.maximum(below, 1)).tolist() for name, (above, below) in ratios.items()}
