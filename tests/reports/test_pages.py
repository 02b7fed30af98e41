"""Pages: complete, self-contained, small, and safe with hostile text."""

import base64
import gzip
import hashlib
import html
import json
import re
import shutil
from html.parser import HTMLParser

import pytest
from stage_folders import (
    ANALYSIS,
    ENTITIES,
    EVALUATION,
    NUMBERS,
    PREDICTIONS,
    PRETRAINING,
    losses,
    training_log,
    write_stage,
)

from mybert.common.metrics import metric_of, percent
from mybert.reports.components import printable
from mybert.reports.forecast import compare
from mybert.reports.prediction_table import prediction_table
from mybert.reports.stage_files import read_stage
from mybert.reports.write import write_report

HOSTILE = [
    "<script>document.title='run'</script>",
    "</script><script>document.title='run'</script>",
    "<img src=x onerror=\"document.title='run'\">",
    "\" onmouseover=\"document.title='run'",
    "{{ 7 * 7 }}{% raw %}",
    "\u202eright to left\u202c \u2066isolate \u2028 line \u2029 paragraph",
    "👩\u200d👩\u200d👧 ünïcödé \U0001f4a5 \x00 \x1b[31m",
    "]]><!-- --> <svg/onload=alert(1)>",
    "=1+1",
]

NAMES = ("reference", "prediction", "confidence")


class Page(HTMLParser):
    """Elements and attributes of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.elements, self.scripts, self.ids = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] == "script" and data.strip():
            self.scripts.append((self.elements[-1][1], data))


def read(path) -> tuple[str, Page]:
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


def packed_rows(text: str) -> list[list]:
    content = re.search(r'class="packed">([^<]+)<', text)[1]
    return json.loads(gzip.decompress(base64.b64decode(content)))


def test_a_page_needs_no_network_and_allows_its_own_script_only(good_run):
    text, page = read(write_report(good_run))
    for tag, attributes in page.elements:
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            value = attributes.get(name, "#")
            assert value.startswith("#") or value == "data:,", (tag, value)
        assert not [name for name in attributes if name.startswith("on")]
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    policy = next(attributes["content"] for tag, attributes in page.elements if "http-equiv" in attributes)
    runs = [data for attributes, data in page.scripts if "type" not in attributes]
    assert len(runs) == 1
    assert f"sha256-{base64.b64encode(hashlib.sha256(runs[0].encode()).digest()).decode()}" in policy
    assert policy.startswith("default-src 'none'")
    assert len(page.ids) == len(set(page.ids))
    assert len(text) < 5_000_000


def test_the_pictures_of_two_parts_have_ids_of_their_own(tmp_path):
    folder = write_stage(tmp_path / "run", "finetune", {"results/test": EVALUATION})
    shutil.copytree(folder / "validation", folder / "test")
    text, page = read(write_report(folder))
    assert len(page.ids) == len(set(page.ids))
    titles = {f"<h3>Precision and recall ({part})</h3>" for part in ("test", "validation")}
    assert all(title in text for title in titles)


def test_every_picture_has_a_table_behind_it(good_run):
    text, page = read(write_report(good_run))
    figures = re.findall(r"<figure.*?</figure>", text, re.S)
    assert figures
    assert all("data-chart=" in figure and re.search(r"<details>.*<td", figure, re.S) for figure in figures)
    assert all(json.loads(values["data-chart"])["axes"] for _, values in page.elements if "data-chart" in values)


def test_the_cells_of_a_confusion_matrix_have_headers_of_their_row_and_column(tmp_path):
    text, _ = read(write_report(write_stage(tmp_path / "run", "finetune")))
    matrix = text.partition("<h3>Confusion matrix</h3>")[2].partition("</table>")[0]
    assert re.findall(r'<th scope="(\w+)"[^>]*>([^<]+)<', matrix) == [
        *(("col", name) for name in ("reference", "good", "bad")),
        *(("row", name) for name in ("good", "bad")),
    ]


def test_charts_of_training_can_be_read_by_step_tokens_and_hours(tmp_path):
    text, _ = read(write_report(write_stage(tmp_path / "run", "pretrain")))
    loss = re.search(r'<figure class="card half">\s*<figcaption><h3>Masked-token loss.*?</figure>', text, re.S)[0]
    data = json.loads(html.unescape(re.search(r'data-chart="(.*?)"', loss)[1]))
    assert [axis["name"] for axis in data["axes"]] == ["step", "tokens", "hours"]


def test_the_forecast_of_a_run_stands_beside_its_result(tmp_path):
    metrics = {"mlm_loss": 4.567, "mlm_accuracy": 0.4, "mlm_tokens": 9000}
    early = {"mlm_loss": 5.0, "mlm_loss_error": 0.2, "mlm_accuracy": 0.3, "mlm_accuracy_error": 0.04}
    early |= {"mlm_loss_highest": 6.0}
    late = early | {"mlm_loss": 3.0, "mlm_accuracy": 0.39}
    budget = {"planned": {"tokens_per_second": 20_000, "tokens": 1_600_000}, "expected": early}
    changes = {"results/metrics": metrics, "results/budget": budget | {"expected_for_tokens_seen": late}}
    folder = write_stage(tmp_path / "run", "pretrain", changes)
    rows = {row.title: row[1:] for row in compare(read_stage(folder).results)}
    assert rows == {
        "tokens per second": ("20,000", "", "5,000", "0.25 times the plan: slower"),
        "tokens": ("1.6 M", "", "40 k", ""),
        "masked loss": ("5.00 ± 0.20", "3.00 ± 0.20", "4.57", "worse than expected"),
        "masked accuracy": ("0.300 ± 0.040", "0.390 ± 0.040", "0.400", ""),
    }
    text, _ = read(write_report(folder))
    assert all(cell in text for row in rows.values() for cell in row)
    late |= {"mlm_loss": 6.0, "mlm_accuracy": 0.1}  # the law knows no more than these bounds
    loss, accuracy = compare(read_stage(folder).results | {"budget": budget | {"expected_for_tokens_seen": late}})[2:]
    assert (loss[2], loss.remark, accuracy[2], accuracy.remark) == ("at most 6.00", "", "at least 0.100", "")


COUNTS = "manifest/counts/documents_"
NOTHING_LEFT_OUT = {f"{COUNTS}{name}": 0 for name in ("duplicate", "of_one_sentence")} | {f"{COUNTS}filtered": {}}
NOTHING_LEFT_OUT |= {"manifest/counts/tokens_cut": 0, "manifest/counts/truncated": 0, "manifest/skipped": {}}
IN_PARTS = {f"{COUNTS}read": 10, f"{COUNTS}empty": 1, f"{COUNTS}duplicate": 3, f"{COUNTS}near_duplicate": 20}
CHOICES = {"size": "tiny", "max_tokens_per_batch": 2048, "learning_rate": 0.003, "sequences_per_step": 32}
SEVERAL = {"metrics": {"accuracy": 0.9, "f1_micro": 0.9}, "constant_baselines": {"accuracy": 0.9, "f1_micro": 0.9}}


def compared(accuracy: float) -> dict:
    """A run beside a bag of words of some accuracy."""
    return {"results/validation/simple_baselines": {"bag of words": {"accuracy": accuracy, "f1_macro": 0.79}}}


SHOWN = [  # stage, changes of a good run, patterns that its page has, and texts that it lacks
    ("pretrain", {}, ["40.0%", "constant prediction 5.0%", "“file” 70.0%", "folder 0.70", "2.99"], []),
    (
        *("pretrain", {"manifest/settings": {"output": "model"} | CHOICES, "manifest/choices": CHOICES}),
        *([">learning_rate<"], ["sequences_per_step", "choices:"]),  # of a step in tokens
    ),
    ("corpus", {}, [r"duplicates \(kept\)"], ["near duplicates (removed)"]),
    ("corpus", NOTHING_LEFT_OUT, ["Nothing was left out.", "documents read"], ["duplicates (kept)", "Left out:"]),
    ("corpus", IN_PARTS, ["Left out: 24 documents."], []),  # ten documents in a hundred parts; three by a filter
    ("corpus", IN_PARTS | {"manifest/settings/deduplicate": True}, ["Left out: 27 documents."], []),
    ("corpus", {"results/length_counts/training": {"3": 1, "64": 9}}, ["61 to 62", "63 to 64"], []),
    ("corpus", {"results/length_counts/training": {"4": 1, "64": 9}}, ["62 to 63"], ["64 to 65"]),
    ("finetune", {"results/task": "text-classification"}, [r"The model is right on 90\.0% of 400"], []),
    ("finetune", {"results/task": "token-classification"}, [], ["The model is right on 90.0% of 400"]),
    ("finetune", compared(0.8), ["bag of words, a simple model, 80.0%: the model is clearly better than both."], []),
    ("finetune", compared(0.88), ["88.0%: the difference from bag of words may be chance."], []),
    ("finetune", compared(0.985), ["98.5%: the model is no better than bag of words."], []),
    ("finetune", {}, ["1 minus the probability of the reference"], []),
    ("finetune", {"results/validation": EVALUATION | SEVERAL}, [], ["1 minus the probability of the reference"]),
    (
        *("finetune", {"results/data/train/longer_than_max_length": 0.25}),
        *([r"rows of more than --max-length tokens(?s:.*?)25\.0%"], []),  # some tasks read them in windows
    ),
]


@pytest.mark.parametrize(("stage", "changes", "has", "lacks"), SHOWN)
def test_a_page_shows_what_a_run_has_and_nothing_else(stage, changes, has, lacks, tmp_path):
    text, _ = read(write_report(write_stage(tmp_path / "run", stage, changes)))
    assert all(re.search(pattern, text) for pattern in has), has
    assert not any(part in text for part in lacks), lacks
    assert "manifest/choices" not in changes or text.count(">size<") == 1


def test_a_mean_squared_error_has_no_place_on_a_scale_from_0_to_1(tmp_path):
    scores = {"mse": 0.4, "pearson": 0.7}
    changes = {"results/validation": {**EVALUATION, "metrics": scores, "constant_baselines": {"mse": 2, "pearson": 0}}}
    text, _ = read(write_report(write_stage(tmp_path / "run", "finetune", changes | {"analysis/slices": {}})))
    assert text.count('class="interval"') == 1 and "Fine-tuning report: regression" in text
    alone = {"metrics": {"mse": 0.4}, "constant_baselines": {"mse": 2}, "intervals_95": {"mse": [0.3, 0.5]}}
    changes["results/validation"] = EVALUATION | alone | {"metric": "mse"}
    text, _ = read(write_report(write_stage(tmp_path / "other", "finetune", changes | {"analysis/slices": {}})))
    assert "from 0 to 1" not in text and ">0.3 to 0.5<" in text


def test_a_run_in_the_current_folder_has_a_name(tmp_path, monkeypatch):
    folder = write_stage(tmp_path / "run", "pretrain", {"manifest/settings": {"output": "."}})
    monkeypatch.chdir(folder)
    text, _ = read(write_report("."))
    assert ">run, 2026-11-24 10:00 UTC<" in text


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_is_text(hostile, tmp_path):
    rows = [{**PREDICTIONS[2], "input": {"text": hostile}, "reference": hostile, "label": f"{hostile}!"}]
    changes = {
        "analysis/confusion/names": [hostile, "bad"],
        "analysis/suspects": [
            {"row": 1, "reference": hostile, "prediction": "x", "confidence": 0.99, "text": hostile}
        ],
        "results/data/train/balance": {hostile: 100, "bad": 100},
        "manifest/settings": {"output": hostile, "model": hostile},
        "analysis/precision_recall": {hostile: ANALYSIS["precision_recall"]["good"]},
    }
    text, page = read(write_report(write_stage(tmp_path / "run", "finetune", changes, rows)))
    assert [tag for tag, _ in page.elements].count("script") == 2  # the packed rows and the page's own
    assert not [1 for _, attributes in page.elements if any(name.startswith("on") for name in attributes)]
    assert hostile not in text or not re.search(r"[<>\"]", hostile)
    assert html.escape("\u202e") not in text and "\x00" not in text and "\x1b" not in text
    (row,) = packed_rows(text)
    assert row[2] == " ".join(printable(hostile).split())


def test_the_rarest_of_many_labels_has_thresholds_to_try(tmp_path):
    names = [f"label {number}" for number in range(20)]
    curve = {"precision": [0.5, 1.0], "recall": [1.0, 0.0], "threshold": [0.0, 1.0], "best_threshold": 0.25}
    curve |= {"best_f1": 0.6, "average_precision": 0.5}
    changes = {
        "analysis/precision_recall": dict.fromkeys(names, curve),
        "results/validation/labels": dict.fromkeys(names, EVALUATION["labels"]["good"]),
    }
    _, page = read(write_report(write_stage(tmp_path / "run", "finetune", changes)))
    (control,) = [found for _, found in page.elements if found.get("data-curves")]
    assert [one["name"] for one in json.loads(control["data-curves"])] == names


NAN = float("nan")
LABELS = [f"label {number}" for number in range(1000)]
CASES = {
    "numbers that are not finite": {
        "results/validation": {**EVALUATION, "metrics": {"accuracy": NAN}, "intervals_95": {"accuracy": [NAN, NAN]}},
        "log": training_log([NAN, float("inf"), *losses(4, 2, 20)], grad_norm=NAN, gradient_noise=NAN, mfu=NAN),
        "analysis/calibration/bins": [{"from": 0.9, "to": 1.0, "rows": 1, "confidence": NAN, "accuracy": NAN}],
    },
    "no log and no evaluation": {"log": [], "results/validation": None},
    "one class": {
        "analysis/confusion": {"names": ["good"], "counts": [[400]]},
        "analysis/precision_recall": {},
        "results/validation": {**EVALUATION, "labels": {"good": EVALUATION["labels"]["good"]}},
        "results/data/train/balance": {"good": 1000},
    },
    "1,000 classes": {
        "analysis/confusion": {"names": LABELS, "counts": [[1] * 1000] * 1000},
        "results/validation": {**EVALUATION, "labels": dict.fromkeys(LABELS, EVALUATION["labels"]["good"])},
        "results/data/train/balance": dict.fromkeys(LABELS, 2),
    },
}


@pytest.mark.parametrize("case", CASES)
def test_unusual_results_have_a_page(case, tmp_path):
    rows = [{**PREDICTIONS[0], "score": NAN, "error": NAN}, {"score": NAN, "reference": NAN, "error": 0.1}]
    text, page = read(write_report(write_stage(tmp_path / "run", "finetune", CASES[case], rows)))
    assert ("h1", {}) in page.elements and len(text) < 1_500_000
    if "no evaluation" not in case:
        assert [row[2:] for row in packed_rows(text)] == [["-", "-", "null"], ["good", "good", "text number 0"]]


def test_at_most_eight_evaluations_are_columns_of_the_predictions_during_training(tmp_path):
    (sample,) = PRETRAINING["samples"][:1]
    for count in (2, 8, 9, 15, 16, 17):
        samples = [{**sample, "step": step} for step in range(1, count + 1)]
        text, _ = read(write_report(write_stage(tmp_path / str(count), "pretrain", {"samples": samples})))
        table = re.search("<h3>Masked words.*?</thead>", text, re.S)[0]
        steps = [int(step) for step in re.findall(r">step (\d+)<", table)]
        assert steps[0] == 1 and steps[-1] == count and min(count, 5) <= len(steps) <= 8


def test_a_megabyte_in_a_row_takes_little_room(tmp_path):
    rows = [{**PREDICTIONS[0], "input": {"text": "<b>" * 350_000}}]
    text, _ = read(write_report(write_stage(tmp_path / "run", "finetune", predictions=rows)))
    assert packed_rows(text)[0][5].endswith("(1,050,000 characters)")
    assert len(text) < 400_000


def test_predicted_numbers_are_neither_correct_nor_incorrect(tmp_path):
    """All of them have an error, so all rows would be marked."""
    folder = write_stage(tmp_path / "numbers", "finetune", {"results/metric": "pearson"}, NUMBERS)
    numbers, _ = read(write_report(folder))
    labels, _ = read(write_report(write_stage(tmp_path / "labels", "finetune")))
    assert len(packed_rows(numbers)) == len(NUMBERS)
    assert "<h3>Predicted numbers</h3>" in numbers and "<h3>Predicted numbers</h3>" not in labels
    assert '<tr class="wrong">' in labels and '<tr class="wrong">' not in numbers
    assert '<select class="which">' in labels and '<select class="which">' not in numbers


def test_rows_that_do_not_fit_are_left_out_errors_last():
    rows = [{**PREDICTIONS[number % 3], "input": {"text": f"row {number} {number * 7919}"}} for number in range(5000)]
    part = prediction_table("rows", rows, NAMES, 20_000)
    packed = json.loads(gzip.decompress(base64.b64decode(part.packed)))
    assert len(part.packed) <= 20_000 and part.total == 5000
    assert len(packed) < 5000
    errors = [row[1] for row in packed]
    assert errors == sorted(errors, reverse=True)
    assert sum(error > 0 for error in errors) == min(len(packed), sum(row["error"] > 0 for row in rows))
    assert f"{len(packed):,} of 5,000 rows" in part.note


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"score": 2.5, "reference": 3.0}, [3.0, 2.5]),
        ({"labels": ["a", "b"], "scores": {}, "reference": ["a"]}, ["a", "a, b"]),
        ({"choice": 1, "scores": [0.2, 0.8], "reference": 0}, [0, 1, 0.8]),
        ({"answer": "Paris", "score": 0.7, "reference": {"text": ["Paris", "Paris"]}}, ["Paris", "Paris", 0.7]),
        (
            {"tokens": ["He", "sings"], "tags": ["PRON", "NOUN"], "scores": [1.0, 0.6], "reference": ["PRON", "VERB"]},
            ["sings: VERB", "sings: NOUN", 0.6],
        ),
    ],
)
def test_predictions_of_every_task_have_a_row(line, expected):
    row = {**line, "error": 1.0, "row": 4, "input": {"text": "t", "label": line["reference"]}}
    part = prediction_table("rows", [row], NAMES, 10_000)
    (row,) = json.loads(gzip.decompress(base64.b64decode(part.packed)))
    assert row == [4, 1.0, *expected, "t"]
    assert [name for name, _ in part.columns] == ["row", "error", *NAMES[: len(expected)], "input"]


def test_a_question_about_a_long_page_is_shown_with_what_is_around_its_answer():
    page = "before " * 2000 + "it rained in Rome, on Monday" + " after" * 2000
    start = page.index("Rome")
    answer = {"answer": "Rome", "start": start, "end": start + 4, "score": 1.0, "reference": ["Paris"], "error": 1.0}
    rows = [
        {**answer, "input": {"context": page, "ask": "Where did it rain?"}},
        {**answer, "answer": "", "start": 0, "end": 0, "input": {"context": page, "ask": "Where did it rain?"}},
        {**answer, "start": 0, "end": 4, "input": {"context": "Rome is old.", "ask": "What is old?"}},
    ]
    found, none, short = [row[-1] for row in prediction_table("rows", rows, NAMES, 10_000).first]
    assert found.startswith("Where did it rain? · … before before") and "it rained in Rome, on Monday after" in found
    assert found.endswith(" after …") and len(found) < 300
    assert none.startswith("Where did it rain? · before") and none.endswith(f"({len(page) + 21:,} characters)")
    assert short == "What is old? · Rome is old."


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        (["q7", "q8"], [("id", "text"), "q7", "q8"]),
        ([31, 7], [("id", "number"), 31, 7]),
        (["same", "same"], [("row", "number"), 1, 2]),
        (["one", None], [("row", "number"), 1, 2]),
    ],
)
def test_rows_are_named_by_the_ids_of_the_user_if_these_are_different(ids, shown):
    rows = [{"label": "a", "reference": "b", "error": 0.5, "input": {"id": name, "text": "t"}} for name in ids]
    part = prediction_table("rows", rows, NAMES, 10_000)
    assert [part.columns[0], *(row[0] for row in part.first)] == shown
    assert shown[0][0] == "row" or {row[-1] for row in part.first} == {"t"}


def test_suspects_are_named_by_the_ids_of_the_user_and_have_whole_words(tmp_path):
    rows = [
        {**PREDICTIONS[0], "line": number, "input": {"ID": f"q{number}", "text": "lovely " * 90, "label": "good"}}
        for number in range(1, 5)
    ]
    text, _ = read(write_report(write_stage(tmp_path / "run", "finetune", {}, rows)))
    table = text.partition(">Labels that look incorrect<")[2].partition("</table>")[0]
    header, row = re.findall("<tr>(.*?)</tr>", table, re.S)
    assert ">ID<" in header and ">q3<" in row
    assert ">lovely lovely" in row and "lovely… (630 characters)" in row


CHOICES_OF = {"context": "it rained", "label": 1}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"choices": ["so we left", "so it burned", "dry"]}, ("so it burned", "dry")),
        (
            {"ending0": "so we left", "ending1": "so it burned", "ending2": "dry", "note": "dry"},
            ("so it burned", "dry"),
        ),
        ({"choices": "so we left|so it burned|dry"}, (1, 2)),  # the texts are not known
        ({"ending0": "dry", "ending2": "so it burned"}, (1, 2)),  # the predicted one is elsewhere
    ],
)
def test_choices_are_shown_by_their_texts(given, shown):
    row = {"choice": 2, "label": "2", "text": "dry", "scores": [0.1, 0.2, 0.7], "reference": 1, "error": 0.8}
    (found,) = prediction_table("rows", [{**row, "input": CHOICES_OF | given}], NAMES, 10_000).first
    assert (found[2], found[3], found[4]) == (*shown, 0.7)


def test_a_sentence_is_shown_with_its_entities_and_the_differences():
    part = prediction_table("rows", ENTITIES[:2], NAMES, 10_000)
    assert [kind for _, kind in part.columns] == ["number", "number", "entities", "entities", "share"]
    place, error, reference, prediction, confidence = part.first[0]
    assert (place, error, confidence) == (2, 3.0, 0.9)
    assert reference == [
        ["Ann Lee", "PER", 3, True],
        ["met", "", 0, False],
        ["Bo", "PER", 3, True],
        ["in", "", 0, False],
        ["New York", "LOC", 1, True],
        [".", "", 0, False],
    ]
    assert [one[:2] for one in prediction if one[1]] == [["Ann", "PER"], ["Bo", "ORG"], ["York", "LOC"]]
    assert all(wrong == bool(label) for _, label, _, wrong in prediction)
    assert not any(wrong for *_, wrong in part.first[1][2])  # the second sentence is right
    for side in (reference, prediction):
        assert " ".join(text for text, *_ in side) == " ".join(ENTITIES[0]["tokens"])


def test_the_input_of_a_row_does_not_repeat_its_reference_unless_that_is_all():
    rows = [
        {"label": "b", "reference": "a", "error": 1.0, "input": given}
        for given in ({"text": "t", "y": "a"}, {"text": "a"})
    ]
    part = prediction_table("rows", rows, NAMES, 10_000)
    assert [row[-1] for row in part.first] == ["t", "a"]


def test_percentages_keep_two_digits():
    assert [percent(share) for share in (0.4512, 0.00034, 0.0, 1.0)] == ["45.1%", "0.034%", "0.0%", "100.0%"]


def test_metrics_have_names_and_units_that_a_reader_knows():
    accuracy = metric_of("accuracy")
    assert accuracy.title == "Accuracy" and accuracy.interval(0.78, 0.8312) == "78.0% to 83.1%"
    changes = map(accuracy.change, (0.0204, -0.0163, -0.00742, -0.0000742, 0.0))
    assert [*changes] == [f"{points} points" for points in ("+2", "-1.6", "-0.74", "-0.01", "+0")]
    assert metric_of("mse").written(0.51234) == "0.5123" and metric_of("my_score").title == "My score"
