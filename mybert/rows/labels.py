"""Names of labels, and the kind of problem of a column of labels."""

import difflib
import math
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from mybert.common.errors import UserError, short, short_list

PROBLEMS = {  # and their names in `config.problem_type`
    "single-label": "single_label_classification",
    "multi-label": "multi_label_classification",
    "regression": "regression",
}
SINGLE, MULTI, REGRESSION = PROBLEMS.values()
READINGS = {
    "letters": "letters from A",
    "from-0": "numbers from 0",
    "from-1": "numbers from 1",
    "texts": "texts of the choices",
}
"""What labels of multiple-choice may be; letters are also read beside numbers."""
_FEW = 0.1  # share of labels that may be words (N/A, -) in a column of numbers, or lists in a column of words
_TYPO_ROWS, _TYPO_RATIO, _MOST_COMPARED = 5, 20, 200  # rows of a typo at most; times as many rows of the right label
_FEW_LABELS = 5
_TRUTHS = {"true": 1, "false": 0}
_MARKS = {"-", "--", "?", "n/a", "#n/a", "na", "<na>", "nan", "null", "unlabeled", "unlabelled"}
_DIGITS = re.compile(r"[0-9]+")
_AFFIX = re.compile(r"^[BIESLUM]-|-[BIESLUM]$")  # position prefix or suffix of an entity tag
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,([0-9]{1,2}|[0-9]{4,})")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_WHOLE_FLOAT = re.compile(r"-?[0-9]{1,15}\.0+")


def is_missing(label: Any) -> bool:
    """Whether a label is None, a text of spaces, an empty text or NaN."""
    return label is None or label != label or (isinstance(label, str) and not label.strip())


def differ(label: Any) -> bool:
    """Whether a label lists those of several annotations; see `annotations.agreed`."""
    return isinstance(label, list) and len(label) > 1 and all(isinstance(one, list) for one in label)


def are_names(labels: Sequence[Any], least: int = 1) -> bool:
    """Whether labels are names, beside which at most a tenth are lists of `least` names or more."""
    lists = [label for label in labels if isinstance(label, list | dict)]
    long = sum(len(label) >= least and not differ(label) for label in lists)
    return len(lists) < sum(not is_missing(label) for label in labels) and long <= _FEW * len(labels)


def label_name(label: Any) -> str:
    """The text of a label. Whole numbers lose their fraction: 1, 1.0 and "1.0" are one class in every format."""
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    name = f"{label.normalize():f}" if isinstance(label, Decimal) and label.is_finite() else str(label)
    name = name if name.isascii() else unicodedata.normalize("NFC", name)
    return name.split(".")[0] if _WHOLE_FLOAT.fullmatch(name) else name


def plain(text: str) -> str:
    """The text without case, invisible characters and the number and kind of spaces."""
    seen = "".join(sign for sign in unicodedata.normalize("NFKC", text) if unicodedata.category(sign) != "Cf")
    return " ".join(seen.casefold().split())


def known_name(label: Any, known: Mapping[str, int]) -> str:
    """`label_name`, or the spelling of the label itself where the checkpoint has that: `1.0`, or `true` for True.

    Spaces around a label count only if the checkpoint has a label with them.
    """
    text = str(label)
    spellings = (label_name(label), text, text.lower(), unicodedata.normalize("NFD", text), label_name(text.strip()))
    return next((name for name in spellings if name in known), str(label))


def number(label: Any) -> float | None:
    """The finite number that a number or text represents, else None. Truth values are not numbers."""
    if isinstance(label, bool) or not isinstance(label, (int, float, str, Decimal)):
        return None
    try:
        value = float(label)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def is_not_finite(value: Any) -> bool:
    """Whether a number, or a text of one, is infinite or NaN."""
    return str(value).strip().lstrip("+-").casefold() in ("nan", "inf", "infinity")


UNKNOWN = "is not among the"
"""In the message about a label that the model lacks."""


class ProblemType(NamedTuple):
    """`config.problem_type` of a model and the reason for it."""

    name: str
    reason: str


def find_problem(labels: Sequence[Any], asked: str | None = None) -> ProblemType:
    """The kind of problem of labels, by the same rule for all file formats.

    Lists are multi-label, unless at most a tenth of the labels are lists beside words. Numbers are regression if at
    least half of them have a fraction, and classes if none has. Other labels are classes; where at most a tenth of the
    labels are words, the others decide.

    Args:
        labels: of the training rows; missing ones are left out.
        asked: a key of `PROBLEMS` that overrides the rule.
    """
    if asked is not None:
        return ProblemType(PROBLEMS[asked], f"because of --problem {asked}")
    labels = [label for label in labels if not is_missing(label) and not differ(label)]
    if labels and not are_names(labels):
        return ProblemType(MULTI, "because the labels are lists")
    labels = [label for label in labels if not isinstance(label, (list, dict))]
    numbers = [value for value in map(number, labels) if value is not None]
    fractions = [value for value in numbers if not value.is_integer()]
    words = len(labels) - len(numbers)
    if words > _FEW * len(labels) or not numbers:
        truths = labels and {*map(str, labels)} <= {"True", "False", "true", "false"}
        pointed = list(filter(None, map(with_point, labels)))
        hint = f" (for numbers, write {pointed[0]})" if 2 * len(pointed) > len(labels) else ""
        return ProblemType(SINGLE, f"because the labels are {'truth values' if truths else f'words{hint}'}")
    if not fractions:
        return ProblemType(SINGLE, f"because the labels are {'words and ' if words else ''}whole numbers")
    if 2 * len(fractions) < len(numbers):
        raise UserError(
            f"{len(fractions):,} of {len(numbers):,} labels have a fraction, such as {fractions[0]:g}, the others are "
            "whole numbers: correct them, or choose --problem regression or --problem single-label"
        )
    return ProblemType(
        REGRESSION, f"because {len(fractions):,} of {len(numbers):,} labels are numbers with a fraction"
    )


def check_numbering(labels: Iterable[Any], known: Iterable[str]) -> None:
    """Raises if labels are whole numbers that count from another number than those of the model.

    Rows with the unknown number could be left out, but the others would have the label of another class.
    """
    names = list(known)
    numbers = sorted(map(int, names)) if all(map(_WHOLE.fullmatch, names)) else []
    if len(numbers) < 2 or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return
    label_numbers = {int(name) for name in map(label_name, labels) if _WHOLE.fullmatch(name)}
    for unknown, missing in ((numbers[0] - 1, numbers[-1]), (numbers[-1] + 1, numbers[0])):
        if unknown in label_numbers and missing not in label_numbers:
            shift = 1 if unknown < missing else -1
            renamed = " ".join([f"{n - shift}={n}" for n in numbers[:3]] + ["…"] * (len(numbers) > 3))
            raise UserError(
                f"a label is {unknown} and none is {missing}, the model was trained on {numbers[0]} to {numbers[-1]}; "
                f"if these labels count from another number, rename all: --label-names {renamed}"
            )


def with_point(label: Any) -> str | None:
    """A number with a decimal comma as a number with a point; None for other labels, also for thousands (1,000)."""
    return str(label).strip().replace(",", ".") if _DECIMAL_COMMA.fullmatch(str(label).strip()) else None


def sort_labels(labels: Iterable[Any]) -> list[str]:
    """The distinct names: whole numbers in numeric order, words in alphabetical order."""
    names = set(map(label_name, labels))  # 1 and "1" are one label, 1 and True are two
    numbers = all(map(_WHOLE.fullmatch, names))
    return sorted(names, key=lambda name: (int(name) if numbers else 0, name))


def find_label_typos(counts: Mapping[str, int]) -> list[str]:
    """A warning for each label, with its number of rows, that is probably a misspelling of another label.

    Labels are compared without case, spaces, `-` and `_`, numbers and truth values by their value. A rare label is
    also compared with frequent ones from which it differs in one or two letters. Differences in digits, in B- and I-,
    or in a prefix (in-, un-) are intended.
    """
    warnings, alike, values = [], dict[str, str](), dict[Any, str]()
    names = sorted(counts, key=lambda name: (name != name.strip(), -counts[name]))  # spaces around a label are typos
    for name in names:
        twin = alike.setdefault(re.sub(r"[ _-]+", " ", plain(name)), name)
        rare = counts[name] <= _TYPO_ROWS and len(names) <= _MOST_COMPARED
        often = [other for other in names if counts[other] >= _TYPO_RATIO * counts[name]] if rare else ()
        near = twin if twin != name else next((other for other in often if _is_misspelt(name, other)), None)
        value = _TRUTHS.get(name.casefold(), int(name) if _WHOLE.fullmatch(name) else number(name))
        same = name if value is None else values.setdefault(value, name)
        if same != name:
            near = same
        if near and (near == same or (len(name) > 1 and _DIGITS.findall(near) == _DIGITS.findall(name))):
            words = [f"{name}={near}", *([] if plain(name) == plain(near) else [f"{near}={near}"])]
            warnings.append(
                f"the label {name!r} ({counts[name]:,}) looks like {near!r} ({counts[near]:,}) and is trained as a "
                "separate label; if it is a typo, correct it or merge both by --label-names "
                + " ".join(map(shlex.quote, words))
            )
    return warnings


def find_marks(counts: Mapping[str, int]) -> list[str]:
    """A warning for each label that often marks a row without a label: `-`, `N/A`, or -1 beside 0, 1, 2, …"""
    names = {int(name) for name in counts if _WHOLE.fullmatch(name)}
    has_minus_1 = len(names) == len(counts) and names >= {-1, 0, 1, 2} and min(names) == -1
    return [
        f"the label {name!r} ({count:,}) often marks rows without a label, and is trained as a class; if it does, "
        "leave these rows out"
        for name, count in counts.items()
        if name.strip().casefold() in _MARKS or (name == "-1" and has_minus_1)
    ]


def _is_misspelt(name: str, other: str) -> bool:
    """Whether two long names differ in one or two letters."""
    name, other = (_AFFIX.sub("", tag) for tag in (name, other))
    in_front = name.endswith(other) or other.endswith(name)
    if in_front or min(len(name), len(other)) < 5 or abs(len(name) - len(other)) > 2:
        return False
    codes = difflib.SequenceMatcher(None, name, other, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in codes if tag != "equal") <= 2


def find_joined_labels(counts: Mapping[str, int]) -> list[str]:
    """A warning if labels such as `grain;wheat` look like several labels joined by a separator."""
    name, separator = joined_label(counts)
    if not separator:
        return []
    return [f"the label {name!r} looks like several labels; --label-separator '{separator}' splits them"]


def joined_label(counts: Mapping[str, int]) -> tuple[str, str]:
    """The first label that looks like several labels, and the separator between them; both are empty without one."""
    for separator in ";|,#" if len(counts) <= _MOST_COMPARED else "":
        parts = {name: [part.strip() for part in name.split(separator)] for name in counts}
        times = Counter(part for several in parts.values() for part in several)
        for name, several in parts.items():
            again = len(several) > 1 and all(several) and any(times[part] > 1 for part in several)
            if again and not all(map(str.isdigit, several)):
                return name, separator
    return "", ""


def check_label(label: Any, known: Mapping[str, int] | None) -> str | None:
    """The reason why a label cannot be used, or None. Training rows define the labels: `known` is None for them."""
    if is_missing(label):
        return "the label is missing"
    if not isinstance(label, (str, int, float, Decimal)):
        return f"the label {short(label)} is neither a word nor a number"
    if known is not None and known_name(label, known) not in known:
        few = f" ({short_list(known)})" if len(known) <= _FEW_LABELS else ""
        return f"the label {short(label_name(label))} {UNKNOWN} {len(known)} trained on{few}"
    return None
