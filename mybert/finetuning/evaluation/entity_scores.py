"""Scheme of the tags of entities, and precision, recall and F1 as in CoNLL's scorer and in seqeval's strict mode."""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

import numpy as np
from seqeval import scheme as seqeval_schemes
from seqeval.scheme import Entities

from modeling_mybert.entities_mybert import Entity, Mark, TagSet, entity_spans, read_tags
from mybert.common.error_messages import short

_RARE = {"IOB2": ("B", "IOB1"), "IOE2": ("E", "IOE1")}  # a letter, and the scheme that has it between entities only
_LOOKS_LIKE_O = frozenset("0oO\u03bf\u039f\u043e\u041e\u3007\uff2f")  # also Greek, Cyrillic, ideographic and wide ones


def read_sentences(sentences: Iterable[Sequence[str]]) -> TagSet | None:
    """`read_tags` of sentences, which tells IOB1 from IOB2, and IOE1 from IOE2.

    In IOB1, entities begin with I-, in IOB2 with B-; in IOE1, they end with I-, in IOE2 with E-. The more frequent one
    decides, since data may have some inconsistent tags.
    """
    sentences = list(sentences)
    found = read_tags(Counter(itertools.chain(*sentences)))
    if found is None or found.scheme not in _RARE:
        return found
    letter, other = _RARE[found.scheme]
    roles = Counter()
    for tags in sentences:
        spans = entity_spans(tags, found.marks)
        starts, ends = ({(span[side], span[2]) for span in spans} for side in (0, 1))
        for start, end, kind in spans:  # between two entities of one type, all write the letter
            place, touches = (start, (start, kind) in ends) if letter == "B" else (end - 1, (end, kind) in starts)
            if not touches:
                roles[found.marks[tags[place]].role] += 1
    return found._replace(scheme=other) if roles["I"] > roles[letter] else found


def stray_tag(tag: str, found: TagSet) -> str:
    """The message about a tag that is none of `found`: what it is, and what to write."""
    right = respelt(tag, found)
    remedy = f"write {right}" if right else f"write a tag such as {', '.join(itertools.islice(found.marks, 2))}"
    if not right and found.outside is not None:
        remedy += f", or {found.outside} outside entities"
    return f"the tag {short(tag)} is not of the scheme {found.scheme}, which the other tags have; {remedy}"


def respelt(tag: str, found: TagSet) -> str | None:
    """The tag of `found` that `tag` probably is; None if there is none."""
    spelt = {_plain(known): known for known in (*found.marks, *filter(None, [found.outside]))}
    return (found.outside if tag in _LOOKS_LIKE_O else None) or spelt.get(_plain(tag))


def _plain(tag: str) -> str:
    """A tag without the differences of a slip: case, spaces, and the character between position and type."""
    return re.sub(r"[\W_]+", "-", tag.strip()).strip("-").casefold()


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
