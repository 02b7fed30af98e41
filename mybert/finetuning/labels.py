"""Labels by name: what data sets write as words, numbers or truth values."""

from collections.abc import Iterable, Mapping
from typing import Any

from modeling_mybert import MyBertConfig


def is_missing(label: Any) -> bool:
    return label is None or label == ""


def label_name(label: Any) -> str:
    """`1`, `true` or the word itself."""
    return str(label).lower() if isinstance(label, bool) else str(label)


def sort_labels(labels: Iterable[Any]) -> list[str]:
    """The names, each once: numbers by size, words by alphabet."""
    by_name = {label_name(label): label for label in labels}  # 1 and "1" are one label, 1 and true are two
    numbers = all(isinstance(label, int) for label in by_name.values())
    return sorted(by_name, key=by_name.get if numbers else None)


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
        return f"the label {label!r} is neither a word nor a whole number"
    if known is not None and label_name(label) not in known:
        some = ", ".join(list(known)[:10]) + (", …" if len(known) > 10 else "")
        return f"the label {label_name(label)!r} is not among those trained on ({some})"
    return None
