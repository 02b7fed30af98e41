"""Which files have one word per line, and not a sentence in each row."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from mybert.common.errors import UserError, short
from mybert.io.files import file_format, open_text
from mybert.io.record_formats import declared_delimiter, header_delimiter
from mybert.rows.annotations import COLUMNS
from mybert.rows.column_choice import WORDS
from mybert.rows.conll import Columns, names_columns, quoted_fields, read_columns
from mybert.rows.label_columns import looks_like_list

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_SENTENCES = {".json", ".jsonl", ".parquet", ".xlsx"}


def read_word_file(
    path: Path, given: Mapping[str, str], usual: Mapping[str, Sequence[str]], tags: Collection[str] | None
) -> Columns | None:
    """The sentences of a file of one word per line; None for a file with a sentence in each row.

    Args:
        given: column by role, from `--columns`.
        usual: usual names of the columns `tokens` and `tags` in files of sentences.
        tags: the tags that the model knows; None if the file defines them.
    """
    kind = file_format(path).kind
    if kind in _SENTENCES:
        return None
    if kind not in _DELIMITERS:
        return read_columns(path, given)
    delimiter, first, second = _first_lines(path, _DELIMITERS[kind])
    names, cells = _fields(first, delimiter), _fields(second, delimiter)
    if _has_word_column(names, cells, given):
        return read_columns(path, given, None if delimiter == "\t" else delimiter)
    content = {*COLUMNS["text"], *usual["tokens"], *map(str.casefold, given.values())}
    known = {*content, *COLUMNS["spans"], *usual["tags"]}
    folded = {name.casefold() for name in names}
    is_tagged = delimiter == "\t" and len(names) > 1 and len(known & folded) < 2
    if is_tagged and tags is not None:
        is_tagged = names[-1] in tags
    if not content.isdisjoint(folded) and not is_tagged:
        return None
    if kind == ".csv" and delimiter in first and delimiter in second and len(first.split()) == 1:
        raise UserError(
            f"{path}: no column of texts or words in {short(first)}; name it by --columns text=COLUMN, or write "
            "CoNLL columns with tabs"
        )
    return read_columns(path, given)


def _first_lines(path: Path, delimiter: str) -> tuple[str, str, str]:
    """The delimiter of a table, and its first two lines."""
    with open_text(str(path)) as file:
        lines = (line.rstrip("\n") for line in file if line.strip())
        first, second = next(lines, ""), next(lines, "")
        if declared := declared_delimiter(first):
            first, second = second, next(lines, "")
    return declared or header_delimiter(first, delimiter), first, second


def _fields(line: str, delimiter: str) -> list[str]:
    fields = line.split(delimiter) if delimiter == "\t" else quoted_fields(line, delimiter)
    return [field.strip(' "') for field in fields]


def _has_word_column(names: Sequence[str], cells: Sequence[str], given: Mapping[str, str]) -> bool:
    """Whether the header names a column of words, and the row below it has one word there."""
    words = {given.get("tokens", "").casefold(), *WORDS}
    cell = next((cell for name, cell in zip(names, cells, strict=False) if name.casefold() in words), "")
    return names_columns(names, given) and len(cell.split()) == 1 and not looks_like_list(cell)
