"""Which columns of a file of one word per line hold the words and the tags, and where sentences end."""

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from modeling_mybert.entities_mybert import read_tags
from mybert.common.errors import UserError, short_list

WORDS = ("token", "tokens", "word", "words", "form")  # usual names of the columns
TAGS = ("tag", "tags", "ner", "ner_tag", "ner_tags", "label", "labels", "entity", "upos", "xpos", "pos", "pos_tags")
SENTENCES = ("sentence #", "sentence", "sentence_id", "sentence_idx", "sent_id", "sent")
DOCUMENTS = ("document", "document_id", "doc", "doc_id", "docid", "file", "filename")  # sentences are numbered in each
CONLL_U = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
CONLL_2012 = [*("document", "part", "number", "word", "pos", "parse", "lemma", "frameset", "sense", "speaker", "ner")]
_NUMBER = re.compile(r"([0-9]{1,9})([-.][0-9]+)?")  # 1, and CoNLL-U's 1-2 and 1.1
_BRACKETS = re.compile(r"(\([^\s()*]+)*\*?\)*")  # CoNLL-2005 and 2012: (PER* and *) around a person


class Line(NamedTuple):
    """A line with a word: its number from 1, the blank lines before it, and its fields."""

    number: int
    sentence: int
    fields: list[str]


class ColumnFile(NamedTuple):
    """
    Attributes:
        lines: of the words.
        names: of the columns, if they are known.
        first: the line of the file that has the right number of columns.
        is_open: whether lines may have further columns.
    """

    path: Path
    lines: list[Line]
    names: list[str] | None
    first: Line
    is_open: bool

    @property
    def width(self) -> int:
        return len(self.first.fields)

    def column(self, place: int) -> list[str]:
        return [line.fields[place] for line in self.lines]


def given_places(file: ColumnFile, given: Mapping[str, str]) -> dict[str, int]:
    """The places of the columns that `--columns` gives, by number, or by name if the columns have names."""
    places = {}
    for role in ("tokens", "tags"):
        value = given.get(role)
        if value is None or (file.names is None and not value.isdecimal() and file.width <= 2):
            continue  # the names are those of other files
        names = [name.casefold() for name in file.names or ()]
        if value.casefold() in names:
            places[role] = names.index(value.casefold())
        elif value.isdecimal() and 1 <= int(value) <= min(len(line.fields) for line in file.lines):
            places[role] = int(value) - 1
        else:
            there = short_list(file.names) if file.names else f"columns 1 to {file.width}, without names"
            raise UserError(f"--columns {role}={value}: {file.path} has no such column; there are {there}")
    if len(set(places.values())) < len(places):
        raise UserError(f"--columns names the column {given['tokens']} of {file.path} twice")
    return places


def usual_place(file: ColumnFile, names: Sequence[str]) -> int | None:
    """The place of the column with the first of some usual names."""
    known = [name.casefold() for name in (file.names or ())[: file.width]]
    return next((known.index(name) for name in names if name in known), None)


def counting_columns(file: ColumnFile) -> list[int]:
    """The first columns that number words or sentences; other columns before them name documents."""
    counters = []
    width = min(len(line.fields) for line in file.lines)
    for place in range(width - 1):
        values = file.column(place)
        steps = _steps(file, values)
        if _is_counter(values, steps):
            counters.append(place)
        elif not steps or (
            any(a != b for a, b in steps) and not (place < width - 2 and _names_sentences(file, place))
        ):
            break
    return counters


def _steps(file: ColumnFile, values: Sequence[str]) -> list[tuple[str, str]]:
    """The values of each two neighbouring words of a sentence."""
    pairs = itertools.pairwise(zip(file.lines, values, strict=True))
    return [(a, b) for (one, a), (other, b) in pairs if one.sentence == other.sentence]


def _names_sentences(file: ColumnFile, place: int) -> bool:
    """Whether a column changes exactly where the numbers of the words in the next one begin again."""
    numbers = file.column(place + 1)
    steps = _steps(file, numbers)
    if not _is_counter(numbers, steps) or not all(map(str.isdecimal, numbers)):
        return False
    return all(
        (a != b) == (int(d) <= int(c)) for (a, b), (c, d) in zip(_steps(file, file.column(place)), steps, strict=True)
    )


def _is_counter(values: Sequence[str], steps: Sequence[tuple[str, str]]) -> bool:
    """Whether a column counts: from word to word of a sentence it stays, rises by one, or begins again."""
    if not all(map(_NUMBER.fullmatch, values)) or 2 * sum(map(str.isdecimal, values)) < len(values):
        return False
    first = next((value for value in values if value.isdecimal()), "0")
    whole = [(int(a), int(b)) for a, b in steps if a.isdecimal() and b.isdecimal()]
    return all(b - a in (0, 1) or b == int(first) for a, b in whole) if steps else {*values} <= {"0", "1"}


def group_sentences(file: ColumnFile, counters: Sequence[int]) -> list[list[Line]]:
    """The lines of each sentence: between blank lines, or else by a column that numbers sentences or words."""
    lines, named = file.lines, usual_place(file, SENTENCES)
    if named is not None:
        places = [named] if (document := usual_place(file, DOCUMENTS)) is None else [document, named]
        return _grouped(lines, [*zip(*(_filled(file.column(place)) for place in places), strict=True)])
    sentences = _grouped(lines, [line.sentence for line in lines])
    for place in counters if len(sentences) == 1 else ():
        numbers = [int(re.split("[-.]", value)[0]) for value in file.column(place)]
        steps = [b - a for a, b in itertools.pairwise(numbers)]
        if 0 not in steps or min(steps) < 0:  # it numbers the words, and begins again in each sentence
            numbers = list(itertools.accumulate((step != 1 for step in steps), initial=0))
        if len(set(numbers)) > 1:
            return _grouped(lines, numbers)
    return sentences


def _filled(values: Sequence[str]) -> list[str]:
    """The values, and for an empty one the last before: some files write a number at the first word only."""
    filled: list[str] = []
    for value in values:
        filled.append(value or (filled[-1] if filled else value))
    return filled


def _grouped(lines: Sequence[Line], keys: Sequence[object]) -> list[list[Line]]:
    pairs = itertools.groupby(zip(keys, lines, strict=True), key=lambda pair: pair[0])
    return [[line for _, line in some] for _, some in pairs]


def tag_column(file: ColumnFile, word: int, is_numbered: bool) -> int | None:
    """The place of the tags; None if no column is left."""
    if file.names is not None:
        named = [place for name in TAGS if (place := usual_place(file, [name])) not in (None, word)]
        filled = [place for place in named if {*file.column(place)} != {"_"}]
        if filled or named:
            return (filled or named)[0]
    last = file.width - 1
    if last <= word:
        return None
    while last - 1 > word and _is_nested(file, last, is_numbered):
        last -= 1
    return last


def holds_tags(file: ColumnFile, place: int, other: int) -> bool:
    """Whether a column has tags with positions, and the other one has none. Any words with an O among them are IO."""
    first, second = (read_tags(Counter(file.column(one))) for one in (place, other))
    return first is not None and first.scheme != "IO" and (second is None or second.scheme == "IO")


def _is_nested(file: ColumnFile, place: int, is_numbered: bool) -> bool:
    """Whether a column has the entities inside those of the column before, as in GermEval."""
    inner, outer = (file.column(one) for one in (place, place - 1))
    tags = read_tags(Counter(outer))
    if tags is None:
        return False
    if is_numbered and place == 3:  # number, word, outer and inner; chunks leave few words outside
        is_inner = {*inner} == {tags.outside} or read_tags(Counter(inner)) is not None
        return is_inner and 3 * sum(tag in tags.marks for tag in outer) <= 2 * len(outer)
    return {tags.outside} < {*inner} <= {*outer}


def without_brackets(sentences: list[list[str]]) -> list[list[str]]:
    """Tags such as (PER*, *) and (PER) as tags in IOB2; others as they are."""
    tags = {tag for some in sentences for tag in some}
    if not all(map(_BRACKETS.fullmatch, tags)) or not any(tag[:1] == "(" for tag in tags):
        return sentences
    converted: list[list[str]] = []
    for some in sentences:
        converted.append([])
        open_kinds: list[str] = []
        for tag in some:
            begun = not open_kinds
            open_kinds += re.findall(r"\(([^\s()*]+)", tag)
            converted[-1].append(f"{'B' if begun else 'I'}-{open_kinds[0]}" if open_kinds else "O")
            closed = tag.count(")")
            open_kinds = open_kinds[: len(open_kinds) - closed] if closed else open_kinds
    return converted
