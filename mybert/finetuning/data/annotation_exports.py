"""Exports of annotation tools as rows: choices of Label Studio, and records of Argilla.

`span_annotations` reads spans of Label Studio and doccano; doccano's lines of texts and labels are rows already.
"""

from collections.abc import Callable, Mapping
from typing import Any

from datasets import Dataset

from mybert.common.errors import UserError, short
from mybert.finetuning.data.memory_rows import MemoryRows


def read_label_studio(rows: Dataset | MemoryRows) -> Dataset | MemoryRows:
    """Tasks with the columns of `data` and, as `label`, the choice or choices of their only finished annotation.

    Without a choice they have none of several labels.
    """

    def convert(row: Mapping[str, Any]) -> dict[str, Any]:
        finished = [one for one in row["annotations"] or () if not one.get("was_cancelled")]
        if len(finished) > 1:
            raise UserError(f"{len(finished)} finished annotations of {short(row['data'])}; keep one")
        values = [result.get("value") or {} for one in finished for result in one.get("result") or ()]
        chosen = [name for value in values for name in value.get("choices") or ()]
        label = chosen[0] if len(chosen) == 1 else chosen
        return {**(row["data"] or {}), "label": label if finished else None}

    return _converted(rows, {"data", "annotations"}, convert)


def read_argilla(rows: Dataset | MemoryRows) -> Dataset | MemoryRows:
    """Records with the columns of `fields` and, by the names of their questions, the first response to each."""

    def convert(row: Mapping[str, Any]) -> dict[str, Any]:
        responses = {name: given[0].get("value") for name, given in (row["responses"] or {}).items() if given}
        return {**(row["fields"] or {}), **responses}

    return _converted(rows, {"fields", "responses"}, convert)


def _converted(
    rows: Dataset | MemoryRows, columns: set[str], convert: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> Dataset | MemoryRows:
    """The converted rows if they have all of `columns`, else `rows`."""
    if isinstance(rows, MemoryRows) or not columns <= {*rows.column_names}:  # single rows are texts
        return rows
    from mybert.finetuning.data.dataset_loading import table_of

    try:
        return table_of([convert(row) for row in rows])
    except (AttributeError, TypeError, KeyError) as error:
        raise UserError(
            f"the columns {' and '.join(sorted(columns))} are no export of Label Studio or Argilla"
        ) from error
