"""Stored texts: the texts of all inputs, checked before the first of them is processed."""

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from mybert.common.errors import UserError
from mybert.common.json_io import unwritable
from mybert.io.documents import Document, Problems, read_documents
from mybert.io.record_formats import TextColumn
from tokenization.word_counting import batches

CHARACTERS_PER_BATCH = 1 << 20
_NUMBERS = {int, float, Decimal}
_NANOSECONDS = {pd.Timestamp, pd.Timedelta}  # of Parquet files; `pa.array` would cut them to microseconds
_SCHEMA = pa.schema(
    {"text": pa.large_string(), "source": pa.string(), "line": pa.int64(), "others": pa.large_binary()}
)


class StoredTexts(NamedTuple):
    """Texts in an Arrow file with the columns `text`, `source`, `line` and `others` (pickled dictionaries).

    Attributes:
        types: type of each other column of the inputs.
    """

    path: Path
    count: int  # type: ignore[assignment]  # in place of the method of tuples
    skipped: Counter[str]
    types: dict[str, pa.DataType]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields about a million characters at a time, in input order."""
        with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    def batch(self, number: int) -> pa.RecordBatch:
        """The batch of a number in `batches`."""
        with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file) as reader:
            return reader.get_batch(number)

    def other_values(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """The other columns of each input row, as read."""
        return [pickle.loads(content) for content in batch["others"].to_pylist()]

    def other_columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """The other columns of the input rows. Values of several types are converted to strings."""
        rows = self.other_values(batch)
        return {name: _column([row.get(name) for row in rows], type) for name, type in self.types.items()}


def store_texts(
    inputs: Sequence[str],
    path: Path,
    *,
    text_column: str | TextColumn,
    errors: str,
    usable: Callable[[list[Document], Problems], list[Document]] | None = None,
) -> StoredTexts:
    """Writes the texts of `inputs` to `path`.

    Args:
        inputs, text_column, errors: see `read_documents`; a text in a .txt or .md file is a line.
        usable: returns the texts that can be used and reports the others.
    """
    problems, count = Problems(errors, Counter()), 0
    documents = read_documents(
        inputs,
        text_column=text_column,
        errors=errors,
        plain_text="line",
        skipped=problems.skipped,
        with_other_columns=True,
    )
    types: dict[str, pa.DataType] = {}
    widened: set[str] = set()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        for texts in batches(documents, lambda text: len(text.text) + 1, CHARACTERS_PER_BATCH):
            reasons = [unwritable(text.others) for text in texts]  # `read_documents` has checked the texts
            for text, reason in zip(texts, reasons, strict=True):
                if reason:
                    problems.report(text.source, text.place, "another column cannot be stored", reason)
            texts = [text for text, reason in zip(texts, reasons, strict=True) if not reason]
            if usable is not None:
                texts = usable(texts, problems)
            if texts:
                rows = [text._asdict() | {"others": pickle.dumps(text.others)} for text in texts]
                writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=_SCHEMA))
                count += len(texts)
                widened |= _unify(types, [text.others for text in texts])
    if not count:
        skipped = ", ".join(f"{reason} ({number})" for reason, number in problems.skipped.items())
        raise UserError(f"the inputs hold no text (skipped: {skipped or 'none'}); check them and --text-column")
    stored = StoredTexts(path, count, problems.skipped, types)
    for rows in map(stored.other_values, stored.batches()) if widened else ():
        for name in widened:
            types[name] = _type_for([row.get(name) for row in rows], types[name])
    return stored


def _unify(types: dict[str, pa.DataType], rows: list[dict[str, Any]]) -> set[str]:
    """Widens `types` to the values of `rows`; a column of incompatible types becomes strings.

    Returns:
        Names of columns whose types may not hold all values of earlier rows.
    """
    widened = set()
    for name in dict.fromkeys(name for row in rows for name in row):
        known = types.get(name, pa.null())
        types[name] = _widest(known, [row.get(name) for row in rows])
        if types[name] != known and not pa.types.is_null(known):
            widened.add(name)
    return widened


def _widest(known: pa.DataType, values: list[Any]) -> pa.DataType:
    """A type for values of type `known` and `values`."""
    kinds = {type(value) for value in values if value is not None}
    if pa.types.is_string(known) or (len(kinds) > 1 and not kinds <= _NUMBERS):  # Arrow reads 1 as a date of 1970
        return pa.string()
    try:
        inferred = (pa.array(pd.Series(values)) if kinds and kinds <= _NANOSECONDS else pa.array(values)).type
        if pa.types.is_string(inferred) and not pa.types.is_null(known):
            return inferred
        schemas = [pa.schema({"": type}) for type in (known, inferred)]
        return _type_for(values, pa.unify_schemas(schemas, promote_options="permissive").field(0).type)
    except (pa.ArrowException, OverflowError):
        return pa.string()


def _type_for(values: list[Any], type: pa.DataType) -> pa.DataType:
    """`type` if it can hold `values`, otherwise strings: Arrow stores no whole number that a float would round."""
    try:
        _column(values, type)
    except (pa.ArrowException, OverflowError):
        return pa.string()
    return type


def _column(values: list[Any], type: pa.DataType) -> pa.Array:
    if pa.types.is_string(type):
        values = [_as_text(value) for value in values]
    return pa.array(values, type)


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
