"""The table of predictions of an evaluation, packed so that a browser can page, sort and search many rows."""

import base64
import gzip
import json
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from mybert.artifacts.manifest import json_line
from mybert.common.errors import excerpt
from mybert.reports.components import Predictions, printable
from mybert.reports.stage_files import is_number

_CELL = 300  # characters of a text
_AROUND = 100  # characters before and after an answer
_FIRST = 25  # rows without JavaScript
_COLOURS = 5  # of labels of entities
_CHOICES = 60  # different values up to which a column can be chosen from a list


def prediction_table(
    title: str,
    predictions: Iterable[Mapping[str, Any]],
    names: tuple[str, str, str],
    limit: int,
    graded: bool = True,
) -> Predictions:
    """
    Args:
        predictions: lines of predictions.jsonl, each with `reference` and `error`.
        names: headers of reference, prediction and confidence; one that is not `confidence` is no probability.
        limit: maximum number of bytes of the packed rows. Rows with the largest errors come first; the rest is left
            out.
        graded: see `Predictions`.
    """
    lines = list(predictions)
    id_column = id_column_of(lines)
    rows = [_row(number, line, id_column) for number, line in enumerate(lines, 1)]
    is_entities = mark_entities(rows, lines)
    rows.sort(key=lambda row: -row[1])
    columns = [
        name_column(rows, id_column),
        ("error", "number"),
        (names[0], "entities" if is_entities else _kind(rows, 2)),
        (names[1], "entities" if is_entities else _kind(rows, 3)),
        (names[2], "share" if names[2] == "confidence" else "number"),
        ("input", "text"),
    ]
    if is_entities:  # the sentences are in the columns of reference and prediction
        for one in (columns, *rows):
            del one[5]
    if all(row[4] is None for row in rows):  # predictions of numbers or of several labels have no confidence
        for one in (columns, *rows):
            del one[4]
    kept, content = len(rows), packed(rows)
    while len(content) > limit and kept > 1:
        kept = max(1, int(kept * 0.95 * limit / len(content)))
        content = packed(rows[:kept])
    note = "" if kept == len(rows) else f"{kept:,} of {len(rows):,} rows are in this page, the largest errors first."
    return Predictions(title, columns, len(rows), content, rows[:_FIRST], note, graded)


def mark_entities(rows: list[list[Any]], lines: Sequence[Mapping[str, Any]]) -> bool:
    """Replaces tags by their sentence with its entities, as in displaCy, if the tags name entities.

    Each part of a sentence is [text, label, colour, whether the other side lacks this entity]; the label of other
    text is empty.
    """
    counts = Counter(
        tag for line in lines if "tags" in line for tag in (*line["tags"], *(line.get("reference") or []))
    )
    if not counts:
        return False
    from modeling_mybert.entities_mybert import entity_spans, read_tags  # with torch, which `doctor` does not need

    if (tag_set := read_tags(counts)) is None:
        return False
    colours = {
        kind: number % _COLOURS + 1 for number, kind in enumerate(sorted({m.kind for m in tag_set.marks.values()}))
    }
    for row, line in zip(rows, lines, strict=True):
        words = list(map(printable, line.get("tokens") or []))
        sides = [entity_spans(tags, tag_set.marks) for tags in (line.get("reference") or [], line["tags"])]
        for column, (spans, others) in enumerate(zip(sides, reversed(sides), strict=True), 2):
            row[column] = _parts(words, spans, set(others), colours)
    return True


def _parts(
    words: Sequence[str],
    spans: Sequence[tuple[int, int, str]],
    others: Container[tuple[int, int, str]],
    colours: Mapping[str, int],
) -> list[list[Any]]:
    parts, place = [], 0
    for start, end, kind in spans:
        if start > place:
            parts.append([" ".join(words[place:start]), "", 0, False])
        parts.append([" ".join(words[start:end]), kind, colours[kind], (start, end, kind) not in others])
        place = end
    if place < len(words):
        parts.append([" ".join(words[place:]), "", 0, False])
    return parts


def packed(rows: Any) -> str:
    """JSON, compressed by gzip and in base64, as `unpack` in report.js reads it."""
    content = json.dumps(rows, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()


def _kind(rows: list[list[Any]], column: int) -> str:
    if all(isinstance(row[column], int | float) for row in rows):
        return "number"
    return "choice" if len({str(row[column]) for row in rows}) <= _CHOICES else "text"


def id_column_of(lines: Sequence[Mapping[str, Any]]) -> str:
    """The column `id` of the user, in any case, if its values are different; or ""."""
    given: list[Any] = [line.get("input") for line in lines]
    names = [name for name in (given[0] if given and isinstance(given[0], Mapping) else ()) if name.lower() == "id"]
    if len(names) != 1 or not all(isinstance(row, Mapping) and row.get(names[0]) is not None for row in given):
        return ""
    return names[0] if len({str(row[names[0]]) for row in given}) == len(given) else ""


def name_column(rows: Sequence[Sequence[Any]], id_column: str) -> tuple[str, str]:
    """Header and kind of the first column, which names the rows."""
    return id_column or "row", "number" if all(is_number(row[0]) for row in rows) else "text"


def named_row(line: Mapping[str, Any], number: int, id_column: str) -> tuple[Any, Any]:
    """The id of a row, or its number in the file, and its other columns."""
    given: Any = line.get("input")
    if not id_column:
        return line.get("line", line.get("row", number)), given
    place = given[id_column]
    rest = {name: value for name, value in given.items() if name != id_column}
    return place if is_number(place) else short_cell(str(place)), rest


def rows_at(lines: Sequence[Mapping[str, Any]], numbers: Container[int]) -> tuple[str, dict[int, tuple[Any, str]]]:
    """How rows are named, and the name and the text of those with these `numbers` in the file."""
    id_column, rows = id_column_of(lines), {}
    for count, line in enumerate(lines, 1):
        number = line.get("line", line.get("row", count))
        if number in numbers:
            row = _row(count, line, id_column)
            rows[number] = row[0], row[5]
    return id_column or "row", rows


def _row(number: int, line: Mapping[str, Any], id_column: str) -> list[Any]:
    reference, prediction, confidence = answers_of(line)
    place, given = named_row(line, number, id_column)
    text = input_text(around_answer(given, line), reference)
    error = line["error"] if is_number(line.get("error")) else 0
    confidence = round(confidence, 4) if is_number(confidence) else None
    return [place, round(error, 4), short_cell(reference), short_cell(prediction), confidence, short_cell(text)]


def around_answer(given: Any, line: Mapping[str, Any]) -> Any:
    """The row, with the context of its answer last, and only what is around the answer if the context is long."""
    answer, start, end = line.get("answer"), line.get("start"), line.get("end")
    if not answer or not isinstance(given, Mapping) or not (isinstance(start, int) and isinstance(end, int)):
        return given
    contexts = {name: text for name, text in given.items() if isinstance(text, str) and text[start:end] == answer}
    for name, text in contexts.items():
        if len(text) > _CELL:
            before, after = text[max(start - _AROUND, 0) : start], text[end : end + _AROUND]
            before, after = before.partition(" ")[2] or before, after.rpartition(" ")[0] or after  # whole words
            contexts[name] = f"… {before}{answer}{after} …"
    return {name: text for name, text in given.items() if name not in contexts} | contexts


def input_text(given: Any, reference: Any) -> str:
    """The texts of a row in one, long ones last; the reference has a column of its own."""
    if not isinstance(given, Mapping):
        return _text(given)
    texts = [value for value in given.values() if isinstance(value, str) and value]
    texts.sort(key=lambda text: len(text) > _CELL)
    others = [text for text in texts if text != reference]
    return " · ".join(others or texts) or _text(given.get("tokens") or given)


def answers_of(line: Mapping[str, Any]) -> tuple[Any, Any, float | None]:
    """Reference, prediction and confidence of a line, each short enough for a cell."""
    reference = line.get("reference")
    if "tags" in line:
        return _tags(line, reference)
    if "labels" in line:
        return ", ".join(map(str, reference or [])) or "-", ", ".join(map(str, line["labels"])) or "-", None
    if "answer" in line:
        texts = reference.get("text", reference) if isinstance(reference, Mapping) else reference
        return " | ".join(dict.fromkeys(map(str, texts or ["-"]))), line["answer"] or "-", line.get("score")
    if "choice" in line:
        scores, choices = line.get("scores"), _choices(line)
        confidence = scores[line["choice"]] if isinstance(scores, list) else None
        if choices and isinstance(reference, int) and reference < len(choices):
            return choices[reference], choices[line["choice"]], confidence
        return reference, line["choice"], confidence
    if "label" in line:
        return reference, line["label"], line.get("score")
    score = line.get("score")
    return reference, round(score, 4) if is_number(score) else score, None


def _choices(line: Mapping[str, Any]) -> list[str]:
    """The texts of the choices in a row: a list, or columns whose names differ in the last character; or []."""
    given, place, text = line.get("input"), line["choice"], line.get("text")
    if not isinstance(given, Mapping):
        return []
    groups = [value for value in given.values() if isinstance(value, list)]
    for name in (name for name, value in given.items() if value == text):
        groups.append([given[other] for other in sorted(given) if other[:-1] == name[:-1]])
    return next((some for some in groups if some[place : place + 1] == [text] and set(map(type, some)) == {str}), [])


def _tags(line: Mapping[str, Any], reference: Any) -> tuple[str, str, float | None]:
    """The tags of the words that are wrong, or of all words outside O."""
    tags, true, given = line["tags"], reference or [], line.get("input")
    words = line.get("tokens") or (given.get("tokens") if isinstance(given, Mapping) else None)
    if not isinstance(words, list) or len(words) != len(tags):
        words = range(1, len(tags) + 1)
    wrong = [place for place, (one, other) in enumerate(zip(tags, true, strict=False)) if one != other]
    places = wrong or [place for place, tag in enumerate(tags) if tag != "O"]
    shown = [", ".join(f"{words[place]}: {some[place]}" for place in places[:20]) or "-" for some in (true, tags)]
    scores = line.get("scores") or []
    return shown[0], shown[1], min(scores) if scores else None


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return value if isinstance(value, str) else json_line(value).strip()


def short_cell(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value if is_number(value) or isinstance(value, bool) else "-"
    text = " ".join(printable(str(value)[: 4 * _CELL]).split())
    whole = str(value)
    if len(text) <= _CELL and len(whole) <= 4 * _CELL:
        return text
    return f"{excerpt(text, _CELL)}… ({len(whole):,} characters)"
