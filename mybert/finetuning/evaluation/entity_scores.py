"""Entities in tags, and their precision, recall and F1 as in CoNLL's scorer and in seqeval's strict mode."""

import functools
from collections.abc import Iterable, Mapping, Sequence, Set

import numpy as np
from seqeval import scheme as seqeval_schemes
from seqeval.scheme import Entities

from modeling_mybert.entities_mybert import Entity, Mark, TagSet, entity_spans


def find(sentences: Iterable[Sequence[str]], marks: Mapping[str, Mark]) -> list[frozenset[Entity]]:
    """The entities of each sentence."""
    return [frozenset(entity_spans(tags, marks)) for tags in sentences]


def find_strict(sentences: Iterable[Sequence[str]], marks: Mapping[str, Mark], scheme: str) -> list[frozenset[Entity]]:
    """The entities of each sentence whose tags follow the scheme, as in seqeval's strict mode."""
    if scheme == "IO":  # any tags follow it
        return find(sentences, marks)
    has_single = any(mark.role == "S" for mark in marks.values())
    kinds = {kind: str(number) for number, kind in enumerate(dict.fromkeys(mark.kind for mark in marks.values()))}
    names = {number: kind for kind, number in kinds.items()}
    scheme = scheme if scheme in ("IOB1", "IOB2", "IOE1", "IOE2") else "IOBES"
    found = []
    for tags in sentences:
        roles = [mark and [mark.role, kinds[mark.kind]] for mark in map(marks.get, tags)]
        for start, end, _ in () if has_single or scheme != "IOBES" else entity_spans(tags, marks):
            if end - start == 1 and roles[start][0] == "B":  # in B, I, E without a letter for single words
                roles[start][0] = "S"
        plain = tuple("-".join(role) if role else "O" for role in roles)
        found.append(frozenset((start, end, names[kind]) for start, end, kind in _find_strict(plain, scheme)))
    return found


@functools.lru_cache(1 << 18)  # several scores need the same entities, and seqeval is slow
def _find_strict(tags: tuple[str, ...], scheme: str) -> frozenset[Entity]:
    if scheme == "IOE1":  # seqeval's does not find all; it is IOB1 read from the end
        mirrored = _find_strict(tuple(tag.replace("E", "B") for tag in reversed(tags)), "IOB1")
        return frozenset((len(tags) - end, len(tags) - start, kind) for start, end, kind in mirrored)
    found = Entities([list(tags)], getattr(seqeval_schemes, scheme)).entities[0]
    return frozenset((entity.start, entity.end, entity.tag) for entity in found)


def score(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]], tags: TagSet, samples: np.ndarray
) -> dict[str, list[float]]:
    """Scores of entities on each of `samples` (samples, rows): `precision`, `recall` and `f1` of CoNLL's scorer
    conlleval, and `strict_f1` of the entities whose tags follow the scheme."""
    both = predictions, references
    strict = ratios(*(find_strict(each, tags.marks, tags.scheme) for each in both), samples)
    return {**ratios(*(find(each, tags.marks) for each in both), samples), "strict_f1": strict["f1"]}


def ratios(
    predicted: Sequence[Set[Entity]], true: Sequence[Set[Entity]], samples: np.ndarray
) -> dict[str, list[float]]:
    """Precision, recall and F1 of all entities on each of `samples` (samples, rows); 0 where undefined."""
    counts = np.array([(len(one & other), len(one), len(other)) for one, other in zip(predicted, true, strict=True)])
    right, found, expected = counts[samples].sum(1).T
    shares = {"precision": (right, found), "recall": (right, expected), "f1": (2 * right, found + expected)}
    return {name: (above / np.maximum(below, 1)).tolist() for name, (above, below) in shares.items()}
