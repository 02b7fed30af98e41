"""Files of one word per line, in columns: CoNLL's formats, CoNLL-U, GermEval, and tables with a header; and which
files have a sentence in each row instead."""

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from datasets import Dataset, Features, List, Value

from mybert.common.errors import UserError, short
from mybert.io.files import file_format, is_unicode, open_text
from mybert.io.record_formats import DELIMITERS, declared_delimiter, header_delimiter
from mybert.rows.annotations import COLUMNS
from mybert.rows.column_choice import (
    CONLL_2012,
    CONLL_U,
    SENTENCES,
    TAGS,
    WORDS,
    ColumnFile,
    Line,
    counting_columns,
    given_places,
    group_sentences,
    holds_tags,
    tag_column,
    usual_place,
    without_brackets,
)
from mybert.rows.label_columns import looks_like_list

_IDS = ("id", "idx", "index", "number", "no", "nr")
_DOCUMENT, _DECLARED_NAMES = "-DOCSTART-", "# global.columns ="
_COMMENT = re.compile(r"#+(\s|(begin|end) document\b|\w+\s*[=:])")
_SENTENCES = {".json", ".jsonl", ".parquet", ".xlsx"}
_ENDLESS = 1000  # words of a file without sentences


class Sentences(NamedTuple):
    """The sentences of a file of one word per line.

    Attributes:
        rows: a row for each sentence: `tokens`, and `tags` if the file has more columns.
        lines: line of each word of each sentence, from 0.
        note: which columns were taken; empty if there are one or two.
    """

    rows: Dataset
    lines: list[list[int]]
    note: str


def read_word_file(
    path: Path, given: Mapping[str, str], usual: Mapping[str, Sequence[str]], tags: Collection[str] | None
) -> Sentences | None:
    """The sentences of a file of one word per line; None for a file with a sentence in each row.

    Args:
        given: column by role, from `--columns`.
        usual: usual names of the columns `tokens` and `tags` in files of sentences.
        tags: the tags that the model knows; None if the file defines them.
    """
    kind = file_format(path).kind
    if kind in _SENTENCES:
        return None
    if kind not in DELIMITERS:
        return read_columns(path, given)
    delimiter, first, second = _first_lines(path, DELIMITERS[kind])
    names, cells = _header_fields(first, delimiter), _header_fields(second, delimiter)
    words = {given.get("tokens", "").casefold(), *WORDS}
    cell = next((cell for name, cell in zip(names, cells, strict=False) if name.casefold() in words), "")
    if names_columns(names, given) and len(cell.split()) == 1 and not looks_like_list(cell):  # a word in each row
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


def read_columns(path: Path, given: Mapping[str, str] | None = None, delimiter: str | None = None) -> Sentences:
    """Reads words and tags.

    The words are in the first column that is no running number, the tags in the last one, or the other way round if
    only the first one has tags of entities; of CoNLL-U in FORM and UPOS, of CoNLL-2012 in columns 4 and 11, under a
    header in the columns with usual names. Of nested annotations the outer one is read. Comments, document marks, and
    CoNLL-U's multiword tokens and empty nodes are left out.

    Args:
        given: for `tokens` and `tags` the number of a column, from 1, or its name in the header.
        delimiter: of a table with a header, whose fields may be quoted; None: tabs or spaces.

    Raises:
        UserError: a line has other columns than the first one, or `given` names none.
    """
    given = given or {}
    file = _read(path, given, delimiter)
    if not file.lines:
        return Sentences(Dataset.from_dict({"tokens": []}), [], "")
    counters = counting_columns(file)
    if file.names is None and counters and file.width == len(CONLL_U):
        file = file._replace(names=CONLL_U)
    chosen = given_places(file, given)
    if counters:  # without multiword tokens and empty nodes
        file = file._replace(lines=[line for line in file.lines if line.fields[counters[-1]].isdecimal()])
    word = chosen.get("tokens", usual_place(file, WORDS))
    word = (counters[-1] + 1 if counters else 0) if word is None else word
    tag = chosen["tags"] if "tags" in chosen else tag_column(file, word, bool(counters))
    if not chosen and file.names is None and tag is not None and holds_tags(file, word, tag):
        word, tag = tag, word
    for line in file.lines:
        if not line.fields[word] or (tag is not None and not line.fields[tag]):
            _refuse_line(file, line)
    sentences = group_sentences(file, counters)
    columns = {"tokens": [[line.fields[word] for line in some] for some in sentences]}
    if tag is not None:
        columns["tags"] = without_brackets([[line.fields[tag] for line in some] for some in sentences])
    rows = Dataset.from_dict(columns, Features({name: List(Value("string")) for name in columns}))
    lines = [[line.number - 1 for line in some] for some in sentences]
    return Sentences(rows, lines, _note(file, word, tag, sentences))


def _read(path: Path, given: Mapping[str, str], delimiter: str | None) -> ColumnFile:
    lines, names, is_2012 = [], None, False
    for line, text in _lines(path, delimiter):
        if text.startswith(_DECLARED_NAMES):
            names = text.removeprefix(_DECLARED_NAMES).split()
        is_2012 = is_2012 or text.startswith("#begin document")
        if line.fields:
            lines.append((line, text))
    plain = [line.fields for line, text in lines if not _COMMENT.match(text)]
    width = Counter(map(len, plain)).most_common(1)[0][0] if plain else None
    tags = {fields[-1] for fields in plain}

    def is_comment(line: Line, text: str) -> bool:
        is_word = len(line.fields) == width and (line.fields[0].strip("#") or line.fields[-1] in tags)
        return bool(_COMMENT.match(text)) and (is_2012 or not is_word)

    words = [line for line, text in lines if not is_comment(line, text)]
    first = words[0] if words else Line(1, 0, [])
    if names is None and not is_2012 and names_columns(first.fields, given):
        names = [name.strip() for name in words.pop(0).fields]
    file = ColumnFile(path, words, CONLL_2012 if is_2012 else names, first, is_2012)
    both = [int(given[role]) for role in ("tokens", "tags") if given.get(role, "").isdecimal()]
    needed = max(both) if len(both) == 2 and max(both) <= file.width else len(CONLL_2012) if file.is_open else 0
    for line in file.lines:  # which have as many columns as the first, or those that are needed
        if len(line.fields) != file.width if not needed else len(line.fields) < needed:
            _refuse_line(file, line)
    return file


def _lines(path: Path, delimiter: str | None) -> Iterator[tuple[Line, str]]:
    """The lines and their texts; blank lines and document marks have no fields."""
    sentence = 0
    with open_text(str(path)) as file:
        for number, text in enumerate(file, 1):
            if number == 1 and declared_delimiter(text):
                continue
            if not is_unicode(text):
                raise UserError(f"{path}, line {number}: not UTF-8; save it as UTF-8")
            text = text.rstrip("\n")
            fields = _fields(text) if delimiter is None else quoted_fields(text, delimiter)
            if not any(fields) or fields[0] == _DOCUMENT:
                fields, sentence = [], sentence + 1
            yield Line(number, sentence, fields), text


def _fields(text: str) -> list[str]:
    """The columns of a line, separated by tabs or spaces. Other white space may be part of a word."""
    if "\t" in text.strip(" \t"):
        return [field.strip(" ") for field in text.rstrip(" \t").split("\t")]
    return [field for field in text.replace("\t", " ").split(" ") if field]


def quoted_fields(text: str, delimiter: str) -> list[str]:
    """The fields of a line of a table."""
    return next(csv.reader([text], delimiter=delimiter, skipinitialspace=True), [])


def names_columns(fields: Sequence[str], given: Mapping[str, str]) -> bool:
    """Whether the first line has names of columns: those that are given, or usual ones of words and of tags."""
    names = {field.strip().casefold() for field in fields}
    if not names.isdisjoint(name.casefold() for name in given.values() if not name.isdecimal()):
        return True
    return (
        not names.isdisjoint(WORDS) and not names.isdisjoint((*TAGS, *_IDS, *SENTENCES)) and len(names) == len(fields)
    )


def _refuse_line(file: ColumnFile, line: Line) -> NoReturn:
    first = "the first line" if file.first.number == 1 else f"line {file.first.number}"
    raise UserError(
        f"{file.path}, line {line.number}: expected {file.width} columns as in {first}, found "
        f"{sum(map(bool, line.fields))}: {short(' '.join(line.fields))}; write one word per line, and a blank line "
        "after a sentence"
    )


def _note(file: ColumnFile, word: int, tag: int | None, sentences: Sequence[Sequence[Line]]) -> str:
    """Which of several columns were taken, and whether the file has no sentences."""
    notes = []
    if file.lines and (file.width > 2 or word == 1):
        shown = [f"{place + 1} ({file.names[place]})" if file.names else str(place + 1) for place in (word, tag or 0)]
        taken = f"word = {shown[0]}" + (f", tag = {shown[1]}" if tag is not None else "")
        notes.append(f"{taken} of {file.width}; --columns word=NUMBER tag=NUMBER chooses others")
    if len(sentences) == 1 and len(file.lines) > _ENDLESS:
        notes.append(f"no blank line ends a sentence, so all {len(file.lines):,} words are one")
    return f"columns of {file.path}: {'; '.join(notes)}" if notes else ""


def _first_lines(path: Path, delimiter: str) -> tuple[str, str, str]:
    """The delimiter of a table, and its first two lines."""
    with open_text(str(path)) as file:
        lines = (line.rstrip("\n") for line in file if line.strip())
        first, second = next(lines, ""), next(lines, "")
        if declared := declared_delimiter(first):
            first, second = second, next(lines, "")
    return declared or header_delimiter(first, delimiter), first, second


def _header_fields(line: str, delimiter: str) -> list[str]:
    fields = line.split(delimiter) if delimiter == "\t" else quoted_fields(line, delimiter)
    return [field.strip(' "') for field in fields]
