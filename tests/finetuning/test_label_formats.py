"""Label columns in every format, written by pandas and by datasets: the same problem and labels everywhere."""

import json
import re
import subprocess
import unicodedata
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset, disable_progress_bars
from json_files import read_lines
from new_tasks import task_of
from sklearn.metrics import f1_score
from trained_runs import read_results as results

from modeling_mybert import MyBertConfig
from mybert import Predictor
from mybert.common.errors import UserError
from mybert.finetuning.held_out import draw_by_content
from mybert.finetuning.run_data import _warnings
from mybert.inference.task_checkpoint import _name_labels_once
from mybert.rows.label_columns import is_one_hot, of_one_kind
from mybert.rows.labels import MULTI, REGRESSION, SINGLE, find_problem, number, sort_labels
from mybert.tasks.bootstrap_scores import best_label_threshold
from mybert.tasks.reading import read_split
from mybert.tasks.text_classification import TextClassification

SEVERAL = [["grain", "wheat"], [], ["corn, sweet"], ["wheat", "it's"]]
FLAGS = {"grain": [1, 0, 0, 0], "wheat": [1, 0, 0, 1]}
ONE_HOT = {"columns": ["label=grain,wheat"]}

# columns beside the text, options, problem, and the references of the rows
FLAGGED, BY_SEPARATOR = [["grain", "wheat"], [], [], ["wheat"]], {"label_separator": ";"}
ODD = ["a/b", "$\\frac{$", " [red] ", "ü\n☃"]
CONTAINERS = ["frozenset()", "np.array(['a'], dtype=object)", "deque(['b'])", "Index(['a', 'b'], dtype='object')"]
TENSORS = ["tensor([1, 2])", "tensor([3], device='cuda:0', dtype=torch.int32)", "torch.tensor([1])", "tensor([])"]
SETS = ["{'a', 'b'}", "frozenset({'a'})", "set()", "(np.str_('b'),)"]
SEPARATED = ["grain;wheat", "", "corn", "wheat; grain;wheat"]
LABELS = {
    "words": (["good", "bad", "good", "so so"], {}, SINGLE, ["good", "bad", "good", "so so"]),
    "words of any characters": (ODD, {"problem": "single-label"}, SINGLE, ODD),
    "integers": ([1, 0, 10, 9], {}, SINGLE, ["1", "0", "10", "9"]),
    "whole floats": ([1.0, 0.0, 1.0, 2.0], {}, SINGLE, ["1", "0", "1", "2"]),
    "truth values": ([True, False, True, True], {}, SINGLE, ["True", "False", "True", "True"]),
    "fractions": ([1.5, 0.25, 3.0, 2.5], {}, REGRESSION, [1.5, 0.25, 3.0, 2.5]),
    "asked fractions": ([1.5, 1.0, 3.0, 2.0], {"problem": "regression"}, REGRESSION, [1.5, 1.0, 3.0, 2.0]),
    "lists": (SEVERAL, {}, MULTI, SEVERAL),
    "lists of numbers": ([[1, 2], [], [3], [1]], {}, MULTI, [["1", "2"], [], ["3"], ["1"]]),
    "lists as text": (list(map(str, SEVERAL)), {}, MULTI, SEVERAL),
    "lists as JSON": (list(map(json.dumps, SEVERAL)), {}, MULTI, SEVERAL),
    "separator": (SEPARATED, BY_SEPARATOR, MULTI, [["grain", "wheat"], [], ["corn"], ["wheat", "grain"]]),
    "one-hot integers": (FLAGS, ONE_HOT, MULTI, FLAGGED),
    "one-hot floats": ({name: list(map(float, flags)) for name, flags in FLAGS.items()}, ONE_HOT, MULTI, FLAGGED),
    "one-hot truth values": ({name: list(map(bool, flags)) for name, flags in FLAGS.items()}, ONE_HOT, MULTI, FLAGGED),
    "numpy's texts": ([str([*map(np.str_, row)]) for row in SEVERAL], {}, MULTI, SEVERAL),
    "sets": (SETS, {}, MULTI, [["a", "b"], ["a"], [], ["b"]]),
    "tuples": ([str(tuple(row)) for row in SEVERAL], {}, MULTI, SEVERAL),
    "other containers": (CONTAINERS, {}, MULTI, [[], ["a"], ["b"], ["a", "b"]]),
    "tensors": (TENSORS, {}, MULTI, [["1", "2"], ["3"], ["1"], []]),
    "forms of accents": (["Caf\u00e9", "Cafe\u0301", "Bar", "Bar"], {}, SINGLE, ["Café"] * 2 + ["Bar"] * 2),
    "twice in a row": ([["a", "a", "b"], ["b"], ["a"], []], {}, MULTI, [["a", "b"], ["b"], ["a"], []]),
}
PANDAS = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, sep="\t", index=False),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "json": lambda frame, path: frame.to_json(path, orient="records"),
    "parquet": lambda frame, path: frame.to_parquet(path),
}
DATASETS = {
    "csv": lambda rows, path: rows.to_csv(path, index=False),
    "tsv": lambda rows, path: rows.to_csv(path, sep="\t", index=False),
    "jsonl": lambda rows, path: rows.to_json(path),
    "json": lambda rows, path: rows.to_json(path, lines=False),
    "parquet": lambda rows, path: rows.to_parquet(path),
    "saved": lambda rows, path: rows.save_to_disk(path),
    "torch": lambda rows, path: rows.with_format("torch").save_to_disk(path),
}
TEXTS = ["a good film", 'a "fine", long\tstory', '"bad" start', "two\nlines"]


@pytest.fixture(scope="module", autouse=True)
def quiet():
    disable_progress_bars()


def new_task(path: Path, **settings) -> tuple[TextClassification, Dataset]:
    task = task_of(**settings)
    rows = read_split(str(path), task).rows
    assert task.check_rows(rows, training=True) == []
    return task.fitted(rows), rows


def test_the_reason_for_several_labels_is_the_separator(tmp_path):
    pd.DataFrame({"text": TEXTS, "label": SEPARATED}).to_csv(tmp_path / "rows.csv", index=False)
    task, rows = new_task(tmp_path / "rows.csv", **BY_SEPARATOR)
    assert task.summary(rows).endswith("3 labels (corn, grain, wheat), because of --label-separator ';'")


@pytest.mark.parametrize("writer", ["pandas", "datasets"])
@pytest.mark.parametrize("kind", LABELS)
def test_labels_are_the_same_in_every_format(tmp_path, kind, writer):
    columns, settings, problem, references = LABELS[kind]
    columns = {"text": TEXTS, **(columns if isinstance(columns, dict) else {"label": columns})}
    for suffix, write in (PANDAS if writer == "pandas" else DATASETS).items():
        path = tmp_path / f"rows.{suffix}"
        write(pd.DataFrame(columns) if writer == "pandas" else Dataset.from_dict(columns), path)
        task, rows = new_task(path, **settings)
        assert (task.config.problem_type, task.references(rows)) == (problem, references), suffix
        assert rows["text"][:] == TEXTS, suffix
        if problem != REGRESSION:
            names = {name for row in references for name in (row if problem == MULTI else [row])}
            assert set(task.config.label2id) == names
            sets = references if problem == MULTI else [[row] for row in references]
            assert task.label_distribution(rows) == {name: sum(name in row for row in sets) for name in names}
        again = read_split(str(path), task).rows  # as evaluation reads it, with the labels known
        assert task.check_rows(again, training=False) == [] and task.references(again) == references


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_missing_label_is_named_by_its_line_and_does_not_change_the_others(tmp_path, suffix):
    frame = pd.DataFrame({"text": TEXTS, "label": [1.0, None, 0.0, 1.0]})
    PANDAS[suffix](frame, tmp_path / f"rows.{suffix}")
    task = task_of()
    split = read_split(str(tmp_path / f"rows.{suffix}"), task)
    assert [(problem.row, problem.message) for problem in task.check_rows(split.rows, True)] == [
        (1, "the label is missing")
    ]
    assert (split.unit, split.numbers[1] + 1) == (("line", 3) if suffix == "csv" else ("row", 2))


def test_a_name_in_brackets_is_kept_on_request():
    rows = Dataset.from_dict({"text": TEXTS, "label": ["[red]", "[blue]", "[red]", "[blue]"]})
    task = task_of()
    assert "--problem single-label" in task.check_rows(rows, training=True)[0].message
    task = task_of(problem="single-label")
    assert task.check_rows(rows, training=True) == []
    task = task.fitted(rows)
    assert set(task.config.label2id) == {"[red]", "[blue]"} and task.check_rows(rows, training=False) == []


def test_classes_get_the_names_that_are_given_in_any_order(finetuned, opinions, capsys):
    rows = [{**row, "label": float(row["label"] == "good")} for row in opinions]
    words = ("--num-train-epochs", 3, "--label-names", "1=good", "0=bad")
    folder = finetuned("text-classification", rows, *words, validation=rows)
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("text-classification, single label: 2 labels (good, bad)")
    assert MyBertConfig.from_pretrained(folder).id2label == {0: "good", 1: "bad"}
    lines = read_lines(folder / "validation/predictions.jsonl")
    again = Predictor(folder)([row["text"] for row in opinions])
    assert [line["label"] for line in lines] == [one["label"] for one in again] == [row["label"] for row in opinions]


@pytest.mark.parametrize("problem", ["single-label", "multi-label"])
def test_labels_keep_their_order_in_a_stored_configuration(problem, tmp_path):
    """config.json sorts `label2id`: 0, 1, 10, 11, 2, …; that of others may sort `id2label` too."""
    labels = [number if problem == "single-label" else [number] for number in range(12)]
    rows = Dataset.from_dict({"text": ["a text"] * 12, "label": labels})
    task = task_of(problem=problem).fitted(rows)
    task.config.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(stored, sort_keys=True))
    task = replace(task, config=MyBertConfig.from_pretrained(tmp_path))
    assert list(task.config.id2label) == sorted(range(12), key=str)
    logits = 20 * np.eye(12) - 10  # the model is right on every row
    predictions = task.decode(logits, Dataset.from_dict({"row": range(12)}), rows)
    assert [one[task.kind.key] for one in predictions] == task.references(rows)
    assert list(map(task.kind.labels, task.references(rows))) == [[str(number)] for number in range(12)]
    assert task.score(predictions, task.references(rows))["accuracy"] == 1
    _name_labels_once(task.config, "checkpoint")
    assert [*task.config.label2id.items()] == [(str(number), number) for number in range(12)]


@pytest.mark.parametrize("labels", [["grain;wheat", "wheat", "corn;grain"], ["grain;wheat", "grain", "corn"]])
def test_joined_labels_are_warned_about(labels):
    (warning,) = _warnings(20, Counter(dict.fromkeys(labels, 6)), task_of())
    assert warning == "the label 'grain;wheat' looks like several labels; --label-separator ';' splits them"
    assert not _warnings(20, Counter({"grain;wheat": 10, "corn": 10}), task_of())


@pytest.mark.parametrize(("labels", "warned"), [(9, False), (10, True)])
def test_a_column_of_row_numbers_as_labels_is_warned_of(labels, warned):
    balance = {chr(number) * 3: 1 for number in range(97, 97 + labels)}
    found = _warnings(20, Counter({"other": 20 - labels} | balance), task_of())
    assert any("is --columns label=COLUMN the right column?" in warning for warning in found) == warned


def test_training_rows_are_sampled_by_the_seed(finetuned, opinions):
    rows = sorted(opinions, key=lambda row: row["label"])
    folder = finetuned("text-classification", rows, "--max-train-samples", 12, "--max-steps", 1)
    found = results(folder)["data"]["train"]
    assert found["rows"] == 12 and set(found["balance"]) == {"good", "bad"}


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_the_same_rows_are_drawn_whatever_their_order_their_labels_and_other_rows_are(form):
    rows = [{"text": f"r\u00e9sum\u00e9 {number}", "label": "a"} for number in range(200)]

    def drawn(rows: list[dict], count: int, seed: int = 0) -> set[str]:
        numbers = draw_by_content(Dataset.from_list(rows), task_of(), count, seed)
        assert numbers == sorted(set(numbers)) and len(numbers) == min(count, len(rows))
        return {unicodedata.normalize("NFC", rows[number]["text"]) for number in numbers}

    first = drawn(rows, 50)
    changed = [{"text": unicodedata.normalize(form, row["text"]), "label": "b"} for row in reversed(rows)]
    assert drawn(changed, 50) == first < drawn(rows, 80) and drawn(rows, 50, seed=1) != first
    more = drawn([*rows, *({"text": f"new {number}", "label": "a"} for number in range(20))], 50)
    assert len(more - first) <= 20 and {text for text in more if text.startswith("r")} <= first


@pytest.mark.parametrize("seed", range(3))
def test_the_threshold_of_several_labels_has_the_best_micro_f1(seed):
    generator = np.random.default_rng(seed)
    scores = generator.integers(20, size=(15, 3)) / 20
    chosen = generator.random((15, 3)) < scores
    threshold = best_label_threshold(scores, chosen)
    every = np.arange(-1, 42) / 40 + 0.001
    best = max(f1_score(chosen, scores > one, average="micro", zero_division=0) for one in every)
    assert f1_score(chosen, scores > threshold, average="micro", zero_division=0) == pytest.approx(best)
    assert best_label_threshold(np.array([[0.9], [0.2]]), np.array([[True], [False]])) == pytest.approx(0.55)
    scores, chosen = np.array([[0.9, 0.85, 0.8, 0.1, 0.08, 0.05]]), np.array([[1, 0, 1, 0, 0, 1]], dtype=bool)
    assert best_label_threshold(scores, chosen) == pytest.approx(0.45), "of equal scores the nearest to 0.5"


def test_a_tuned_threshold_is_printed_and_kept_with_the_model(finetuned, capsys):
    rows = [{"text": f"{a} {b}", "labels": ["rare"] if a == b else []} for a in "abcd" for b in "abcd"] * 2
    folder = finetuned("text-classification", rows, "--max-steps", 3, validation=rows)
    threshold = MyBertConfig.from_pretrained(folder).label_threshold
    (printed,) = re.findall(r"^label_threshold ([0-9.]+) in config.json", capsys.readouterr().out, re.M)
    assert float(printed) == pytest.approx(threshold, rel=1e-3)
    for one in read_lines(folder / "validation/predictions.jsonl"):
        assert one["labels"] == [name for name, score in one["scores"].items() if score > threshold]


def test_labels_that_differ_in_spaces_and_case_are_shown_and_merged(finetune, write_rows, opinions, tmp_path, capsys):
    others = ["Good", "good ", "good\u00a0", "good\u200b"]
    rows = [*opinions, *({"text": f"a good {i}", "label": label} for i, label in enumerate(others))]
    words = ["text-classification", "--train", write_rows("train.jsonl", rows), "--max-steps", 1]
    assert finetune(*words) == 0
    printed = capsys.readouterr().out
    assert all(f"│ {name} " in printed for name in ("'good '", "'good\\xa0'", "'good\\u200b'", "good", "Good"))
    assert "(Good, bad, good, 'good ', 'good\\xa0', 'good\\u200b')" in printed
    advice = re.findall(r"looks like 'good' .* merge both by --label-names (.*)$", printed, re.M)
    bash = subprocess.run(["bash", "-c", f"printf '%s\\n' {' '.join(advice)}"], capture_output=True, check=True)
    given = bash.stdout.decode("utf-8").splitlines()
    assert sorted(given) == sorted(f"{label}=good" for label in others)
    assert finetune(*words, "--label-names", *given, output="merged") == 0
    assert results(tmp_path / "merged")["data"]["train"]["balance"] == {"good": 28, "bad": 24}


def test_numbers_of_any_size_stand_beside_fractions(write_rows):
    rows = [{"text": "word", "label": label} for label in (1152921504606846977, 0.5, 1.5)]
    assert len(read_split(str(write_rows("train.jsonl", rows)), task_of()).rows) == 3


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (["3.5", "", "2"], REGRESSION),
        ([3.5, 2.0, None, float("nan")], REGRESSION),
        (["007", "12"], SINGLE),
        (["3.5", "high"], SINGLE),
        (["1.2.3", "1.2.4"], SINGLE),
        (["inf", "0.5"], SINGLE),
        ([1.0, 0.0, None], SINGLE),
        ([["0.5"], []], MULTI),
        (["a"] * 9 + [["a", "b"]], SINGLE),  # whose row is named then
        (["a"] * 8 + [["a", "b"]], MULTI),
        ([f"{i / 10}" for i in range(40)] + ["NaN"], REGRESSION),  # whose row is named then
    ],
)
def test_labels_define_the_problem(labels, problem):
    assert find_problem(labels).name == problem


def test_labels_with_decimal_commas_are_words_with_a_hint():
    assert find_problem(["3,5", "2,25", "-"]).reason == "because the labels are words (for numbers, write 3.5)"
    for labels in (["1,000", "2,500"], ["a,5", "b"], ["grain,wheat"]):
        assert find_problem(labels).reason == "because the labels are words"


@pytest.mark.parametrize(
    ("trained", "found", "renamed"),
    [
        ([1, 2, 3], [0, 1, 1], "0=1 1=2 2=3"),
        ([0, 1], ["1", "2"], "1=0 2=1"),
        ([["1"], ["2"], ["3"]], [[0], [2, 1]], "0=1 1=2 2=3"),
    ],
)
def test_labels_that_count_from_another_number_are_refused(trained, found, renamed):
    """Without the rows of the unknown label, the others would be scored as other classes."""
    rows = Dataset.from_dict({"text": ["word"] * len(trained), "label": trained})
    task = task_of().fitted(rows)
    others = Dataset.from_dict({"text": ["word"] * len(found), "label": found})
    with pytest.raises(UserError, match=f"--label-names {renamed}"):
        task.check_rows(others, training=False)
    renamed = replace(task, options=task.Options.of({"label_names": renamed.split()}))
    assert renamed.check_rows(renamed.prepare(others), training=False) == []
    for right in (trained, trained[:1], trained[1:], [*trained, trained[0]]):
        assert task.check_rows(Dataset.from_dict({"text": ["word"] * len(right), "label": right}), False) == []


@pytest.mark.parametrize("labels", [[1.5] + [1, 2] * 20, ["1.5"] + ["1", "2"] * 20])
def test_few_fractions_among_whole_numbers_are_what_an_option_says(labels):
    assert find_problem(labels, "regression").name == REGRESSION
    assert find_problem(labels, "single-label").name == SINGLE


def test_what_is_a_number():
    good = {"3.5": 3.5, " -2 ": -2, "1e3": 1000, 7: 7, 0.25: 0.25}
    assert {label: number(label) for label in good} == good
    assert not [
        label for label in ("", "x", "nan", "inf", "1,5", None, True, [1], 10**400) if number(label) is not None
    ]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["10", "9", "1"], ["1", "9", "10"]),
        ([10, 9, "1", 1], ["1", "9", "10"]),
        (["12", "-3", "007"], ["-3", "007", "12"]),
        (["10", "9", "x"], ["10", "9", "x"]),
        ([True, False], ["False", "True"]),
        ([1.0, "0.0", 2], ["0", "1", "2"]),
        (["9" * 5000, "1"], ["1", "9" * 5000]),
    ],
)
def test_whole_numbers_are_sorted_by_value(labels, names):
    assert sort_labels(labels) == names


@pytest.mark.parametrize(
    ("first", "last"),
    [(2000, 2004), (0, 1e-9), (1e6, 1e6 + 1), (0.1, 0.7), (-1e18, 1e18), (0.5, 0.5), (1e17, 1e17 + 16)],
)
def test_parts_of_a_range_of_numbers_have_distinct_names(first, last):
    labels = [first + (last - first) * i / 4 for i in range(5)]
    rows = Dataset.from_dict({"text": ["x"] * 5, "label": labels})
    task = task_of(problem="regression").fitted(rows)
    balance = task.label_distribution(rows)
    assert len(balance) == (1 if first == 1e17 else 5) and sum(balance.values()) == 5
    ends = [end for name in balance for end in map(float, name.split(" to "))]
    assert ends == sorted(ends) and len(set(ends)) == len(balance) + 1


def test_numbers_beyond_those_of_training_are_counted_at_the_ends():
    rows = Dataset.from_dict({"text": ["x"] * 32, "label": [n / 2 for n in range(8)] * 4})
    task = task_of(problem="regression").fitted(rows)
    edges = ["0 to 0.7", "0.7 to 1.4", "1.4 to 2.1", "2.1 to 2.8", "2.8 to 3.5"]
    assert task.label_distribution(rows) == dict(zip(edges, (8, 4, 8, 4, 8), strict=True))
    beyond = task.label_distribution(Dataset.from_dict({"text": ["x"] * 2, "label": [-3.0, 9.0]}))
    assert beyond == dict(zip(edges, (1, 0, 0, 0, 1), strict=True))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([[0, 1], [1, 0]], True),
        ([[0], [1]], False),  # the labels "0" and "1"
        ([[0, 1], [1]], False),  # lists of these labels
        ([[True, False], [True]], True),
        ([["0", "1"], ["1", "0"]], True),
        ([[0.2, 0.8], [1.0, 0.0]], True),
        ([[1, 2], [3, 4]], False),
        ([["grain", 1]], False),
        ([[], []], False),
    ],
)
def test_vectors_of_truth_values_and_of_shares_name_no_label(labels, expected):
    assert is_one_hot(labels) is expected


def test_names_and_lists_of_at_most_one_name_are_names_where_a_row_has_one_label():
    assert of_one_kind([["a"], "b", [], ["c", "d"]], SINGLE) == ["a", "b", None, ["c", "d"]]
    assert of_one_kind([["a"], "b", []], MULTI) == [["a"], ["b"], []]
