"""Options that several tasks share. Options of one task are in its module."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mybert.common.errors import UserError
from mybert.common.settings import check_choices, check_least, setting


@dataclass(kw_only=True)
class TaskOptions:
    """Options of every task. A fine-tuned checkpoint stores them.

    None means the checkpoint's value, else the task's default.

    Raises:
        UserError: a value is out of range.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"max_length": 128}

    columns: list[str] = setting(
        default_factory=list,
        help="Columns without a usual name, as ROLE=COLUMN, such as text=body label=gold; label=a,b,c reads one-hot "
        "columns.",
    )
    max_length: int | None = setting(
        None,
        "Tokens per sequence, special tokens included (default: the checkpoint's value, else 128, or 384 for "
        "question-answering).",
    )

    def __post_init__(self):
        check_choices(self)
        check_least(self, "max_length", 8)
        self.columns = self.columns.split() if isinstance(self.columns, str) else list(self.columns)
        self.given_columns()

    def given_columns(self) -> dict[str, str]:
        """Column by canonical name, from `--columns`."""
        return pairs("columns", self.columns, "ROLE=COLUMN, such as text=body")

    @classmethod
    def of(cls, *sources: Mapping[str, Any]) -> Self:
        """Each option from the first of `sources` that has it, else the task's default."""
        values = {}
        for field in dataclasses.fields(cls):
            found = (source.get(field.name) for source in (*sources, cls.defaults))
            if (value := next((value for value in found if value not in (None, [])), None)) is not None:
                values[field.name] = value
        return cls(**values)


@dataclass(kw_only=True)
class WindowOptions(TaskOptions):
    """Options of tasks that split long inputs into windows."""

    stride: int | None = setting(
        None,
        "Tokens that consecutive windows of a long input share (default: a third of --max-length).",
        old_name="overlap",
    )

    def __post_init__(self):
        super().__post_init__()
        check_least(self, "stride", 0)


def pairs(flag: str, words: list[str], expected: str) -> dict[str, str]:
    """The words `NAME=VALUE` of a flag as a dictionary."""
    for word in words:
        if "=" not in word.strip("="):
            raise UserError(f"--{flag}: expected {expected}, found {word!r}")
    return dict(word.split("=", 1) for word in words)
