"""Checks of evaluated rows: something learned, enough rows, truncation, calibration."""

from collections.abc import Iterator, Mapping
from typing import Any

from mybert.common.metrics import interval_of, metric_of
from mybert.common.quantities import counted
from mybert.reports.checks.training import advises_rate
from mybert.reports.findings import Finding, judged, level_of
from mybert.reports.stage_files import StageFiles

FEW_RED, _FEW_AMBER = 30, 200
_CUT_AMBER, _CUT_LOWER = 0.05, 0.05
_MISCALIBRATED = 0.1
_TRAINED_RED = 0.05  # of the evaluated rows
_MORE_LABELS = "label more rows (`mybert suggest` chooses them)"  # for few labels: other options end that training


def nothing_learned(files: StageFiles) -> Iterator[Finding]:
    for part, results in files.parts.items():
        metric = main_metric(files, results)
        if metric == "accuracy" and "f1_macro" in results["metrics"]:
            metric = "f1_macro"  # it also rises where only rare labels are learned
        value, constant = results["metrics"].get(metric), results["constant_baselines"].get(metric)
        if value is None or constant is None:
            continue
        named = metric_of(metric)
        good, sure = better_than(results, metric, constant)
        evidence = f"{named.title}: {named.written(value)}"
        evidence += f"; the best constant prediction has {named.written(constant)}."
        if has_one_answer(results, metric):
            remedy = "Evaluate rows with different labels."
            yield Finding("learned", "amber", f"All rows have the same answer{of_part(part)}", evidence, remedy)
            continue
        rate = "" if advises_rate(files) else ", a higher --learning-rate for small models"
        remedy = f"Use more rows or epochs{rate}, or a better pretrained model."
        if files.results.get("few_labels"):
            remedy = f"{_MORE_LABELS.capitalize()}, or use a better pretrained model."
        level = "red" if not good else "green" if sure else "amber"
        bad = "The model may be no better than a constant prediction" if good else "The model has learned nothing"
        titles = f"The model is better than a constant prediction{of_part(part)}", f"{bad}{of_part(part)}"
        yield judged("learned", level, titles, evidence, remedy)


def simple_model(files: StageFiles) -> Iterator[Finding]:
    for part, results in files.parts.items():
        metric = main_metric(files, results)
        for name, scores in results["simple_baselines"].items():
            if has_one_answer(results, metric) or results["metrics"].get(metric) is None or scores.get(metric) is None:
                continue
            named = metric_of(metric)
            good, sure = better_than(results, metric, scores[metric])
            evidence = (
                f"{named.title}: {named.written(results['metrics'][metric])}; {name}, trained on the same rows, "
            )
            evidence += f"has {named.written(scores[metric])}."
            beaten = named.beats(scores[metric], results["metrics"][metric])
            bad = (
                f"The model may be no better than a simple one ({name})"
                if good
                else f"A simple model ({name}) {'has a better score' if beaten else 'is as good'}"
            )
            titles = f"The model is better than a simple one ({name}){of_part(part)}", f"{bad}{of_part(part)}"
            remedy = "Use the simple model, or more rows or epochs, a larger --max-length, a better pretrained model."
            if files.results.get("few_labels"):
                remedy = f"Use the simple model, {_MORE_LABELS}, or use a better pretrained model."
            yield judged("simple-model", "green" if sure else "amber", titles, evidence, remedy)


def better_than(results: Mapping[str, Any], metric: str, other: float) -> tuple[bool, bool]:
    """Whether a score is better than another one, and its whole interval is."""
    named, value = metric_of(metric), results["metrics"][metric]
    worst = (interval_of(results, metric) or (value, value))[1 if named.is_loss else 0]
    return named.beats(value, other), named.beats(worst, other)


def has_one_answer(results: Mapping[str, Any], metric: str) -> bool:
    """Whether all rows have the same reference, so that no model is better than a constant prediction."""
    constants = results["constant_baselines"]
    return (metric_of(metric).is_share and constants.get(metric) == 1) or constants.get("mse") == 0


def tiny_validation_set(files: StageFiles) -> Iterator[Finding]:
    parts = files.parts
    if not parts and files.stage == "finetune" and files.results and "held_out" not in files.results:
        remedy = "Give --validation, or leave --validation-share at its default of 0.1."
        yield Finding("rows", "amber", "There are no validation rows", "The model was not evaluated.", remedy)
    for part, results in parts.items():
        rows, metric = results["rows"], main_metric(files, results)
        named, interval = metric_of(metric), interval_of(results, metric)
        where = of_part(part)
        evidence = f"{counted(rows, 'row')}{where}."
        if interval:
            evidence += f" {named.title}: 95% interval {named.interval(*interval)}."
        level = "red" if rows < FEW_RED else "amber" if rows < _FEW_AMBER else "green"
        titles = f"There are enough rows to trust the scores{where}", f"The evaluation set is tiny{where}"
        remedy = "Label more rows for evaluation; several hundred give intervals of a few percent."
        yield judged("rows", level, titles, evidence, remedy)


def truncation(files: StageFiles) -> Iterator[Finding]:
    for part, results in files.parts.items():
        rows, cut = results["rows"], results.get("rows_cut", 0)
        evidence = f"{cut:,} of {rows:,} rows were truncated to --max-length{of_part(part)}."
        slices = {row["value"]: row for row in files.analysis(part).get("slices", {}).get("truncated", [])}
        lower = 0.0
        named = metric_of(main_metric(files, results))
        if all(slices.get(value, {}).get("rows", 0) >= FEW_RED for value in ("yes", "no")) and not named.is_loss:
            score, others = slices["yes"]["score"], slices["no"]["score"]
            lower = others - score
            evidence += f" {named.title}: {named.written(score)}, of the others {named.written(others)}."
        bad = "Many rows are truncated"
        if lower > _CUT_LOWER:
            bad = "Truncated rows score lower"
            evidence += " They may differ in other ways too, such as their labels."
        titles = f"Few rows are truncated{of_part(part)}", f"{bad}{of_part(part)}"
        remedy = "Raise --max-length."
        if files.task == "text-classification":
            remedy = "Raise --max-length, or read long texts in windows (--long-texts window)."
        yield judged("truncation", level_of(cut / max(rows, 1), _CUT_AMBER), titles, evidence, remedy)


def poor_calibration(files: StageFiles) -> Iterator[Finding]:
    for part in files.parts:
        calibration = files.analysis(part).get("calibration")
        if not calibration:
            continue
        error = calibration["expected_calibration_error"]
        evidence = (
            f"Mean confidence {calibration['confidence']:.1%}, accuracy {calibration['accuracy']:.1%}, expected "
            f"calibration error {error:.1%}{of_part(part)}."
        )
        gap = calibration["confidence"] - calibration["accuracy"]
        bad = f"The model is {'over' if gap > 0 else 'under'}confident"
        if abs(gap) < error / 2:  # too high for some predictions, too low for others
            bad = "Probabilities do not match accuracy"
        titles = f"Probabilities match accuracy{of_part(part)}", f"{bad}{of_part(part)}"
        remedy = "Fine-tune with --calibrate, which scales the probabilities on the validation rows."
        if files.has_several_labels or files.results.get("few_labels"):
            remedy = "Use the order of the probabilities and not their values."
        yield judged("calibration", level_of(error, _MISCALIBRATED), titles, evidence, remedy)


def rows_left_out(files: StageFiles) -> Iterator[Finding]:
    for part, results in files.parts.items():
        left = results.get("rows_left_out", 0)
        if left:
            evidence = f"{counted(left, 'row')} could not be used{of_part(part)}; evaluated: {results['rows']:,}."
            remedy = "Correct these rows; --errors strict names them."
            yield Finding("left-out", "amber", f"Rows were left out{of_part(part)}", evidence, remedy)


def trained_on(files: StageFiles) -> Iterator[Finding]:
    overlap = files.results.get("training_rows")
    if not overlap:
        return
    equal, rows = overlap["equal"], overlap["rows"]
    evidence = "The evaluated file is the training file of the model. " if overlap["same_file"] else ""
    if equal is not None:
        evidence += f"{equal:,} of {rows:,} evaluated rows are training rows."
    elif not evidence:
        return  # the rows of the training are not recorded
    level = "red" if overlap["same_file"] else level_of((equal or 0) / max(rows, 1), 0, _TRAINED_RED)
    titles = "No evaluated row is a training row", "The model was trained on evaluated rows"
    remedy = "Evaluate rows that the model has not seen; these scores are too high."
    yield judged("trained-on", level, titles, evidence.strip(), remedy)


def main_metric(files: StageFiles, results: Mapping[str, Any]) -> str:
    """The metric that the task is judged by: of a fine-tuning its choice, else the first one."""
    names: list[str] = list(results["metrics"])
    chosen: str = files.results.get("metric") or results.get("metric") or ""
    return chosen if chosen in names else names[0]


def of_part(part: str) -> str:
    return f" ({part})" if part else ""


CHECKS = (nothing_learned, simple_model, tiny_validation_set, truncation, poor_calibration, rows_left_out, trained_on)
