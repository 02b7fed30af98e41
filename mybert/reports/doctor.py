"""`mybert doctor`: the findings about the output of a stage."""

import sys
import textwrap

from rich.console import Console

from mybert.common.tables import line_width
from mybert.reports.findings import Finding, findings_of, how_to_open, summary_line
from mybert.reports.settings import DoctorSettings
from mybert.reports.stage_files import read_stage
from mybert.reports.write import write_report

_COLOURS = {"red": "red", "amber": "yellow", "green": "green"}


def diagnose(settings: DoctorSettings) -> list[Finding]:
    """The findings about a folder, the gravest first. Running stages have findings about their log.

    Raises:
        UserError: the folder was not made by MyBERT, or a file in it is damaged.
    """
    return findings_of(read_stage(settings.folder))


def main(settings: DoctorSettings) -> None:
    findings = diagnose(settings)
    lines = textwrap.TextWrapper(line_width(sys.stdout), break_long_words=False, break_on_hyphens=False)
    console = Console(highlight=False, emoji=False, soft_wrap=True)
    console.print(f"{settings.folder}: {summary_line(findings)}", markup=False)
    for finding in findings:
        lines.initial_indent, lines.subsequent_indent = "", "  "
        title = lines.fill(f"{finding.badge}: {finding.title}")
        lines.initial_indent, lines.subsequent_indent = "  ", "    "
        console.print(f"\n{title}", style=_COLOURS[finding.level], markup=False)
        for text in (finding.evidence, *([f"What to do: {finding.remedy}"] if finding.remedy else [])):
            console.print(lines.fill(text), markup=False)
    if settings.report:
        print(f"\n{how_to_open(write_report(settings.folder))}")
