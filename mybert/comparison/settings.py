"""Settings of `mybert compare`."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from mybert.common.errors import UserError, did_you_mean
from mybert.settings import declare
from mybert.settings.declare import check, setting
from mybert.settings.shared import OutputFolder


@dataclass
class CompareSettings(OutputFolder):
    command: ClassVar[str] = "compare"

    runs: list[str] = setting(
        help="Two or more runs on the same rows; the first is the one that the others are compared with. A run is an "
        "output folder of `mybert evaluate` or `finetune`, or a file of predictions (.jsonl, .csv, .tsv, .xlsx, "
        ".parquet). Several seeds of one setting are one run, written with commas: seed-1,seed-2,seed-3.",
        positional=True,
        reads="mybert.comparison.settings:check_run",
    )
    metric: str | None = declare.evaluation(
        None, "Metric that the report begins with (default: the task's main metric)."
    )
    part: str = declare.data(
        "auto",
        "Rows of fine-tuning folders; auto: test rows if all runs have them, else validation rows.",
        choices=("auto", "test", "validation"),
    )
    columns: list[str] = declare.data(
        default_factory=list,
        help="Columns of files of predictions, such as prediction=output reference=gold, for files that have them; "
        "a role may be named twice (default: the usual names).",
        pairs=True,
    )
    slices: list[str] = declare.evaluation(
        default_factory=list, help="Columns of the rows whose values are compared separately."
    )
    bootstrap: int = declare.evaluation(
        5000, "Bootstrap samples for intervals, and permutations for p values.", least=100
    )
    seed: int = declare.seeds(42, "Random seed of samples and permutations.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "runs", len(self.runs) > 1, "two or more")
        for run in self.runs:
            if twice := [name for name, times in Counter(map(Path, folders_of(run))).items() if times > 1]:
                raise UserError(f"the run {run} names {twice[0]} twice; name each seed once")
        wrong = [given for given in self.columns if given.partition("=")[0] not in ("prediction", "reference")]
        if wrong or not all(given.partition("=")[2] for given in self.columns):
            raise UserError(f"--columns {' '.join(self.columns)}: expected prediction=COLUMN reference=COLUMN")

    def named(self, role: str) -> list[str]:
        """The columns that `--columns` names for a role."""
        return [given.partition("=")[2] for given in self.columns if given.partition("=")[0] == role]


def folders_of(run: str) -> list[str]:
    """The folders or files of a run, which commas separate."""
    return [part.strip() for part in run.split(",") if part.strip()]


def check_run(run: str) -> None:
    """Raises a UserError if a folder or file of a run does not exist."""
    for name in folders_of(run):
        if not Path(name).exists():
            meant = did_you_mean(name)
            raise UserError(f"{name} does not exist; name an output folder or a file of predictions{meant}")
