"""Choices of a context in the forms of common data sets, and the choice that a label names."""

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mybert.common.errors import UserError, short_list
from mybert.common.quantities import counted
from mybert.rows.label_columns import of_cell
from mybert.rows.labels import READINGS, is_missing, label_name

_PREFIX = "(ending|choice|option|answer|solution|sol|hypothesis|hyp|alternative|op)[ _]?"
_COLUMN = re.compile(rf"(?i:{_PREFIX})(\d+|[A-Za-z])|([A-Z])")
_POSITION = re.compile(rf"[(\[]?(?i:{_PREFIX})?([A-Za-z]|\d{{1,9}})[)\].:]?")
_STRAY = 0.05  # of the labels that decide; fewer that contradict them are mistakes


def choice_columns(names: Iterable[str]) -> list[list[str]]:
    """Groups of columns that hold a choice each, such as `ending0` and `ending1`, `answerA` and `answerB`, A and B."""
    groups: dict[tuple[str, bool], dict[int, str]] = {}
    for name in names:
        if match := _COLUMN.fullmatch(name):
            suffix = match[2] or match[3]
            place = int(suffix) if suffix.isdecimal() else _place(suffix)
            groups.setdefault((name.removesuffix(suffix), suffix.isdecimal()), {})[place] = name
    counted = ((digits, dict(sorted(group.items()))) for (_, digits), group in groups.items())
    return [
        list(group.values())
        for digits, group in counted
        if len(group) > 1 and (digits or list(group) == list(range(len(group))))
    ]


def lifted(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of AI2's files, whose `question` is {"stem": …, "choices": […]}, with both as columns; others as given."""
    question = row.get("question")
    if not isinstance(question, Mapping) or "stem" not in question:
        return row
    return {**row, "question": question["stem"], "choices": question.get("choices")}


def texts_and_names(choices: Any) -> tuple[Any, list[str] | None]:
    """The texts of choices and, if the row gives its choices labels, those.

    Args:
        choices: a list of texts, {"text": […], "label": […]}, a list of {"text": …, "label": …}, or a cell with one.
    """
    choices = of_cell(choices) if isinstance(choices, str) else choices
    if isinstance(choices, list) and choices and all(isinstance(one, Mapping) and "text" in one for one in choices):
        choices = {name: [one.get(name) for one in choices] for name in ("text", "label")}
    if not isinstance(choices, Mapping) or not isinstance(texts := choices.get("text"), list):
        return choices, None
    names = choices.get("label")
    if not isinstance(names, list):
        return texts, None if is_missing(names) else [_plain(names)]
    names = ["" if is_missing(name) else _plain(name) for name in names]
    return texts, names if any(names) else None


def names_problem(names: Sequence[str] | None, choices: Sequence[str]) -> str | None:
    """What is wrong with the labels that a row gives its choices."""
    if names is None or (len(names) == len(choices) == len(set(names)) and all(names)):
        return None
    return f"{counted(len(choices), 'choice')} with the labels {short_list(names)}; give each a label of its own"


def choice_of(label: Any, choices: Sequence[str], names: Sequence[str] | None, reading: str | None) -> int | None:
    """Index of the choice that a label names; None if there is none.

    Args:
        names: the labels of the choices that the row itself gives; no other label is read then.
        reading: a key of `READINGS`; None: letters only.
    """
    if is_missing(label):
        return None
    name = _plain(label)
    if names is not None:
        return names.index(name) if names.count(name) == 1 else None
    if reading == "texts":
        return _text_place(name, choices)
    place = _position(name)
    if isinstance(place, str):
        place = None if reading not in ("from-0", "from-1") else int(place) - (reading == "from-1")
    return place if place is not None and 0 <= place < len(choices) else None


def label_of(place: int, choices: Sequence[str], names: Sequence[str] | None, reading: str | None) -> str | None:
    """The label of a choice, as `choice_of` reads it; None without a reading."""
    if names is not None:
        return names[place]
    if reading == "texts":
        return choices[place]
    return {"letters": chr(ord("A") + place), "from-0": f"{place}", "from-1": f"{place + 1}"}.get(reading or "")


class LabelledChoices(NamedTuple):
    """The label and the choices of a row, and how messages name the row."""

    label: Any
    choices: Sequence[str]
    place: str


def find_reading(rows: Iterable[LabelledChoices], asked: str | None, counts_from_0: bool) -> str | None:
    """How the labels of rows that give their choices no labels name a choice; None if there are no labels.

    Labels are texts if more of them are a text of their row than a position. Numbers count from 0 if there is a 0, and
    from 1 if there is the number of choices.

    Args:
        asked: a key of `READINGS` that overrides the rule; with `letters`, only numbers are decided.
        counts_from_0: whether the names of the columns of choices do.

    Raises:
        UserError: the labels have two meanings.
    """
    if asked not in (None, "letters"):
        return asked
    rows = [row._replace(label=_plain(row.label)) for row in rows if not is_missing(row.label)]
    rows = [row for row in rows if len(row.choices) > 1 and all(isinstance(choice, str) for choice in row.choices)]
    places = [(row, _position(row.label)) for row in rows]
    positions = [  # those that may be a choice, from 0 or from 1
        (row, place)
        for row, place in places
        if place is not None and int(place) < len(row.choices) + isinstance(place, str)
    ]
    texts = [row for row in rows if _text_place(row.label, row.choices) is not None] if asked is None else []
    if len(texts) > len(positions):
        return "texts"
    numbers = [(row, int(place)) for row, place in positions if isinstance(place, str)]
    reading = _base(numbers, counts_from_0) if numbers else "letters" if positions else None
    if texts and len(texts) == len(positions):
        for row in texts:
            if _text_place(row.label, row.choices) != choice_of(row.label, row.choices, None, reading):
                raise _ambiguous(row, "is the text of one choice and the place of another one", "texts", reading)
    return reading


def _base(numbers: Sequence[tuple[LabelledChoices, int]], counts_from_0: bool) -> str:
    """Whether numbers count from 0 or from 1."""
    first = [row for row, number in numbers if number == 0]
    last = [row for row, number in numbers if number == len(row.choices)]
    few, many = sorted((len(first), len(last)))
    if not many and counts_from_0:
        return "from-0"
    if not many:
        known = Counter(number for _, number in numbers)
        reason = (
            f"is a number, and no label is 0 or the number of choices (found {', '.join(map(str, sorted(known)))})"
        )
        raise _ambiguous(numbers[0][0], reason, "from-0", "from-1")
    if few > _STRAY * many:
        other = f"is 0, and {last[0].label!r} ({last[0].place}) is the number of its choices"
        raise _ambiguous(first[0], other, "from-0", "from-1")
    return "from-0" if len(first) > len(last) else "from-1"


def _ambiguous(row: LabelledChoices, reason: str, *readings: str | None) -> UserError:
    meanings = " or ".join(f"--choice-labels {name} ({READINGS[name]})" for name in readings if name)
    return UserError(f"{row.place}: the label {row.label!r} {reason}; say what the labels are by {meanings}")


def _plain(label: Any) -> str:
    return unicodedata.normalize("NFC", label_name(label)).strip()


def _place(letter: str) -> int:
    return ord(letter.upper()) - ord("A")


def _position(name: str) -> int | str | None:
    """The index of a letter, the digits of a number, or None: of `B`, `(b)`, `2.`, `option2` and the like."""
    match = _POSITION.fullmatch(name)
    if not match:
        return None
    return match[2] if match[2].isdecimal() else _place(match[2])


def _text_place(name: str, choices: Sequence[str]) -> int | None:
    """The only choice with this text."""
    places = list(itertools.islice((i for i, text in enumerate(choices) if _plain(text) == name), 2))
    return places[0] if len(places) == 1 else None
