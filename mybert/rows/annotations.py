"""Exports of annotation tools: texts with character spans as words and tags, and rows with choices.

Spans are those of spaCy, doccano, Prodigy and Label Studio, choices those of Label Studio and Argilla; doccano's lines
of texts and labels are rows already.
"""

import bisect
import contextlib
import functools
import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from datasets import Dataset, Features, List, Value

from modeling_mybert.words_mybert import WordSplitter
from mybert.common.errors import UserError, short
from mybert.rows.label_columns import of_cell, of_one_kind
from mybert.rows.labels import MULTI, are_names
from mybert.rows.tables import MemoryRows, table_of

logger = logging.getLogger(__name__)

# names of the columns of texts and annotations; `data` and `annotations` are Label Studio's
COLUMNS = {
    "text": ("text", "sentence", "data"),
    "spans": ("spans", "entities", "ents", "label", "labels", "annotations"),
}
VERDICT = {"answer": ("answer",)}  # Prodigy's: accept, reject or ignore
_FEATURES = {
    "text": Value("string"),
    "tokens": List(Value("string")),
    "offsets": List(List(Value("int64"))),
    "tags": List(Value("string")),
    "problem": Value("string"),
}


class Span(NamedTuple):
    """An entity: `text[start:end]` in characters, or words in place of characters once aligned."""

    start: int
    end: int
    label: str


def words_and_tags(rows: Dataset, splitter: WordSplitter) -> Dataset:
    """
    Args:
        splitter: splits the texts into words.
        rows: `text`, and in labelled rows `spans` in the form of one of the exports.

    Returns:
        `text`, `tokens`, `offsets` (start and end of each token in characters) and, in labelled rows, `tags` in IOB2.
        `problem` is why a row cannot be used, or None. Spans that end within a word are widened to the whole word,
        and their number is logged.
    """
    names = [name for name in _FEATURES if name != "tags" or "spans" in rows.column_names]
    converted = [_convert(row, splitter) for row in rows]
    widened = [f"row {number}: {change}" for number, row in enumerate(converted, 1) for change in row["widened"]]
    if widened:
        total = sum(row["spans"] for row in converted)
        logger.warning(
            "%d of %d spans end within a word and were widened, such as %s", len(widened), total, widened[0]
        )
    columns = {name: [row[name] for row in converted] for name in names}
    if isinstance(rows, MemoryRows):
        return MemoryRows(columns)
    return Dataset.from_dict(columns, Features({name: _FEATURES[name] for name in names}))


def _convert(row: Mapping[str, Any], splitter: WordSplitter) -> dict[str, Any]:
    """The columns of `words_and_tags`, the number of spans, and the changes of those that were widened."""
    text = _text_of(row["text"])
    offsets = splitter(text)
    spans, aligned, problem = [], [], None
    if "spans" in row:
        try:
            if row.get("answer") not in (None, "accept"):
                raise ValueError(f"the annotator's answer is {short(row['answer'])}; leave it out, or accept it")
            for given, shown in _spans_of(row["spans"]):
                span = _in_characters(given, shown, text)
                if wrong := _problem(span, shown, text):
                    raise ValueError(wrong)
                spans.append(span)
            starts, ends = ([place[side] for place in offsets] for side in (0, 1))
            aligned = [_align(span, starts, ends, text) for span in spans]
            _refuse_overlaps(aligned, offsets, text)
        except ValueError as error:
            spans, aligned, problem = [], [], str(error)
    widened, tags = [], ["O"] * len(offsets)
    for span, words in zip(spans, aligned, strict=True):
        tags[words.start : words.end] = [f"B-{words.label}", *[f"I-{words.label}"] * (words.end - words.start - 1)]
        asked, covered = text[span.start : span.end].strip(), text[offsets[words.start][0] : offsets[words.end - 1][1]]
        widened += [f"{short(asked)} to {short(covered)}"] if asked != covered else []
    return {
        "text": text,
        "tokens": [text[start:end] for start, end in offsets],
        "offsets": list(map(list, offsets)),
        "tags": tags,
        "problem": problem,
        "spans": len(spans),
        "widened": widened,
    }


def _text_of(value: Any) -> str:
    """A text, or Label Studio's object with one."""
    if isinstance(value, Mapping):
        texts = [one for one in value.values() if isinstance(one, str)]
        value = value.get("text") or (texts[0] if len(texts) == 1 else None)
    return value if isinstance(value, str) else ""


def _spans_of(annotation: Any) -> list[tuple[Span, str | None]]:
    """The spans, each with the text that its annotation shows.

    Raises:
        ValueError: the annotation has none of the known forms.
    """
    if isinstance(annotation, str):
        annotation = of_cell(annotation)
    if not isinstance(annotation, list):
        raise ValueError(
            f'expected a list of spans such as [[0, 3, "PER"]], found {short(annotation)}; write [] for a text '
            "without entities"
        )
    return [_span_of(item) for item in _label_studio_results(annotation)]


def _span_of(item: Any) -> tuple[Span, str | None]:
    """A span, and the text that its annotation shows."""
    if isinstance(item, Mapping):
        known = {str(key).removesuffix("_offset"): value for key, value in item.items() if value is not None}
        start, end, label = known.get("start"), known.get("end"), known.get("label", known.get("labels"))
    else:
        start, end, label = item if isinstance(item, Sequence) and len(item) == 3 else (None, None, None)
    label = label[0] if isinstance(label, list) and len(label) == 1 else label
    if not (type(start) is int and type(end) is int and isinstance(label, str) and label):
        raise ValueError(f"expected spans of start, end and one label, found {short(item)}")
    shown = item.get("text") if isinstance(item, Mapping) else None
    return Span(start, end, label), shown if isinstance(shown, str) else None


def _problem(span: Span, shown: str | None, text: str) -> str | None:
    """Why a span is not one of the text, or None."""
    start, end, label = span
    if not 0 <= start < end <= len(text):
        return f"the span {start} to {end} ({label}) lies outside the text of {len(text)} characters"
    if shown is not None and shown.split() != text[start:end].split():
        return (
            f"the span {start} to {end} is {short(text[start:end])}, its annotation says {short(shown)}; offsets "
            "count characters (code points)"
        )
    return None


def _in_characters(span: Span, shown: str | None, text: str) -> Span:
    """The span; in characters if the text of its annotation shows that it counts UTF-16 units, as JavaScript does."""
    if shown is None or _problem(span, shown, text) is None:
        return span
    units = _utf16_places(text)
    start, end = (bisect.bisect_left(units, place) for place in span[:2])
    if [units[place] for place in (start, end) if place < len(units)] != [*span[:2]]:
        return span
    converted = Span(start, end, span.label)
    return span if _problem(converted, shown, text) else converted


@functools.lru_cache(1)  # of the text whose spans are converted
def _utf16_places(text: str) -> list[int]:
    """The place of each character, and of the end, in UTF-16 units."""
    return [0, *itertools.accumulate(1 + (character > "\uffff") for character in text)]


def _label_studio_results(annotation: list[Any]) -> list[Any]:
    """The labelled regions of Label Studio's only finished annotation; other annotations as they are."""
    if not annotation or not all(isinstance(one, Mapping) and "result" in one for one in annotation):
        return annotation
    finished = [one for one in annotation if not one.get("was_cancelled")]
    if len(finished) != 1:
        raise ValueError(f"{len(finished)} finished annotations; keep one")
    values = [result.get("value") or {} for result in finished[0]["result"]]
    return [value for value in values if value.get("labels")]


def _align(span: Span, starts: list[int], ends: list[int], text: str) -> Span:
    """The words that a span touches, of words with these ascending places; raises ValueError if there are none."""
    first, end = bisect.bisect_right(ends, span.start), bisect.bisect_left(starts, span.end)
    if first >= end:
        raise ValueError(f"the span {span.start} to {span.end} ({span.label}) holds no word: {short(text)}")
    return Span(first, end, span.label)


def _refuse_overlaps(spans: list[Span], offsets: list[tuple[int, int]], text: str) -> None:
    for pair in itertools.pairwise(sorted(spans)):
        if pair[1].start < pair[0].end:
            shown = [f"{short(text[offsets[a][0] : offsets[b - 1][1]])} ({label})" for a, b, label in pair]
            raise ValueError(f"the spans {' and '.join(shown)} share a word, which can have one tag; keep one of them")


def read_label_studio(rows: Dataset | MemoryRows) -> Dataset | MemoryRows:
    """Tasks with the columns of `data` and the choice or choices that their finished annotations agree on.

    The choices of the only control with choices are the `label`; those of several are columns by their names. Without
    a choice a task has none of several labels; of annotations that differ, `label` lists those of each.
    """
    if "data" not in rows.column_names or isinstance(rows, MemoryRows) or not isinstance(rows[0]["data"], Mapping):
        return rows

    def choices(annotation: Mapping[str, Any], control: str | None) -> Any:
        given = [one for one in annotation.get("result") or () if one.get("from_name") == control]
        names = [name for one in given for name in (one.get("value") or {}).get("choices") or ()]
        return names[0] if len(names) == 1 else names

    with _form_checked("data", "annotations"):
        every = [row.get("annotations") or () for row in rows]
        finished = [[one for one in annotations if not one.get("was_cancelled")] for annotations in every]
        results = [result for some in finished for one in some for result in one.get("result") or ()]
        controls = dict.fromkeys(one.get("from_name") for one in results if (one.get("value") or {}).get("choices"))
        tasks = [row["data"] or {} for row in rows]
        for control in controls or ["label"]:
            labels = [agreed([choices(one, control) for one in some]) for some in finished]
            labels = labels if are_names(labels, least=2) else of_one_kind(labels, MULTI)
            name = str(control) if len(controls) > 1 else "label"
            tasks = [{**row, name: label} for row, label in zip(tasks, labels, strict=True)]
        return table_of(tasks)


def read_argilla(rows: Dataset | MemoryRows) -> Dataset | MemoryRows:
    """Records with the columns of `fields` and, by the names of their questions, the responses if they agree."""
    if isinstance(rows, MemoryRows) or not {"fields", "responses"} <= {*rows.column_names}:  # single rows are texts
        return rows

    def answered(row: Mapping[str, Any]) -> dict[str, Any]:
        responses = {name: given or () for name, given in (row["responses"] or {}).items()}
        values = {name: agreed([one.get("value") for one in given]) for name, given in responses.items()}
        return {**(row["fields"] or {}), **dict.fromkeys(row.get("suggestions") or ()), **values}

    with _form_checked("fields", "responses"):
        return table_of([answered(row) for row in rows])


def agreed(labels: Sequence[Any]) -> Any:
    """The label of a row from its annotations: that of all, None without annotation; of different ones the list of
    all, each a list, which `check_target` refuses.
    """
    every = [label if isinstance(label, list) else [label] for label in labels]
    alike = [one for one in every if sorted(map(str, one)) == sorted(map(str, every[0]))]
    return every if len(alike) < len(every) else labels[0] if labels else None


@contextlib.contextmanager
def _form_checked(*columns: str) -> Iterator[None]:
    try:
        yield
    except (AttributeError, TypeError, KeyError) as error:
        raise UserError(f"the columns {' and '.join(columns)} are no export of Label Studio or Argilla") from error
