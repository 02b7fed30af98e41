"""Messages of `mybert compare`: for each run that cannot be compared, and each setting, what the one line must say.

" … " in a message stands for anything.
"""

import pandas as pd
import pytest
from json_files import write_files

LABELS = ["bad", "fair", "good"]
ROWS = [
    {"text": f"text {n}", "topic": f"topic {n % 2}", "label": LABELS[n % 3], "prediction": "bad"} for n in range(9)
]
NUMBERS = [{"text": str(n), "label": 0.5 + n % 2 * 0.75, "prediction": 0.75} for n in range(10)]
TWO_LABELS = [{"text": str(n), "label": LABELS[n % 2]} for n in range(10)]
COLUMNS = "the rows have the columns text, topic"


def table(rows: list[dict]):
    """A function that writes a CSV file."""
    return lambda path: pd.DataFrame(rows).to_csv(path, index=False)


def predicted(first, second) -> dict:
    """A file in which every other prediction is `first`."""
    return {"two.csv": table([row | {"prediction": [first, second][n % 2]} for n, row in enumerate(TWO_LABELS)])}


def changed(number: int, **values) -> dict:
    """The rows, one of which has other values."""
    return {"two.csv": table([row | (values if n == number else {}) for n, row in enumerate(ROWS)])}


def both(*rows: dict) -> dict:
    return {f"{name}.jsonl": [row] for name, row in zip(("a", "b"), rows, strict=True)}


NO_LABEL = {"text": "a", "reference": [], "prediction": []}
TAGS = {"tokens": ["a", "b"], "reference": ["X", "O"]}
MISTAKES = [  # files beside one.csv, the runs and options, and message
    ({}, "one.csv", "--runs: expected two or more"),
    ({}, "one.csv nowhere", "nowhere does not exist"),
    ({}, "one.csv one.csv --metric rouge", "--metric rouge: expected one of accuracy"),
    ({}, "one.csv one.csv --slices colour", f"--slices colour: {COLUMNS}"),
    (
        both({"text": "a", "label": "good"}, {"text": "a", "label": "bad"}),
        "a.jsonl b.jsonl --columns prediction=label reference=label",
        "a.jsonl has no references beside the column 'label', which --columns names for predictions, too; name their",
    ),
    ({}, "one.csv one.csv --columns prediction=guess", "--columns prediction=guess: no run has this column"),
    ({}, "one.csv one.csv --part test", "--part test: no run is a folder of `mybert finetune`; leave it out"),
    ({}, "one.csv one.csv --columns guess", "--columns guess: expected prediction=COLUMN"),
    ({"folder/file": ""}, "one.csv folder", "has no predictions.jsonl of validation rows"),
    (
        {
            "r/manifest.json": '{"stage": "evaluate"}',
            "r/results.json": '{"task": "retrieval"}',
            "r/predictions.jsonl": "",
        },
        *("one.csv r", "r is an evaluation of retrieval; its results.json compares the model"),
    ),
    ({}, "one.csv,one.csv one.csv", "the run one.csv,one.csv names one.csv twice; name each seed once"),
    # rows that are not the same
    ({"two.csv": table(ROWS[1:])}, "one.csv two.csv", "8 rows … 'text 0 · topic 0'"),
    (changed(7, text="text seven"), "one.csv two.csv", "two.csv … text seven"),
    (
        changed(5, text="text 3"),
        "one.csv two.csv",
        "line 7 of two.csv repeats a row more often than one.csv: 'text 3 · topic 1'",
    ),
    (changed(8, label="bad"), "one.csv two.csv", "the reference of line 10 is 'bad' in two.csv"),
    # predictions that are no labels or no finite numbers
    (
        predicted("Bad", "Fair"),
        *("two.csv two.csv", "predicts Bad, Fair, and the references are bad, fair; write the same names in both"),
    ),
    (predicted("LABEL_0", "LABEL_1"), "two.csv two.csv", "predicts LABEL_0, LABEL_1, and the references"),
    (predicted("bad", ""), "two.csv two.csv", "two.csv, line 3: the prediction is missing"),
    (
        {"two.csv": table([{"text": n, "label": n % 2, "prediction": 0.2 + n % 2 * 0.7} for n in range(10)])},
        *("two.csv two.csv", "the predictions look like probabilities, and the references are 0 and 1"),
    ),
    *(
        (
            {"two.csv": table([row | ({"prediction": value} if n % 2 else {}) for n, row in enumerate(NUMBERS)])},
            *("two.csv two.csv", f"two.csv, line 3: the prediction is {value}, … numbers; predict a finite number"),
        )
        for value in ("nan", "inf", "-Infinity")
    ),
    (both(NO_LABEL, NO_LABEL), "a.jsonl b.jsonl", "no row has a label, neither in the references nor in the"),
    (
        both(TAGS | {"prediction": ["X", "O"]}, TAGS | {"prediction": ["X"]}),
        *("a.jsonl b.jsonl", "b.jsonl, line 1: 1 tag for 2 words; predict one for each"),
    ),
    (
        {
            "b.jsonl": [
                row | {"prediction": row["prediction"].split() + ["good"] * (n == 4)} for n, row in enumerate(ROWS)
            ]
        },
        *("one.csv b.jsonl", "b.jsonl, line 5: expected one label, found ['bad', 'good']"),
    ),
]


@pytest.mark.parametrize(("files", "words", "message"), MISTAKES, ids=[case[-1] for case in MISTAKES])
def test_a_mistake_is_one_line_and_writes_nothing(assert_refused, tmp_path, files, words, message):
    write_files(tmp_path, {"one.csv": table(ROWS)} | files)
    assert_refused(["compare", *words.split(), "--output", "c"], message)
