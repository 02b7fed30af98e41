"""Examples for the fields of the page, from what a checkpoint's folder records."""

import contextlib
import itertools
import json
from pathlib import Path

from mybert.artifacts.manifest import PREDICTIONS, SAMPLES
from mybert.inference.predictor import Predictor
from mybert.rows.choices import texts_and_names
from mybert.tasks.lines import RowColumns

EXAMPLES, CHARACTERS = 5, 2000  # at most, and of a text
_EXAMPLES_OF = 500  # rows they are taken from
_DAMAGED = (ValueError, LookupError, TypeError, AttributeError)  # of files that only give examples


def recorded_samples(name: str) -> dict[str, list[dict[str, str]]]:
    """Held-out words and pairs that a pretraining folder records; empty if there are none, or the file is damaged."""
    path, keys = Path(name) / SAMPLES, {"words": ("before", "after"), "pairs": ("a", "b")}
    with contextlib.suppress(FileNotFoundError, *_DAMAGED):
        last = json.loads(path.read_text(encoding="utf-8").split("\n")[-2])  # the last whole line
        return {
            kind: [{key: str(one[key]) for key in names} for one in last.get(kind, [])[:EXAMPLES]]
            for kind, names in keys.items()
        }
    return {}


def recorded_examples(name: str, predictor: Predictor) -> list[list[str]]:
    """Evaluated rows of a fine-tuned folder, as texts of the fields; empty if it records none.

    They are the first rows, one of each label as far as possible.
    """
    for path in (Path(name) / part / PREDICTIONS for part in ("validation", "test")):
        with contextlib.suppress(FileNotFoundError, *_DAMAGED):
            with path.open(encoding="utf-8") as file:
                lines = [json.loads(line) for line in itertools.islice(file, _EXAMPLES_OF)]
            firsts = {str(line.get("reference")): line for line in reversed(lines)}
            ordered = sorted(lines, key=lambda line: firsts[str(line.get("reference"))] is not line)
            given = [line["input"] for line in ordered[:EXAMPLES]]
            columns = RowColumns(predictor.task)
            between = " " if predictor.task.name == "token-classification" else "\n"  # words, or choices
            rows = [columns.row(row).values() for row in given]
            return [
                [(v if isinstance(v, str) else between.join(texts_and_names(v)[0]))[:CHARACTERS] for v in row]
                for row in rows
            ]
    return []
