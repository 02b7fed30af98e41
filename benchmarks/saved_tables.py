"""Tables of benchmarks: printed, and added to a Markdown file if one is given."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from mybert.common.tables import format_cell, print_table


def save_table(path: str | None, title: str, rows: Iterable[Sequence], columns: Sequence[str]) -> None:
    """Prints a table and appends it to the file `path`; numbers are written as `print_table` writes them."""
    rows = [list(row) for row in rows]
    print_table(title, rows, columns)
    if path is None:
        return
    with Path(path).open("a", encoding="utf-8", newline="\n") as file:
        file.write(f"{title}\n\n{markdown(rows, columns)}\n\n")


def markdown(rows: Iterable[Sequence], columns: Sequence[str]) -> str:
    """A table in Markdown; numbers are written as `print_table` writes them."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *([format_cell(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines)
