"""Reads the runs to compare: predictions, references and rows of each, in one order."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mybert.artifacts.manifest import HISTORY, MANIFEST, PREDICTIONS, RESULTS
from mybert.common.errors import UserError, short, short_list, warn_once
from mybert.comparison.settings import CompareSettings, folders_of
from mybert.io.files import file_format
from mybert.io.record_formats import READERS, readable
from mybert.reports.stage_files import StageFiles, read_stage
from mybert.rows.label_columns import expand_label, looks_like_list, of_cell
from mybert.rows.labels import is_missing, label_name, number

_PREDICTIONS = ("prediction", "predicted", "predicted_label", "pred", "prediction_label", "output", "label")
_REFERENCES = ("reference", "gold", "true", "true_label", "gold_label", "target", "label", "labels", "answer")
_OF_PREDICTION = ("label", "labels", "score", "scores", "tags", "tokens", "entities", "offsets", "answer", "choice")
_TEXTS = ("label", "answer", "choice")  # of these; other values are JSON in the cells of a table
_PLACES = ("line", "row", "source", "error", "input", "reference")


class Rows(NamedTuple):
    """The scored rows of one folder or file.

    Attributes:
        predictions: as `mybert predict` writes them.
        references: the target of each row; all None if the file has none.
        inputs: the columns of each row, without predictions.
        places: the number of each row in its file, from 1.
        columns: all that the file has.
        unit: `line` or `row`; what `places` count.
    """

    source: str
    predictions: list[dict[str, Any]]
    references: list[Any]
    inputs: list[dict[str, Any]]
    places: list[int]
    columns: Sequence[str] = ()
    unit: str = "row"

    @property
    def has_references(self) -> bool:
        return self.references[0] is not None

    def select(self, order: Sequence[int]) -> "Rows":
        """The rows in another order."""
        names = ("predictions", "references", "inputs", "places")
        taken: dict[str, Any] = {name: [getattr(self, name)[place] for place in order] for name in names}
        return self._replace(**taken)


@dataclass
class Side:
    """What is compared with another: one model, or several seeds of one setting.

    Attributes:
        name: as given.
        rows: those of each seed.
        evaluation: results.json of the first seed; empty for files of predictions.
        training: the fine-tuning that its model comes from, if its folder is there.
    """

    name: str
    rows: list[Rows]
    task: str = ""
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    training: StageFiles | None = None
    manifest: Mapping[str, Any] = field(default_factory=dict)


def read_sides(settings: CompareSettings) -> list[Side]:
    """The runs of the settings, with their rows in the order of the first.

    Raises:
        UserError: a run cannot be read, or its rows are not those of the first; the message names the row.
    """
    part = _part(settings)
    sides = [_side(run, part, settings) for run in settings.runs]
    tasks = {side.task: side.name for side in sides if side.task}
    if len(tasks) > 1:
        listed = " and ".join(f"{name} is {task}" for task, name in tasks.items())
        raise UserError(f"the runs have different tasks ({listed}); compare runs of one task")
    every = [rows for side in sides for rows in side.rows]
    _check_columns(settings, sides, every)
    first = next((rows for rows in every if rows.has_references), None)
    if first is None:
        both = [name for name in settings.named("reference") if name in settings.named("prediction")]
        named = f" beside the column {both[0]!r}, which --columns names for predictions, too" if both else ""
        raise UserError(
            f"{sides[0].rows[0].source} has no references{named}; name their column by --columns reference=COLUMN"
        )
    names = _shared_columns(every)
    for side in sides:
        side.rows = [_aligned(rows, first, names) for rows in side.rows]
    if not names:
        warn_once("the files have no column in common; row 1 of one is taken for row 1 of the others, and so on")
    return sides


def _check_columns(settings: CompareSettings, sides: Sequence[Side], every: Sequence[Rows]) -> None:
    """Raises a UserError if `--columns` names a column that no run has, or `--slices` one that the first has not."""
    known = list(dict.fromkeys(name for rows in every for name in rows.columns))
    for given in settings.columns:
        role, _, name = given.partition("=")
        if name not in known:
            raise UserError(f"--columns {role}={name}: no run has this column; there are {short_list(known)}")
    inputs = list(sides[0].rows[0].inputs[0])
    if unknown := [column for column in settings.slices if column not in inputs]:
        raise UserError(f"--slices {unknown[0]}: the rows have the columns {short_list(inputs) or 'none'}")


def _part(settings: CompareSettings) -> str:
    """The part of fine-tuning folders that is compared."""
    folders = [Path(name) for run in settings.runs for name in folders_of(run) if Path(name).is_dir()]
    folders = [folder for folder in folders if not (folder / PREDICTIONS).is_file()]
    if settings.part != "auto":
        if not folders:
            raise UserError(f"--part {settings.part}: no run is a folder of `mybert finetune`; leave it out")
        return settings.part
    return "test" if folders and all((folder / "test" / PREDICTIONS).is_file() for folder in folders) else "validation"


def _side(run: str, part: str, settings: CompareSettings) -> Side:
    names = folders_of(run)
    if not names:
        raise UserError(f"run {short(run)}: name a folder or a file of predictions")
    first = Path(names[0])
    if (first / PREDICTIONS).is_file() and read_stage(first).task == "retrieval":
        raise UserError(
            f"{first} is an evaluation of retrieval; its results.json compares the model with other systems"
        )
    rows = [_read(Path(name), part, settings) for name in names]
    if not first.is_dir():
        return Side(run, rows)
    files = read_stage(first)
    evaluation = files.results.get(part, {}) if files.stage == "finetune" else files.results
    model = Path(str(files.manifest.get("settings", {}).get("model", "")))
    is_there = all((model / name).is_file() for name in (MANIFEST, RESULTS, HISTORY))
    training = files if files.stage == "finetune" else read_stage(model) if is_there else None
    return Side(run, rows, files.task, evaluation, training, files.manifest)


def _read(path: Path, part: str, settings: CompareSettings) -> Rows:
    if not path.is_dir():
        return _read_table(path, settings)
    file = next((f for f in (path / PREDICTIONS, path / part / PREDICTIONS) if f.is_file()), None)
    if file is None:
        raise UserError(
            f"{path} has no {PREDICTIONS} of {part} rows; name an output folder of `mybert evaluate` or of "
            "`mybert finetune` with --validation or --test"
        )
    return _read_table(file, settings)


def _read_table(path: Path, settings: CompareSettings) -> Rows:
    kind = file_format(path).kind
    if kind not in READERS:
        raise UserError(f"{path}: expected {', '.join(READERS)}, found {path.suffix or 'no suffix'}")
    predictions, references, inputs, places, columns = [], [], [], [], dict[str, None]()
    unit = "row"
    for place, fields, _, _, unit in readable(str(path), READERS[kind](str(path))):
        prediction, reference, given = _parts(fields, path, settings)
        if is_missing(prediction.get("score", "given") if isinstance(prediction, dict) else prediction):
            raise UserError(f"{path}, {unit} {place}: the prediction is missing; every row needs one")
        columns |= dict.fromkeys([*fields, *given])
        predictions.append(prediction)
        references.append(reference)
        inputs.append(given)
        places.append(place)
    if not predictions:
        raise UserError(f"{path} holds no rows")
    predictions, references = [*map(_prediction, _as_lists(predictions))], _as_lists(references)
    lacking = [place for place, target in zip(places, references, strict=True) if target is None]
    if 0 < len(lacking) < len(places):
        raise UserError(f"{path}, {unit} {lacking[0]}: no reference; every row needs one")
    return Rows(str(path), predictions, references, inputs, places, list(columns), unit)


def _as_lists(values: list[Any]) -> list[Any]:
    """The lists of a column whose cells are all lists, as .csv writes them; other values as they are."""
    return [expand_label(value, None) for value in values] if all(map(looks_like_list, values)) else values


def _parts(fields: dict[str, Any], path: Path, settings: CompareSettings) -> tuple[Any, Any, dict[str, Any]]:
    """Prediction, reference and input of a record. Columns that `--columns` names are read where a file has them."""
    given, named = fields.get("input"), settings.named("reference")
    if not isinstance(given, Mapping):  # in a table its columns are `input.text` and so on
        given = {name.removeprefix("input."): fields[name] for name in fields if name.startswith("input.")}
    # a line of predictions.jsonl, or of the output of `mybert predict`
    if given and not {*settings.named("prediction")} & {*fields}:
        prediction = {name: fields[name] for name in _OF_PREDICTION if name in fields}
        cells = [name for name, value in prediction.items() if isinstance(value, str) and name not in _TEXTS]
        prediction |= {name: of_cell(prediction[name]) for name in cells}
        reference = fields["reference"] if "reference" in fields else _first(given, (*named, *_REFERENCES))[1]
        return prediction, reference, dict(given)
    usual = (*settings.named("prediction"), *_PREDICTIONS)
    name, value = _first(fields, usual)
    if name is None:
        raise UserError(
            f"{path} has no column for the prediction (looked for {', '.join(usual)}); there are "
            f"{short_list(list(fields))}; use --columns prediction=COLUMN"
        )
    rest = {column: x for column, x in fields.items() if column != name}
    known, reference = _first(rest, (*named, *_REFERENCES))
    left_out = (known, *_PLACES, "score", "scores")
    return value, reference, {column: x for column, x in rest.items() if column not in left_out}


def _first(fields: Mapping[str, Any], names: Iterable[str]) -> tuple[str | None, Any]:
    name = next((name for name in names if name in fields), None)
    return name, None if name is None else fields[name]


def _prediction(value: Any) -> dict[str, Any]:
    """A value of another tool in the form of `mybert predict`."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list):
        return {"labels": value, "tags": value}  # `scoring` knows which is meant
    return {"label": value if isinstance(value, str) else json.dumps(value), "score": value}


def _shared_columns(every: Sequence[Rows]) -> list[str]:
    """The columns that all runs have and that hold no references, by which rows are matched.

    Numbers with a fraction, such as probabilities, are left out if there are others.
    """
    shared = set.intersection(*(set.intersection(*map(set, rows.inputs)) for rows in every))

    def is_target(name: str) -> bool:
        return any(
            rows.has_references
            and all(_same(row[name], target) for row, target in zip(rows.inputs, rows.references, strict=True))
            for rows in every
        )

    def is_score(name: str) -> bool:
        numbers = numbers_of(row[name] for rows in every for row in rows.inputs)
        return numbers is not None and not all(value.is_integer() for value in numbers)

    columns = sorted(name for name in shared if not is_target(name))
    return [name for name in columns if not is_score(name)] or columns


def numbers_of(values: Iterable[Any]) -> list[float] | None:
    """Values that are all numbers; None for others."""
    numbers = [number(value) for value in values]
    return None if None in numbers else [value for value in numbers if value is not None]


def _same(one: Any, other: Any) -> bool:
    return one == other or _plain(one) == _plain(other)


def _plain(value: Any) -> str:
    """A value as text, however a table writes it: 1, 1.0 and "1" are one value, and spaces count as one."""
    return " ".join(label_name(value).split())


def _aligned(rows: Rows, first: Rows, names: Sequence[str]) -> Rows:
    """The rows in the order of `first`, with its references if they have none."""
    if len(rows.places) != len(first.places):
        raise UserError(
            f"{rows.source} has {len(rows.places):,} rows and {first.source} {len(first.places):,}"
            f"{_difference(rows, first, names)}; evaluate all on one file"
        )
    if names:
        own, wanted = (
            [(_key(row, names), _plain(target)) for row, target in zip(one.inputs, one.references, strict=True)]
            for one in (rows, first)
        )
        fitting, alike = defaultdict[Any, list[int]](list), defaultdict[str, list[int]](list)
        for place, pair in reversed(list(enumerate(own))):
            fitting[pair].append(place)
        order = [fitting[pair].pop() if fitting[pair] else -1 for pair in wanted]
        for place in sorted({*range(len(own))}.difference(order), reverse=True):  # without this reference
            alike[own[place][0]].append(place)
        order = [
            alike[key].pop() if place < 0 and alike[key] else place
            for place, (key, _) in zip(order, wanted, strict=True)
        ]
        if -1 in order:
            raise UserError(f"the runs have different rows{_difference(rows, first, names)}; evaluate all on one file")
        rows = rows.select(order)
    for place, own, expected in zip(rows.places, rows.references, first.references, strict=True):
        if rows.has_references and not _same(own, expected):
            raise UserError(
                f"the reference of {rows.unit} {place} is {short(own)} in {rows.source} and "
                f"{short(expected)} in {first.source}; evaluate all on one file"
            )
    return rows._replace(references=first.references)


def _key(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return json.dumps([_plain(row[name]) for name in names])


def _difference(rows: Rows, first: Rows, names: Sequence[str]) -> str:
    """Names a row that only one of two runs has, or has more often."""
    if not names:
        return ""
    for one, other in ((rows, first), (first, rows)):
        counts = Counter(_key(row, names) for row in other.inputs)
        known = {*counts}
        for place, row in zip(one.places, one.inputs, strict=True):
            key = _key(row, names)
            counts[key] -= 1
            if counts[key] < 0:
                text = short(" · ".join(json.loads(key)))
                how = "repeats a row more often than" if key in known else "is not in"
                return f": {one.unit} {place} of {one.source} {how} {other.source}: {text}"
    return ""
