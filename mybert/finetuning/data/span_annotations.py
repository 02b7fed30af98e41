"""Texts annotated by character spans, as words and tags.

Reads the annotations that spaCy, doccano, Prodigy and Label Studio export as JSON.
"""

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from datasets import Dataset, Features, List, Value
from tokenizers import PreTokenizedString
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from mybert.common.error_messages import short

logger = logging.getLogger(__name__)

# names of the columns of texts and annotations; `data` and `annotations` are Label Studio's
COLUMNS = {
    "text": ("text", "sentence", "data"),
    "spans": ("spans", "entities", "ents", "label", "labels", "annotations"),
}
VERDICT = {"answer": ("answer",)}  # Prodigy's: accept, reject or ignore
_NORMALIZER = BertNormalizer(lowercase=False, strip_accents=False)  # these two do not change where words end
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


def split_words(text: str) -> list[tuple[int, int]]:
    """Start and end of each word of a text, in characters; BERT splits at spaces and around punctuation."""
    pieces = PreTokenizedString(text)
    pieces.normalize(_NORMALIZER.normalize)
    BertPreTokenizer().pre_tokenize(pieces)
    return [offsets for _, offsets, _ in pieces.get_splits("original", "char")]


def words_and_tags(rows: Dataset) -> Dataset:
    """
    Args:
        rows: `text`, and in labelled rows `spans` in the form of one of the exports.

    Returns:
        `text`, `tokens`, `offsets` (start and end of each token in characters) and, in labelled rows, `tags` in IOB2.
        `problem` is why a row cannot be used, or None. Spans that end within a word are widened to the whole word,
        and their number is logged.
    """
    labelled = "spans" in rows.column_names
    columns = {name: [] for name in _FEATURES if labelled or name != "tags"}
    widened, total, example = 0, 0, ""
    for number, row in enumerate(rows, 1):
        text, problem, tags = _text_of(row["text"]), None, []
        offsets = split_words(text)
        if labelled:
            try:
                _refuse_verdict(row.get("answer"))
                spans = list(_spans_of(row["spans"], text))
                aligned = [_align(span, offsets, text) for span in spans]
                _refuse_overlaps(aligned, offsets, text)
                tags = _tags_of(aligned, len(offsets))
                for span, words in zip(spans, aligned, strict=True):
                    total += 1
                    found = text[offsets[words.start][0] : offsets[words.end - 1][1]]
                    if found != text[span.start : span.end].strip():
                        widened += 1
                        example = example or f"row {number}: {short(text[span.start : span.end])} to {short(found)}"
            except ValueError as error:
                problem = str(error)
        row = {"text": text, "tokens": [text[a:b] for a, b in offsets], "offsets": offsets, "problem": problem}
        for name, values in columns.items():
            values.append({**row, "tags": tags}[name])
    if widened:
        logger.warning("%d of %d spans end within a word and were widened, such as %s", widened, total, example)
    return Dataset.from_dict(columns, Features({name: _FEATURES[name] for name in columns}))


def _text_of(value: Any) -> str:
    """A text, or Label Studio's object with one."""
    if isinstance(value, Mapping):
        texts = [one for one in value.values() if isinstance(one, str)]
        value = value.get("text") or (texts[0] if len(texts) == 1 else None)
    return value if isinstance(value, str) else ""


def _refuse_verdict(answer: str | None) -> None:
    if answer not in (None, "accept"):
        raise ValueError(f"the annotator's answer is {short(answer)}; leave the row out, or correct and accept it")


def _spans_of(annotation: Any, text: str) -> Iterator[Span]:
    """
    Raises:
        ValueError: the annotation has none of the known forms, or a span lies outside the text.
    """
    if not isinstance(annotation, list):
        raise ValueError(f"expected a list of spans, found {short(annotation)}; write [] for a text without entities")
    for item in _label_studio_results(annotation):
        if isinstance(item, Mapping):
            start, end, label = (_first(item, f"{name}", f"{name}_offset") for name in ("start", "end", "label"))
            label = item.get("labels") if label is None else label
        else:
            start, end, label = item if isinstance(item, Sequence) and len(item) == 3 else (None, None, None)
        label = label[0] if isinstance(label, list) and len(label) == 1 else label
        if not (type(start) is int and type(end) is int and isinstance(label, str) and label):
            raise ValueError(f"expected spans of start, end and one label, found {short(item)}")
        if not 0 <= start < end <= len(text):
            raise ValueError(f"the span {start} to {end} ({label}) lies outside the text of {len(text)} characters")
        yield Span(start, end, label)


def _first(item: Mapping, *names: str) -> Any:
    return next((item[name] for name in names if item.get(name) is not None), None)


def _label_studio_results(annotation: list) -> list:
    """The labelled regions of Label Studio's only finished annotation; other annotations as they are."""
    if not annotation or not all(isinstance(one, Mapping) and "result" in one for one in annotation):
        return annotation
    finished = [one for one in annotation if not one.get("was_cancelled")]
    if len(finished) != 1:
        raise ValueError(f"{len(finished)} finished annotations; keep one")
    values = [result.get("value") or {} for result in finished[0]["result"]]
    return [value for value in values if value.get("labels")]


def _align(span: Span, offsets: list[tuple[int, int]], text: str) -> Span:
    """The words that a span touches.

    Raises:
        ValueError: it touches none.
    """
    words = [word for word, (start, end) in enumerate(offsets) if start < span.end and end > span.start]
    if not words:
        raise ValueError(f"the span {span.start} to {span.end} ({span.label}) holds no word: {short(text)}")
    return Span(words[0], words[-1] + 1, span.label)


def _refuse_overlaps(spans: list[Span], offsets: list[tuple[int, int]], text: str) -> None:
    ordered = sorted(spans)
    for one, other in itertools.pairwise(ordered):
        if other.start < one.end:
            shown = [
                f"{short(text[offsets[span.start][0] : offsets[span.end - 1][1]])} ({span.label})"
                for span in (one, other)
            ]
            raise ValueError(f"the spans {' and '.join(shown)} share a word, which can have one tag; keep one of them")


def _tags_of(spans: list[Span], words: int) -> list[str]:
    tags = ["O"] * words
    for start, end, label in spans:
        tags[start:end] = [f"B-{label}", *[f"I-{label}"] * (end - start - 1)]
    return tags
