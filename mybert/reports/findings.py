"""Findings about a stage, the most severe first, and the last lines of a command, which name them."""

import contextlib
import importlib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from mybert.artifacts.manifest import REPORT, REPORTS
from mybert.common.errors import quoted_command
from mybert.common.quantities import counted
from mybert.reports.stage_files import StageFiles, explain_missing, read_stage

LEVELS = ("red", "amber", "green")
_CHECKS: dict[str, tuple[str, ...]] = {
    "corpus": ("corpus",),
    **dict.fromkeys(("pretrain", "adapt", "distill"), ("pretraining", "training")),
    "finetune": ("retrieval", "finetuning", "evaluation", "training"),
    "evaluate": ("retrieval", "evaluation"),
}
"""The modules of the checks of each stage, loaded when they run. A check is a function in `CHECKS` of its module."""
_BADGES = {"red": "Problem", "amber": "Warning", "green": "Passed"}


class Finding(NamedTuple):
    """
    Attributes:
        name: the check, such as `plateau`.
        level: `red` for a result that cannot be relied on, `amber` for a doubt, `green` for a check that passed.
        remedy: what to do; empty for a check that passed.
    """

    name: str
    level: str
    title: str
    evidence: str
    remedy: str = ""

    @property
    def badge(self) -> str:
        return _BADGES[self.level]


def passed(name: str, title: str, evidence: str) -> Finding:
    return Finding(name, "green", title, evidence)


def judged(name: str, level: str, titles: tuple[str, str], evidence: str, remedy: str) -> Finding:
    """A finding with the first title and no remedy if its level is green, else with the second title."""
    passes = level == "green"
    return Finding(name, level, titles[0 if passes else 1], evidence, "" if passes else remedy)


def level_of(value: float, amber: float, red: float = float("inf")) -> str:
    """The level of a value that is better the lower it is: `red` above `red`, `amber` above `amber`."""
    return "red" if value > red else "amber" if value > amber else "green"


def findings_of(files: StageFiles) -> list[Finding]:
    """The findings of all checks that apply to a stage; some stages have none."""
    modules = [importlib.import_module(f"mybert.reports.checks.{name}") for name in _CHECKS.get(files.stage, ())]
    with explain_missing(files):
        findings = [finding for module in modules for check in module.CHECKS for finding in check(files)]
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def summary_line(findings: list[Finding]) -> str:
    """How many findings there are of each level, as a sentence."""
    counts = Counter(finding.level for finding in findings)
    ends = {"red": ("problem", ""), "amber": ("warning", ""), "green": ("check", " passed")}
    said = [f"{counted(counts[level], noun)}{end}" for level, (noun, end) in ends.items() if counts[level]]
    return f"{', '.join(said)}." if said else "No findings: this stage has no checks, or its log is still too short."


def closing_lines(output: Path) -> str:
    """Where the output and its report are, and the titles of the problems and warnings in the report."""
    lines = [f"the output is in {output}"]
    if output.suffix == ".html":
        lines.append(how_to_open(output))
    for report in (path for name in (REPORT, *REPORTS.values()) if (path := output / name).is_file()):
        lines += [how_to_open(report), *warning_lines(output)]
    return "\n".join(lines)


def how_to_open(page: Path) -> str:
    """The line of a command that has written a page."""
    return f"open {page} in a browser to see the results"


def warning_lines(folder: Path) -> list[str]:
    """The titles of the problems and warnings of a stage, below a line that counts them; empty if there are none."""
    with contextlib.suppress(Exception):  # the output is complete, and writing the report has warned of it
        if findings := [finding for finding in findings_of(read_stage(folder)) if finding.level != "green"]:
            command = quoted_command("mybert", "doctor", str(folder))
            count = f"{summary_line(findings).rstrip('.')}; `{command}` says what to do:"
            return [count, *(f"  {finding.badge}: {finding.title}" for finding in findings)]
    return []
