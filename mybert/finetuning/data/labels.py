"""Labels by name: what data sets write as words, numbers or truth values."""

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from modeling_mybert import MyBertConfig
from mybert.common.error_messages import short, short_list
from mybert.common.errors import UserError

_FEW = 0.1
_FEW_ROWS, _OFTEN, _COMPARED = 5, 20, 200  # rows of a slip; times as many of what was meant; most labels compared
_FEW_LABELS = 5
_DIGITS = re.compile(r"[0-9]+")
_AFFIX = re.compile(r"^[BIESLUM]-|-[BIESLUM]$")  # which token of an entity a tag is of
_WHOLE = re.compile(r"-?[0-9]{1,18}")


def is_missing(label: Any) -> bool:
    return label is None or label == ""


def label_name(label: Any) -> str:
    """`1`, `true` or the word itself."""
    return str(label).lower() if isinstance(label, bool) else str(label)


def number(label: Any) -> float | None:
    """The finite number that a label is, or that its text says; None if it is none. Truth values are no numbers."""
    if isinstance(label, bool) or not isinstance(label, (int, float, str)):
        return None
    try:
        found = float(label)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def are_fractions(labels: Sequence[Any]) -> bool:
    """Whether labels are measured, not counted: the first is a float, or all are texts that say numbers, as in tables,
    and some of these have a fraction. 1.0 has none: tables of whole numbers with gaps are written so.

    Raises:
        UserError: all but a few of the texts are such numbers.
    """
    if labels and isinstance(labels[0], float):
        return True
    numbers = [number(label) if isinstance(label, str) else None for label in labels]
    if all(found is None or found.is_integer() for found in numbers):
        return False
    others = [label for label, found in zip(labels, numbers, strict=True) if found is None]
    if 0 < len(others) <= _FEW * len(labels):
        raise UserError(
            f"{len(others):,} of {len(labels):,} labels are no numbers, such as {short(others[0])}, the others are, "
            "some with fractions: correct them, or say what labels are by --problem regression or single-label"
        )
    return not others


def sort_labels(labels: Iterable[Any]) -> list[str]:
    """The names, each once: whole numbers by size, words by alphabet."""
    names = set(map(label_name, labels))  # 1 and "1" are one label, 1 and true are two
    numbers = all(map(_WHOLE.fullmatch, names))
    return sorted(names, key=lambda name: (int(name) if numbers else 0, name))


def find_label_typos(counts: Mapping[str, int]) -> list[str]:
    """A line for each label that is likely another, misspelt: a model would learn both.

    Such are spelt alike but for case, spaces, `-` and `_`; or but for a letter or two, if they occur a few times and
    the other often. What differs in digits, in B- and I-, or by something in front (in-, un-) is meant.

    Args:
        counts: how often each label occurs.
    """
    found, plain = [], {}
    names = sorted(counts, key=counts.get, reverse=True)
    for name in names:
        twin = plain.setdefault(re.sub(r"[\s_-]+", " ", name.strip()).casefold(), name)
        rare = counts[name] <= _FEW_ROWS and len(names) <= _COMPARED
        often = [other for other in names if counts[other] >= _OFTEN * counts[name]] if rare else ()
        near = twin if twin != name else next((other for other in often if _is_misspelt(name, other)), None)
        if near and len(name) > 1 and _DIGITS.findall(near) == _DIGITS.findall(name):
            found.append(
                f"the label {name!r} ({counts[name]:,}) looks like {near!r} ({counts[near]:,}), and is learned as one "
                "of its own; correct it if it is a slip"
            )
    return found


def _is_misspelt(name: str, other: str) -> bool:
    """Whether a letter or two of long names differ."""
    name, other = (_AFFIX.sub("", tag) for tag in (name, other))
    in_front = name.endswith(other) or other.endswith(name)
    if in_front or min(len(name), len(other)) < 5 or abs(len(name) - len(other)) > 2:
        return False
    codes = difflib.SequenceMatcher(None, name, other, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in codes if tag != "equal") <= 2


def name_labels(config: MyBertConfig, names: list[str]) -> None:
    """Gives the configuration these labels, in this order."""
    config.num_labels = len(names)
    config.id2label = dict(enumerate(names))
    config.label2id = {name: i for i, name in enumerate(names)}


def check_label(label: Any, known: Mapping[str, int] | None) -> str | None:
    """What is wrong with a class's label; `known` are those of the configuration, None while they are collected."""
    if is_missing(label):
        return "the label is missing"
    if not isinstance(label, (str, int)):
        return f"the label {short(label)} is neither a word nor a whole number"
    if known is not None and label_name(label) not in known:
        few = f" ({short_list(known)})" if len(known) <= _FEW_LABELS else ""
        return f"the label {short(label_name(label))} is not among the {len(known)} trained on{few}"
    return None
