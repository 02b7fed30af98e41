"""Writes report.html: one page with everything in it, from the files of a stage."""

import base64
import functools
import hashlib
import logging
import os
import re
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from mybert.artifacts.manifest import REPORT, REPORTS
from mybert.common.metrics import percent
from mybert.common.tables import format_cell
from mybert.reports.components import printable
from mybert.reports.findings import findings_of, summary_line
from mybert.reports.pages import page_of
from mybert.reports.stage_files import explain_missing, read_stage

_TEMPLATE = Path(__file__).parent / "template"

logger = logging.getLogger(__name__)


def write_report(folder: str | Path) -> Path:
    """Writes report.html, of a comparison comparison.html, into the folder of a stage; returns its path."""
    files = read_stage(folder)
    path, findings = files.folder / REPORTS.get(files.stage, REPORT), findings_of(files)
    with explain_missing(files):
        page = page_of(files)
    charts = any(section.has_charts for section in page.filled)
    text = render_template(
        "report.html", charts=charts, page=page, findings=findings, findings_line=summary_line(findings)
    )
    path.write_text(text, encoding="utf-8", newline="\n", errors="replace")
    return path


def add_report(folder: str | Path) -> None:
    """Writes report.html at the end of a stage. A report that fails is a warning: the stage has its results."""
    try:
        write_report(folder)
    except Exception as error:
        if os.environ.get("MYBERT_TRACEBACK"):
            raise
        logger.warning("the report of %s could not be written (%s: %s)", folder, type(error).__name__, error)


def render_template(template: str, folder: Path = _TEMPLATE, charts: bool = False, **values: Any) -> str:
    """A page of a template that is report.html or extends it.

    `folder` is that of the template, and of a style sheet and a script that are added to those of report.html. A page
    with charts has uPlot in it.
    """
    parts = list(dict.fromkeys((_TEMPLATE / "report", folder / Path(template).stem)))  # once if they are the same
    styles, scripts = ([part.with_suffix(suffix) for part in parts] for suffix in (".css", ".js"))
    if charts:
        styles.insert(0, _TEMPLATE / "uplot" / "uPlot.min.css")
        scripts += [_TEMPLATE / "uplot" / "uPlot.iife.min.js", _TEMPLATE / "charts.js"]
    style, script = ("\n".join(file.read_text(encoding="utf-8") for file in files) for files in (styles, scripts))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment(folder)
        .get_template(template)
        .render(style=Markup(style), script=Markup(script), script_hash=f"sha256-{digest}", **values)
    )


def _with_options(text: str) -> Markup:
    """The text, with commands and options set as code, which no line breaks."""
    parts = re.split(r"`([^`]+)`|(?<![\w-])(--[a-z][a-z-]*[a-z])", printable(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 3 else part for number, part in enumerate(parts) if part
    )


@functools.cache
def _environment(folder: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([_TEMPLATE, folder]),
        autoescape=True,
        undefined=jinja2.ChainableUndefined,
        finalize=lambda shown: printable(shown) if isinstance(shown, str) and not isinstance(shown, Markup) else shown,
    )
    environment.globals["percent"] = percent
    environment.filters["options"] = _with_options
    environment.filters["written"] = format_cell
    environment.filters["clamp"] = lambda value: round(min(max(value, 0.0), 1.0), 4)
    return environment
