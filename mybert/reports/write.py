"""Writes report.html: one page with everything in it, from the files of a stage."""

import base64
import functools
import hashlib
import logging
import os
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from mybert.common.manifest import REPORT
from mybert.common.tables import format_cell
from mybert.reports.components import Page
from mybert.reports.escaping import printable
from mybert.reports.findings import Finding, find, summary_line
from mybert.reports.metric_names import percent
from mybert.reports.stage_files import explain_missing, read_stage

_TEMPLATE = Path(__file__).parent / "template"
_DARK = """
  --page: #0f141b; --card: #171e28; --text: #e6eaf0; --muted: #9aa6b5; --line: #3a4554; --grid: #263040;
  --accent: #7db0ff; --bad: #ff9b90; --warn: #f5c063; --good: #7bd69b;
  --bad-back: #43201d; --warn-back: #3b2e12; --good-back: #173524;
  --series-1: #7db0ff; --series-2: #ffb072; --series-3: #7bd69b; --series-4: #c4a5ff; --series-5: #5fd3e6;
  --segment-a: #24406e; --segment-b: #5a3a1c;
"""

logger = logging.getLogger(__name__)


def write_report(folder: str | Path) -> Path:
    """Writes report.html into the folder of a stage; returns its path."""
    from mybert.reports.pages import page_of  # with matplotlib, which only drawing needs

    files = read_stage(folder)
    path, findings = files.folder / REPORT, find(files)
    with explain_missing(files):
        page = page_of(files)
    path.write_text(render(page, findings), encoding="utf-8", newline="\n", errors="replace")
    return path


def add_report(folder: str | Path) -> None:
    """Writes report.html at the end of a stage. A report that fails is a warning: the stage has its results."""
    try:
        write_report(folder)
    except Exception as error:
        if os.environ.get("MYBERT_TRACEBACK"):
            raise
        logger.warning("%s could not be written (%s: %s)", Path(folder) / REPORT, type(error).__name__, error)


def render(page: Page, findings: list[Finding]) -> str:
    """The page as HTML."""
    return render_template("report.html", page=page, findings=findings, findings_line=summary_line(findings))


def render_template(template: str, folder: Path = _TEMPLATE, **values: Any) -> str:
    """A page of a template that is report.html or extends it.

    `folder` is that of the template, and of a style sheet and a script that are added to those of report.html.
    """
    added = [folder / f"{Path(template).stem}.{kind}" for kind in ("css", "js")] if folder != _TEMPLATE else []
    style, script = (path.read_text(encoding="utf-8") for path in added) if added else ("", "")
    script = (_TEMPLATE / "report.js").read_text(encoding="utf-8") + script
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment(folder)
        .get_template(template)
        .render(style=Markup(_style() + style), script=Markup(script), script_hash=f"sha256-{digest}", **values)
    )


def _style() -> str:
    """The style sheet. The colours of light mode are also those of print."""
    style = (_TEMPLATE / "report.css").read_text(encoding="utf-8")
    light = style.partition("color-scheme: light dark;")[2].partition("}")[0]
    return style.replace("DARK", _DARK).replace("PRINT", light)


@functools.cache
def _environment(folder: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([_TEMPLATE, folder]),
        autoescape=True,
        undefined=jinja2.ChainableUndefined,
        finalize=lambda found: printable(found) if isinstance(found, str) and not isinstance(found, Markup) else found,
    )
    environment.globals["percent"] = percent
    environment.filters["written"] = format_cell
    environment.filters["clamp"] = lambda value: round(min(max(value, 0.0), 1.0), 4)
    return environment
