"""Retrieval collections: documents, queries and judgements, as rows of any file or in formats of BEIR and TREC."""

import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from mybert.common.errors import UserError, short, short_list
from mybert.io.documents import Document, Problems, read_documents, records_of
from mybert.io.files import STDIN, file_format, is_unicode, open_text
from mybert.io.record_formats import DELIMITERS, READERS, TextColumn, header_delimiter, read_table
from mybert.io.sources import PYTHON_DOCS, Source, find_sources
from mybert.rows.labels import is_missing
from mybert.rows.tables import usual_columns

IDS = (
    *("_id", "id", "doc_id", "docid", "docno", "document_id", "corpus-id", "corpus_id", "pid"),
    *("query-id", "query_id", "qid"),
)
"""Usual columns of the id of a document or a query; the first that a row has is read."""
OF_DOCUMENTS = ("id", "text", "title")
"""The columns of documents that `--columns` may name."""
_TEXTS = ("text", "contents", "content", "body", "passage", "document", "abstract", "query", "question", "title")
_JUDGEMENT = (
    ("query-id", "query_id", "qid", "query", "question_id"),
    ("corpus-id", "corpus_id", "doc_id", "docid", "docno", "document_id", "pid", "document"),
    ("score", "relevance", "grade", "rel", "label"),
)
_DOCUMENT = re.compile(r"<DOC>(.*?)</DOC>", re.DOTALL | re.IGNORECASE)
_TREC = ("<doc", "<top", "<?xml")  # other texts may begin with another tag
_TOPIC = re.compile(r"<top>(.*?)</top>", re.DOTALL | re.IGNORECASE)
_FIELD = re.compile(r"(?ims)<(\w+)[^<>]*>(.*?)(?=^\s*<\w|<(?:num|title|desc|narr)\b|\Z)")
_TAG = re.compile(r"<!--.*?-->|</?[A-Za-z][^<>]*>", re.DOTALL)
_TOPIC_WORDS = re.compile(r"^\s*(Number|Topic|Description):", re.IGNORECASE)


class Texts(NamedTuple):
    """Documents or queries, in the order of their files.

    Attributes:
        titles: empty for documents without one.
    """

    ids: list[str]
    titles: list[str]
    texts: list[str]

    def passages(self) -> list[str]:
        """Title and text of each, as BEIR joins them."""
        return [joined(*pair) for pair in zip(self.titles, self.texts, strict=True)]


class Judgements(NamedTuple):
    """Grades by query and document, and the numbers of those that were left out, by reason."""

    grades: dict[str, dict[str, int]]
    left_out: Counter[str]


def id_of(value: Any) -> str:
    """An id as text. 1.0 is 1: programs write whole numbers as fractions if other rows have none."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def title_of(value: Any) -> str:
    """A title as text; it may be a number, or a list. Empty for none."""
    return " ".join(map(id_of, value)) if isinstance(value, list) else "" if is_missing(value) else id_of(value)


def with_ids_and_titles(
    rows: Iterable[Document], given: Mapping[str, str]
) -> Iterator[tuple[Document, str | None, str, dict[str, Any]]]:
    """Each row with its id, which it may lack, its title, and its other columns.

    Args:
        given: the columns `id` and `title` of `--columns`; others have usual names.

    Raises:
        UserError: the first row with columns lacks one of them.
    """
    unchecked = [given[role] for role in ("id", "title") if role in given]
    for row in rows:
        columns = dict(row.others)
        for name in unchecked if columns else ():
            TextColumn(name, "name another by --columns").check(row.source, [*columns])
        unchecked = [] if columns else unchecked
        filled = [name for name, value in columns.items() if not is_missing(value)]
        ids = usual_columns(filled, [given["id"]] if "id" in given else IDS)
        key = id_of(columns.pop(ids[0])) if ids else None
        titles = usual_columns(columns, [given.get("title", "title")])
        yield row, key, title_of(columns.pop(titles[0])) if titles else "", columns


def joined(title: str, text: str) -> str:
    """Title and text with a space between them."""
    return f"{title} {text}" if title.strip() and text.strip() else title.strip() or text


def read_texts(
    names: Sequence[str], what: str, errors: str = "strict", columns: Mapping[str, str] = MappingProxyType({})
) -> Texts:
    """Reads documents or queries.

    Formats: rows with an id, a text and maybe a title (BEIR: `_id`, `title`, `text`); `id<tab>text` lines without
    names of columns; TREC's `<DOC>` and `<top>`; another .txt or .md file is one document, with its name as id.

    Args:
        what: `documents` or `queries`, for messages.
        columns: `id`, `text` and `title` of rows, from `--columns`; others have usual names.

    Raises:
        UserError: a text has no id or no words (with `errors` strict), or two have the same id.
    """
    entries, places, problems = Texts([], [], []), dict[str, str](), Problems(errors, Counter())
    for source in find_sources(names):
        for key, title, text, place in _rows(source, what, problems, columns):
            if key is None or not key.strip():
                expected = columns.get("id") or f"one of {short_list(IDS)}"
                problems.report(source.name, place, f"no id; expected {expected}")
            elif not is_unicode(key + title):
                problems.report(source.name, place, "id or title has half of a surrogate pair, which is no character")
            elif not joined(title, text).strip():
                problems.report(source.name, place, "no text", f"id {short(key)}")
            elif key in places:
                problems.report(source.name, place, "the id is given twice", f"{short(key)}, also in {places[key]}")
            else:
                places[key] = f"{source.name}, {place}"
                for values, value in zip(entries, (key, title, text), strict=True):
                    values.append(value)
    if not entries.ids:
        raise UserError(f"{' and '.join(names)}: found no {what} with an id and a text")
    if len(entries.ids) > 1 and len(set(zip(entries.titles, entries.texts, strict=True))) == 1:
        print(f"all {what} have the same text, so that a ranking says nothing; check {' and '.join(names)}")
    problems.print_skipped(what)
    return entries


_Row = tuple[str | None, str, str, str]
"""Id, title, text and place in the file."""


def _rows(source: Source, what: str, problems: Problems, given: Mapping[str, str]) -> Iterator[_Row]:
    if source.name == STDIN:
        raise UserError("a collection cannot be read from standard input; save it to a file")
    head, is_tabbed = _first_line(source)
    names = {name.strip().lower() for name in head.split("\t")}
    is_named = not names.isdisjoint([*IDS, *itertools.chain(*_JUDGEMENT), *map(str.lower, given.values())])
    tagged = list(_tagged(source.name)) if head.lstrip().startswith("<") else []
    if tagged:
        yield from tagged
    elif head.lstrip().lower().startswith(_TREC):
        raise UserError(f"{source.name} has neither <DOC> nor <top>; expected TREC's tags, or rows")
    elif is_tabbed and not is_named:
        yield from _two_columns(source.name, problems)
    elif source.kind == ".txt" and what == "documents":
        options: dict[str, Any] = {"errors": problems.errors, "skipped": problems.skipped}
        for document in read_documents([source.name], plain_text="file", **options):
            yield source.name, "", document.text, document.place
    else:
        yield from _table(source, problems, given)


def _first_line(source: Source) -> tuple[str, bool]:
    """The first line of a plain text that is not blank, and whether tabs separate columns; empty for other formats."""
    if source.kind not in (".txt", ".tsv"):
        return "", False
    with open_text(source.name) as file:
        lines = (line for line in file if line.strip())
        head = next(lines, "")
        return head, "\t" in head and (source.kind == ".tsv" or all("\t" in line for line in lines))


def _two_columns(name: str, problems: Problems) -> Iterator[_Row]:
    """Lines of an id, a tab and a text, as MS MARCO's; of three columns the second is a title."""
    with open_text(name) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                if not is_unicode(line):
                    problems.report(name, f"line {number}", "not UTF-8")
                    continue
                key, *rest = line.rstrip("\n").split("\t")
                yield key, " ".join(rest[:-1]), " ".join(rest[-1:]), f"line {number}"


def _tagged(name: str) -> Iterator[_Row]:
    """TREC's documents and topics; none of a text with other tags."""
    with open_text(name) as file:
        content = file.read()
    for number, match in enumerate(_DOCUMENT.finditer(content), 1):
        key, others = _taken(match[1], "docno")
        title, rest = _taken(others, "title")
        if not title:
            title, rest = _taken(others, "headline")
        yield key, title, _untagged(rest), f"document {number}"
    for number, match in enumerate(_TOPIC.finditer(content), 1):
        fields = {tag.lower(): _untagged(_TOPIC_WORDS.sub("", text)) for tag, text in _FIELD.findall(match[1])}
        yield fields.get("num"), "", fields.get("title") or fields.get("desc", ""), f"topic {number}"


def _taken(content: str, name: str) -> tuple[str, str]:
    """The text of the elements called `name`, and the content without them."""
    elements = re.compile(rf"<{name}\b[^>]*>(.*?)</{name}>", re.DOTALL | re.IGNORECASE)
    return _untagged(" ".join(elements.findall(content))), elements.sub(" ", content)


def _untagged(content: str) -> str:
    return " ".join(_TAG.sub(" ", content).split())


def _table(source: Source, problems: Problems, given: Mapping[str, str]) -> Iterator[_Row]:
    has_columns = source.kind not in (".txt", PYTHON_DOCS)
    first = itertools.islice(records_of(source), 100) if has_columns else ()
    columns: dict[str, Any] = next((record.fields for record in first if record.fields), {})
    text = given.get("text") or next(iter(usual_columns(columns, _TEXTS)), "text")
    column = TextColumn(text, f"expected a column for the text, such as {', '.join(_TEXTS[:3])}")
    documents = read_documents(
        [source.name],
        text_column=column,
        errors=problems.errors,
        with_other_columns=True,
        plain_text="line",
        skipped=problems.skipped,
    )
    for document, key, title, _ in with_ids_and_titles(documents, given):
        yield key, title, document.text, document.place


def read_judgements(name: str, queries: Iterable[str], documents: Iterable[str], errors: str = "strict") -> Judgements:
    """Reads grades: rows with the ids of a query and a document and a whole number; above 0 is relevant.

    Formats: BEIR's table with a header, the same without one, TREC's four columns (query, iteration, document, grade)
    and rows of any other file.

    Args:
        errors: `strict` raises for a judgement that cannot be read, or whose query or document is unknown; `skip`
            leaves it out.
    """
    problems, grades = Problems(errors, Counter()), dict[str, dict[str, int]]()
    queries, documents = set(queries), set(documents)
    known = short(min(documents, default=""), 60)
    for place, query, document, grade in _judgements(name, problems):
        try:
            value = float(str(grade))
        except ValueError:
            value = -0.5
        if not value.is_integer():
            problems.report(name, place, "the grade is no whole number", f"found {short(grade)}")
        elif query not in queries:
            problems.report(name, place, "the query is not in --queries", f"found {short(query, 60)}")
        elif document not in documents:
            reason = "the document is not in --documents"
            problems.report(name, place, reason, f"found {short(document, 60)}; an id there is {known}")
        elif grades.setdefault(query, {}).setdefault(document, max(int(value), 0)) != max(int(value), 0):
            problems.report(
                name, place, "the document has another grade above", f"{short(query, 60)}, {short(document, 60)}"
            )
    judged = {query: by_document for query, by_document in grades.items() if any(by_document.values())}
    if not judged:
        raise UserError(f"{name} judges no document as relevant (a grade above 0) for a query of --queries")
    problems.print_skipped(f"judgements of {name}")
    if without := len(queries) - len(judged):
        print(f"left out {without:,} of {len(queries):,} queries: {name} has no relevant document for them")
    return Judgements(judged, problems.skipped)


def _judgements(name: str, problems: Problems) -> Iterator[tuple[str, str, str, Any]]:
    """Place, query, document and grade of each row."""
    source = Source(name, file_format(name).kind) if Path(name).is_file() else find_sources([name])[0]
    kind, records = source.kind, None
    if kind not in DELIMITERS and (kind in READERS or kind in ("dataset", "hub")):
        records = records_of(source)
    else:
        with open_text(name) as file:
            first = next((line for line in file if line.strip()), "")
        is_spaced = kind != ".csv" and "\t" not in first and len(first.split()) > 1
        delimiter = None if is_spaced else header_delimiter(first, DELIMITERS.get(kind, "\t"))
        names = [cell.strip(' "') for cell in first.rstrip("\r\n").split(delimiter)]
        if all(usual_columns(names, usual) for usual in _JUDGEMENT):
            records = read_table(name, delimiter=delimiter or " ")
    for number, fields, problem, detail, unit in records or ():
        place = f"{unit} {number}"
        if problem:
            problems.report(name, place, problem, detail)
        else:
            yield from _named(name, place, fields, problems)
    for count, (number, cells) in enumerate(() if records else _cells(name, delimiter)):
        if len(cells) in (3, 4):
            yield f"line {number}", cells[0], cells[-2], cells[-1]
        elif count or cells[0].lower() not in _JUDGEMENT[0]:
            expected = "expected query, document and grade, or TREC's query, iteration, document and grade"
            problems.report(name, f"line {number}", "wrong number of columns", f"{len(cells)}; {expected}")


def _cells(name: str, delimiter: str | None) -> Iterator[tuple[int, list[str]]]:
    """Number and columns of each line that is not blank; None: spaces are between columns."""
    with open_text(name) as file:
        rows = csv.reader(file, delimiter=delimiter, strict=True) if delimiter else map(str.split, file)
        try:
            for number, row in enumerate(rows, 1):
                if any(row):
                    yield number, [cell.strip() for cell in row]
        except csv.Error as error:
            raise UserError(f"{name}: not CSV ({error}); is a quote not closed?") from error


def _named(name: str, place: str, fields: dict[str, Any], problems: Problems) -> Iterator[tuple[str, str, str, str]]:
    """The judgement of a row with names."""
    columns = []
    for names in _JUDGEMENT:
        usual = usual_columns(fields, names)
        if not usual:
            there = short_list(fields)
            raise UserError(f"{name}, {place}: no column {' or '.join(names)} (there are {there}); rename one")
        columns.append(usual[0])
    empty = [column for column in columns if fields[column] in (None, "")]
    if empty:
        problems.report(name, place, f"{empty[0]!r} is empty")
    else:
        query, document, grade = (id_of(fields[column]) for column in columns)
        yield place, query, document, grade
