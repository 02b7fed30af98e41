"""The last lines of a command: its output, its report, and what the report warns of."""

import contextlib
from pathlib import Path

from mybert.artifacts.manifest import REPORT, REPORTS
from mybert.reports.findings import find, summary_line
from mybert.reports.stage_files import read_stage


def closing_lines(output: Path) -> str:
    """Where the output and its report are, and the titles of the problems and warnings in the report."""
    lines = [f"the output is in {output}"]
    for report in (path for name in (REPORT, *REPORTS.values()) if (path := output / name).is_file()):
        lines.append(f"open {report} in a browser to see the results")
        lines += warning_lines(output)
    return "\n".join(lines)


def warning_lines(folder: Path) -> list[str]:
    """The titles of the problems and warnings of a stage, below a line that counts them; empty if there are none."""
    with contextlib.suppress(Exception):  # the output is complete, and writing the report has warned of it
        if found := [finding for finding in find(read_stage(folder)) if finding.level != "green"]:
            name = f'"{folder}"' if " " in str(folder) else folder  # the command can be copied
            count = f"{summary_line(found).rstrip('.')}; `mybert doctor {name}` says what to do:"
            return [count, *(f"  {finding.title}" for finding in found)]
    return []
