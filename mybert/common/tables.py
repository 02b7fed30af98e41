"""Tables printed at the end of a command, and the width of what is printed."""

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

_PERCENT = re.compile(r"-?[\d.]+%")
_MOST_COLUMNS = 100


def line_width(stream: TextIO | None) -> int:
    """Columns of what is printed to `stream`: those of the terminal, at most 100; 100 in files and pipes."""
    if stream is None or not stream.isatty():
        return _MOST_COLUMNS
    columns = os.environ.get("COLUMNS", "")
    if not columns.isdecimal():
        with contextlib.suppress(OSError):
            columns = str(os.get_terminal_size(stream.fileno()).columns)
    return min(int(columns or 0) or _MOST_COLUMNS, _MOST_COLUMNS)


def print_table(title: str, rows: Iterable[Sequence[Any]], columns: Sequence[str] | None = None) -> None:
    """Prints a table. Numbers and percentages are right-aligned; integers have thousands separators, floats 4 digits.

    Without `columns` there is no header, and rows are (name, value) pairs.
    """
    rows = [list(row) for row in rows]
    table = Table(show_header=columns is not None)
    for index in range(len(columns) if columns else max(map(len, rows), default=2)):
        cells = [row[index] for row in rows if index < len(row)]
        numeric = any(isinstance(cell, (int, float)) or _PERCENT.fullmatch(str(cell)) for cell in cells)
        table.add_column(columns[index] if columns else "", justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(format_cell, row))
    console = Console(width=line_width(sys.stdout), highlight=False, emoji=False)
    console.print(title, style="bold", markup=False, soft_wrap=True)  # a table's own title wraps at its width
    console.print(table, markup=False)


def format_cell(value: Any) -> str:
    """One cell as text: `1,234`, `0.1234`, `12.35`, or the value itself."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "-" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


RETRIEVAL_SYSTEMS = {
    "model": "the model",
    "bm25": "BM25",
    "start": "start model, mean pooling",
    "hybrid": "hybrid: model and BM25",
    "reranked": "hybrid, reranked",
}
"""What an evaluation of retrieval compares: the key in results.json, and its name. The last needs --reranker."""
