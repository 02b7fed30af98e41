"""Settings of the documentation: Sphinx with MyST Markdown and the furo theme."""

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_ext")]

import mybert  # noqa: E402 - found by the path above

project = "MyBERT"
copyright = "the MyBERT authors"
release = version = mybert.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "command_reference"]
exclude_patterns = ["_ext", "contributing"]
suppress_warnings = ["myst.header"]  # pages may start their sections at any level

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
smartquotes = False  # they turn the two dashes of a flag into one
default_role = "code"  # docstrings write code between single backticks

autodoc_member_order = "bysource"
autodoc_typehints = "signature"

html_theme = "furo"
html_title = f"MyBERT {release}"
html_static_path = ["assets"]
html_css_files = ["site.css"]
html_search_scorer = str(DOCS / "assets" / "search.js")
html_copy_source = False
html_show_search_summary = False  # summaries are fetched, which browsers refuse for file://

ACCESSIBLE = {  # for keyboards and screen readers; what axe-core finds in the pages of Sphinx 9 and furo
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="All pages">',
    '<aside class="toc-drawer': '<aside aria-label="This page" class="toc-drawer',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    '<div class="highlight-text notranslate"><div class="highlight"><pre>': '<div class="highlight-text notranslate">'
    '<div class="highlight"><pre tabindex="0">',
    '<th class="head"><p></p></th>': "<td></td>",
    '<div id="search-results">': '<h1>Search</h1><div id="search-results">',
}


def make_accessible(app: Sphinx, error: Exception | None) -> None:
    for page in app.outdir.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if text != (better := re.sub("|".join(map(re.escape, ACCESSIBLE)), lambda found: ACCESSIBLE[found[0]], text)):
            page.write_text(better, encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("build-finished", make_accessible)
