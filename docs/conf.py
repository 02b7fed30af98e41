"""Settings of the documentation: Sphinx with MyST Markdown and the furo theme."""

import sys
from pathlib import Path

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
html_title = "MyBERT"
html_static_path = ["assets"]
html_css_files = ["site.css"]
html_search_scorer = str(DOCS / "assets" / "search.js")
html_copy_source = False
html_show_search_summary = False  # summaries are fetched, which browsers refuse for file://
