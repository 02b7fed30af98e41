"""Entities in the tags of words: what each tag of a tag set means, and the entities in a sentence.

Training, evaluation, prediction and the pipeline share these functions.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

UNTYPED = "entity"  # the type of entities in tags without one, such as B, I, O
_POSITIONS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S", "W": "S"}
_SCHEMES = {"IOB2": "BI", "IOE2": "IE", "IOBES": "BIES", "BILOU": "BILU", "BMES": "BMES", "BMEWO": "BMEW"}
_WORDS = "begin|beginning|inside|in|end|last|single|unit|whole"
_LETTER, _BETWEEN, _TYPE = "([BIMELSUW])", r"((?:[^\w\s]|[_\s])+?)", r"([\w$#@&%<(\[{](?:.*\S)?)"
_PREFIX, _SUFFIX, _ALONE, _WORD_PREFIX = (
    re.compile(form, re.IGNORECASE)
    for form in (
        *(_LETTER + _BETWEEN + _TYPE, _TYPE + _BETWEEN + _LETTER, _LETTER),
        f"({_WORDS}){_BETWEEN}{_TYPE}",
    )
)
_OUTSIDE = re.compile(r"[\W_]+|out(side)?|other|none|null|nil", re.IGNORECASE)
_SLIP = 20  # times as many words with a position; other tags are mistakes then, however many there are
_UNIVERSAL = (  # of Universal Dependencies, and of Petrov et al. 2012
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "CONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PRT", "PUNCT", "SCONJ", "SYM", "VERB"),
)
Entity = tuple[int, int, str]  # first word, the word after the last, type


class Mark(NamedTuple):
    """What the tag of a word in an entity means: `position` is B (begin), I (inside), E (end) or S (single)."""

    position: str
    kind: str


class TagSet(NamedTuple):
    """
    Attributes:
        scheme: IO, IOB2 (also for IOB1, which has the same tags), IOE2 (likewise), IOBES, BILOU, BMES, BMEWO, or the
            letters of the positions.
        marks: by tag.
        outside: the tag of words outside entities; None if there is none.
        stray: the other tags.
    """

    scheme: str
    marks: dict[str, Mark]
    outside: str | None
    stray: list[str]


def read_tags(counts: Mapping[str, int]) -> TagSet | None:
    """The meaning of the tags of a data set, or None if they do not name entities.

    A position is a letter (B, I or M, E or L, S or U or W) before or after the type, or alone; tags without positions
    are types (IO). All tags together decide: the form that explains most words is chosen, if tags with a position are
    at least half of the tags other than the outside tag, and of their words, or nearly all of their words. Of forms
    that explain the same words, the more common scheme is chosen, then the position before the type. Positions may be
    words (BEGIN-PER), or stand without a character between (BPER), if that explains all tags.

    Args:
        counts: how often each tag occurs; 1 if that is not known.
    """
    forms: dict[tuple[str, str, bool], dict[str, tuple[str, str]]] = defaultdict(dict)
    for tag in sorted(counts):
        if match := _ALONE.fullmatch(tag):
            forms["alone", "", tag.isupper()][tag] = tag.upper(), UNTYPED
        if match := _PREFIX.fullmatch(tag):
            forms["before", match[2], match[1].isupper()][tag] = match[1].upper(), match[3]
        if match := _SUFFIX.fullmatch(tag):
            forms["then", match[2], match[3].isupper()][tag] = match[3].upper(), match[1]
    for name, parsed in _unusual_forms(counts).items():
        if _is_complete(parsed, counts):
            forms[name, "", True] = parsed
    placed = {tag for parsed in forms.values() for tag in parsed}
    tag_sets = [_tag_set(parsed, counts, placed, form[0]) for form, parsed in sorted(forms.items())]
    order = list(_SCHEMES)

    def rank(tags: TagSet) -> tuple[int, int]:
        common = order.index(tags.scheme) if tags.scheme in order else len(order)
        return sum(counts[tag] for tag in tags.marks), -common

    return max((tags for tags in tag_sets if tags), key=rank, default=None) or _types_alone(counts)


def _unusual_forms(counts: Mapping[str, int]) -> dict[str, dict[str, tuple[str, str]]]:
    """Tags with the position as a word (BEGIN-PER), or without a character before the type (BPER) or after it."""
    forms: dict[str, dict[str, tuple[str, str]]] = {"before": {}, "joined before": {}, "joined then": {}}
    for tag in counts:
        if match := _WORD_PREFIX.fullmatch(tag):
            forms["before"][tag] = match[1][0].upper(), match[3]
        for form, letter, kind in (("joined before", tag[:1], tag[1:]), ("joined then", tag[-1:], tag[:-1])):
            if letter.upper() in _POSITIONS and kind.isalnum() and len(kind) > 1:
                forms[form][tag] = letter.upper(), kind
    return forms


def _is_complete(parsed: Mapping[str, tuple[str, str]], counts: Mapping[str, int]) -> bool:
    """Whether an unusual form explains all tags but the outside one, and the types inside entities also begin or end
    some.

    Otherwise the tags may be types: BEGIN_DATE and END_DATE, or BOOK and INN.
    """
    kinds: dict[str, set[str]] = defaultdict(set)
    for letter, kind in parsed.values():
        kinds[_POSITIONS[letter]].add(kind)
    others = [tag for tag in counts if tag not in parsed and tag not in ("O", "o") and not _OUTSIDE.fullmatch(tag)]
    return bool(kinds["I"]) and kinds["I"] <= kinds["B"] | kinds["E"] and not others


def _tag_set(
    parsed: Mapping[str, tuple[str, str]], counts: Mapping[str, int], placed: Set[str], form: str
) -> TagSet | None:
    """The tag set of one form, in which each tag of `parsed` has a letter and a type; `placed` are those of all."""
    times: Counter[str] = Counter()
    for tag, (letter, _) in parsed.items():
        times[letter] += counts[tag]
    letters: dict[str, str] = {}  # of letters for one position, the more frequent one
    for letter, _ in times.most_common():
        letters.setdefault(_POSITIONS[letter], letter)
    marks = {
        tag: Mark(_POSITIONS[letter], kind) for tag, (letter, kind) in parsed.items() if letter in letters.values()
    }
    if form != "before" and letters.keys().isdisjoint("BI"):
        return None
    used = "".join(letters.get(position, "") for position in "BIES")
    scheme = next((name for name, known in _SCHEMES.items() if set(used) <= set(known)), used)
    rest = sorted(counts.keys() - marks.keys(), key=lambda tag: (-counts[tag], tag))
    outside = next((tag for tag in "Oo" if tag in rest), None)
    if outside is None and rest:
        is_most = counts[rest[0]] >= max(counts[tag] for tag in marks)
        outside = rest[0] if is_most or _OUTSIDE.fullmatch(rest[0]) else None
    stray = [tag for tag in rest if tag != outside]
    unplaced = [tag for tag in stray if tag not in placed]
    words = [sum(counts[tag] for tag in some) for some in (placed, unplaced)]
    are_few = len(unplaced) <= len(placed) or _SLIP * words[1] <= words[0]
    return TagSet(scheme, marks, outside, stray) if words[0] >= words[1] and are_few else None


def _types_alone(counts: Mapping[str, int]) -> TagSet | None:
    """The tag set in which the tags beside O are types. Tags of one letter and parts of speech are none."""
    outside = next((tag for tag in "Oo" if tag in counts), None)
    kinds = {tag for tag in counts if tag != outside and any(letter.isalpha() for letter in tag)}
    kinds = {tag for tag in kinds if not ((match := _PREFIX.fullmatch(tag)) and match[3] in kinds)}
    long = {tag for tag in kinds if len(tag) > 1}
    if outside is None or not long or 2 * len(long) < len(kinds) or long.issubset(_UNIVERSAL):
        return None
    stray = sorted(counts.keys() - kinds - {outside})
    return TagSet("IO", {tag: Mark("I", tag) for tag in sorted(kinds)}, outside, stray)


def entity_spans(tags: Sequence[str], marks: Mapping[str, Mark]) -> list[Entity]:
    """The entities in the tags of a sentence, by the rules of CoNLL's scorer conlleval.

    An entity begins at B and S, after E, S and words outside, and where the type changes. So every word whose tag is
    in `marks` is part of an entity, also where tags break their scheme.
    """
    entities: list[Entity] = []
    before = None
    for place, mark in enumerate(map(marks.get, tags)):
        if mark is not None:
            goes_on = before and mark.position in "IE" and before.position in "BI" and before.kind == mark.kind
            start = entities.pop()[0] if goes_on else place
            entities.append((start, place + 1, mark.kind))
        before = mark
    return entities
