"""Settings of `mybert suggest`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from mybert.settings import declare
from mybert.settings.declare import FILE, ROWS, check, setting
from mybert.settings.shared import ERRORS
from mybert.tasks.settings import LABELLING_FORMS, PredictSettings

_MOST = 5000


@dataclass(kw_only=True)
class SuggestSettings(PredictSettings):
    """Model, rows without labels, and number and form of the suggestions."""

    command: ClassVar[str] = "suggest"
    formats: ClassVar[tuple[str, ...]] = tuple(dict.fromkeys(LABELLING_FORMS.values()))

    output: str = setting(
        "",
        "File to write: .jsonl and .csv, the chosen rows with an empty label to fill; .json, tasks for Label Studio. "
        "The row that tells most comes first.",
        writes=FILE,
    )
    count: int = declare.data(
        50,
        f"Number of rows, at most {_MOST}. Rows with a label are left out, unless every row has one.",
        within=f"[1, {_MOST}]",
    )
    labelled: list[str] = declare.data(
        default_factory=list,
        help="Files of rows that have labels already: suggestions are unlike them (default: none).",
        reads=ROWS,
    )
    format: str | None = declare.output(
        None, "Form of the output; label-studio and argilla write .json (default: by suffix).", choices=LABELLING_FORMS
    )
    errors: str = declare.data(
        "strict", "Rows that cannot be used stop the command (strict) or are left out (skip).", choices=ERRORS
    )
    engine: str = field(default="local", init=False)
    resume: bool = field(default=False, init=False)
    n_best: int | None = field(default=None, init=False)  # these four belong to tasks without suggestions
    max_answer_length: int | None = field(default=None, init=False)
    max_windows: int | None = field(default=None, init=False)
    choice_labels: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        suffix = Path(self.output).suffix
        if self.format is None:
            self.format = next((name for name, known in LABELLING_FORMS.items() if known == suffix), "jsonl")
        expected = LABELLING_FORMS[self.format]
        check(self, "output", suffix == expected, f"a file name in {expected} for --format {self.format}")
