"""What the tags of training rows mean, and which tags and words cannot be used."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from modeling_mybert.entities_mybert import TagSet, entity_spans, read_tags
from mybert.common.errors import short
from mybert.common.quantities import counted
from mybert.rows.labels import check_label, label_name
from mybert.rows.splits import Problem, text_problem

_RARE = {"IOB2": ("B", "IOB1"), "IOE2": ("E", "IOE1")}  # a letter, and the scheme that has it between entities only
_AROUND = re.compile(r"^[\s\u200b\ufeff]+|[\s\u200b\ufeff]+$")
_LOOKS_LIKE_O = frozenset("0oO\u03bf\u039f\u043e\u041e\u3007\uff2f")  # also Greek, Cyrillic, ideographic and wide ones


def tag_set_of(sentences: Iterable[Sequence[str]]) -> TagSet | None:
    """`read_tags` of sentences, which tells IOB1 from IOB2, and IOE1 from IOE2.

    In IOB1, entities begin with I-, in IOB2 with B-; in IOE1, they end with I-, in IOE2 with E-. The more frequent one
    decides, since data may have some inconsistent tags.
    """
    sentences = list(sentences)
    tag_set = read_tags(Counter(itertools.chain(*sentences)))
    if tag_set is None or tag_set.scheme not in _RARE:
        return tag_set
    letter, other = _RARE[tag_set.scheme]
    positions: Counter[str] = Counter()
    for tags in sentences:
        spans = entity_spans(tags, tag_set.marks)
        starts, ends = ({(span[side], span[2]) for span in spans} for side in (0, 1))
        for start, end, kind in spans:  # between two entities of one type, all write the letter
            place, touches = (start, (start, kind) in ends) if letter == "B" else (end - 1, (end, kind) in starts)
            if not touches:
                positions[tag_set.marks[tags[place]].position] += 1
    return tag_set._replace(scheme=other) if positions["I"] > positions[letter] else tag_set


def stray_tag(tag: str, tag_set: TagSet) -> str:
    """The message about a tag that is none of `tag_set`: what it is, and what to write."""
    right = respelt(tag, tag_set)
    remedy = f"write {right}" if right else f"write a tag such as {', '.join(itertools.islice(tag_set.marks, 2))}"
    if not right and tag_set.outside is not None:
        remedy += f", or {tag_set.outside} outside entities"
    return f"the tag {short(tag)} is not of the scheme {tag_set.scheme}, which the other tags have; {remedy}"


def respelt(tag: str, tag_set: TagSet) -> str | None:
    """The tag of `tag_set` that `tag` probably is; None if there is none."""
    spelt = {_plain(known): known for known in (*tag_set.marks, *filter(None, [tag_set.outside]))}
    return (tag_set.outside if tag in _LOOKS_LIKE_O else None) or spelt.get(_plain(tag))


def _plain(tag: str) -> str:
    """A tag without the differences of a slip: case, spaces, and the character between position and type."""
    return re.sub(r"[\W_]+", "-", tag.strip()).strip("-").casefold()


def at_all_positions(tag_set: TagSet) -> set[str]:
    """The tags of each type at each position that some type has: I-MISC, if there are B-MISC, B-PER and I-PER."""
    kinds = {mark.kind for tag, mark in tag_set.marks.items() if mark.kind in tag}
    parts = (tag.rpartition(mark.kind) for tag, mark in tag_set.marks.items() if mark.kind in tag)
    around = {(before, after) for before, _, after in parts}
    return {f"{before}{kind}{after}" for before, after in around for kind in kinds}


def without_spaces(rows: Sequence[Any], known: Mapping[str, int]) -> list[Any] | None:
    """Lists of tags without white space and invisible characters around a tag, but for `known` labels of a model.

    None if no tag has any.
    """
    unknown = {tag for tags in rows if isinstance(tags, list) for tag in tags if isinstance(tag, str)} - known.keys()
    bare = {tag: _AROUND.sub("", tag) for tag in unknown if _AROUND.search(tag)}
    if not bare:
        return None
    return [
        [bare.get(tag, tag) if isinstance(tag, str) else tag for tag in tags] if isinstance(tags, list) else tags
        for tags in rows
    ]


def tokens_message(tokens: Any) -> str | None:
    if not isinstance(tokens, list):
        return f"the tokens {short(tokens)} are not a list of words"
    if not tokens:
        return "the sentence is empty"
    return next(filter(None, (text_problem(f"token {i}", word) for i, word in enumerate(tokens, 1))), None)


def tag_problems(
    number: int, tokens: list[str], tags: Any, known: Mapping[str, int] | None, tag_set: TagSet | None
) -> Iterator[Problem]:
    """The problems of a row's tags; `known` are the labels of the model, None for training rows."""
    if not isinstance(tags, list):
        yield Problem(number, f"the tags {short(tags)} are not a list")
        return
    if len(tags) != len(tokens):
        yield Problem(number, f"{counted(len(tokens), 'token')}, but {counted(len(tags), 'tag')}")
        return
    for place, tag in enumerate(tags):
        message, name = check_label(tag, known), label_name(tag)
        if message and tag_set and (right := respelt(name, tag_set)):
            message += f"; write {right}"
        elif not message and tag_set and name in tag_set.stray:
            message = stray_tag(name, tag_set)
        if message:
            yield Problem(number, f"token {place + 1} ({short(tokens[place])}): {message}", place)
