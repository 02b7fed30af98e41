"""Each finding appears where its fault is, and stays away from good runs."""

import json

import pytest
from stage_folders import EVALUATION, evaluation_log, losses, training_log, write_stage

from modeling_mybert import MyBertConfig
from mybert import UserError, cli, doctor
from mybert.reports.findings import closing_lines, find
from mybert.reports.pages.evaluation import score_summary
from mybert.reports.stage_files import read_stage
from mybert.reports.write import write_report
from mybert.tasks.label_kinds import Regression

FALL = losses(8.0, 3.0)
HELD_OUT = evaluation_log(eval_mlm_loss=[5.0, 4.0, 3.02, 3.0, 2.99])


def pretraining_log(values: list[float] = FALL, held_out: list[dict] = HELD_OUT, **fields) -> dict:
    return {"log": [*training_log(values, **fields), *held_out]}


def held_out(*values: float) -> dict:
    return pretraining_log(held_out=evaluation_log(eval_mlm_loss=list(values)))


def next_sentence(low: float, high: float, accuracy: float) -> dict:
    return {"results/nsp_accuracy_interval_95": [low, high], "results/metrics/nsp_accuracy": accuracy}


def budget(planned: float = 5100, accuracy: float = 0.39) -> dict:
    """Plan of a run that has 5,000 tokens a second and an accuracy of 0.4."""
    expected = {"mlm_loss": 3.0, "mlm_loss_error": 0.2, "mlm_accuracy": accuracy, "mlm_accuracy_error": 0.04}
    expected["mlm_loss_highest"] = 6.0
    tokens = {"expected": expected, "expected_for_tokens_seen": expected}
    return {"results/budget": {"planned": {"tokens_per_second": planned, "tokens": 80 * planned}, **tokens}}


def overlap(equal: int, near: int) -> list[dict]:
    return [{"of": "validation", "in": "train", "rows": 400, "equal": equal, "near": near}]


def search(task: str = "retrieval", before: float = 0.3, after: float = 0.2, **intervals: list[float]) -> dict:
    """Results of a retriever: held-out queries of its training, or paired intervals by system of its evaluation."""
    systems = {name: {"ndcg@10": 0.5} for name in ("model", "bm25", "start", "hybrid")}
    differences = {name: {"ndcg@10": {"mean": sum(i) / 2, "interval": i}} for name, i in intervals.items()}
    scores = {"start": {"metrics": {"ndcg@10": before}}, "held_out": {"metrics": {"ndcg@10": after}}}
    return {"results": {"task": task, **(systems | {"differences": differences} if intervals else scores)}}


def giveaway(f1: float) -> list[dict]:
    return [{"label": "good", "word": "sku", "with_label": 990, "rows": 1000, "without": 5, "f1": f1}]


def part(**changes) -> dict:
    return {"results/validation": {**EVALUATION, **changes}}


CONSTANT = {"accuracy": 0.95, "f1_macro": 0.49}  # accuracy may be higher by chance, macro F1 shows the one label
FAULTS = [
    ("pretrain", "plateau", "red", {"results/metrics/mlm_accuracy": 0.055}),
    ("pretrain", "plateau", "amber", {"results/metrics/mlm_accuracy": 0.07}),
    ("pretrain", "next-sentence", "red", next_sentence(0.49, 0.55, 0.52)),
    ("pretrain", "next-sentence", "amber", next_sentence(0.5, 0.6, 0.56)),
    ("pretrain", "evaluation-set", "red", {"results/metrics/mlm_tokens": 90}),
    ("pretrain", "evaluation-set", "amber", {"results/metrics": {}}),
    ("pretrain", "overfitting", "red", held_out(4.0, 3.0, 3.2, 3.4)),
    ("pretrain", "converged", "amber", held_out(6.0, 5.0, 4.2, 3.6)),
    # at the end of a schedule the learning rate is low: little is learned in the last interval of any run
    ("pretrain", "converged", "amber", held_out(6.05, 5.92, 5.79, 5.69, 5.65)),
    ("pretrain", "learning-rate-high", "red", pretraining_log([*losses(8, 4, 20), *(4 + i / 10 for i in range(20))])),
    ("pretrain", "learning-rate-high", "red", pretraining_log([8.0, *[9.0] * 39], ratio=0.1)),
    ("pretrain", "learning-rate-high", "red", pretraining_log([8.0, *losses(30.0, 6.0, 39)])),
    ("pretrain", "learning-rate-low", "red", pretraining_log(losses(8.0, 7.9), ratio=1e-5)),
    ("pretrain", "warm-up", "amber", pretraining_log([8.0, 7.0, 9.9, 9.0, *FALL[4:]], warmup=1)),
    ("pretrain", "warm-up", "amber", pretraining_log(ratio=0.1, warmup=1)),
    ("pretrain", "learning-rate-high", "amber", pretraining_log(ratio=0.06)),
    ("pretrain", "learning-rate-high", "amber", pretraining_log(gradient_noise=1.4)),
    ("pretrain", "learning-rate-low", "amber", pretraining_log(ratio=3e-3, gradient_noise=0.1)),
    ("pretrain", "speed", "amber", pretraining_log(tokens_per_second=[5000] * 20 + [1000] * 20)),
    ("pretrain", "speed", "amber", pretraining_log(mfu=0.003)),
    ("pretrain", "speed", "amber", pretraining_log(idle_share=0.3)),
    ("pretrain", "speed", "amber", pretraining_log(free_cores=1.1, threads=2)),
    ("pretrain", "planned-speed", "amber", budget(planned=10_000)),
    ("pretrain", "forecast", "amber", budget(accuracy=0.5)),
    ("finetune", "overfitting", "amber", {"log": evaluation_log(eval_loss=[0.4, 0.5, 0.7])}),
    (
        "finetune",
        "converged",
        "amber",
        {"log": evaluation_log(eval_loss=[2.6, 1.8, 1.5])},
    ),  # three epochs, the default
    ("finetune", "learning-rate-low", "red", {"log": training_log(losses(0.70, 0.69), rate=1e-8, ratio=1e-7)}),
    ("finetune", "leaks", "red", {"results/data_checks/overlaps": overlap(40, 0)}),
    ("finetune", "leaks", "amber", {"results/data_checks/overlaps": overlap(1, 4)}),
    ("finetune", "giveaway", "red", {"results/data_checks/giveaway_words": giveaway(0.99)}),
    ("finetune", "rare-classes", "red", {"results/data/train/balance": {"good": 1998, "bad": 2}}),
    ("finetune", "rare-classes", "amber", {"results/data/train/balance": {"good": 1988, "bad": 12}}),
    (
        "finetune",
        "rare-classes",
        "amber",
        {"results/data/train/balance": {"good": 9, "bad": 3}, "results/few_labels": True},
    ),
    (
        "finetune",
        "rare-classes",
        "red",
        {"results/data/train/balance": {"good": 9, "bad": 1}, "results/few_labels": True},
    ),
    ("finetune", "unknown-tokens", "red", {"results/data/train/unknown_tokens": 0.2}),
    ("finetune", "learned", "red", part(metrics={"accuracy": 0.49})),
    ("finetune", "learned", "red", part(metrics=CONSTANT, constant_baselines=CONSTANT | {"accuracy": 0.94})),
    ("finetune", "learned", "amber", part(metrics={"accuracy": 0.52}, intervals_95={"accuracy": [0.48, 0.56]})),
    ("finetune", "learned", "amber", part(metrics={"accuracy": 1.0}, constant_baselines={"accuracy": 1.0})),
    ("finetune", "simple-model", "amber", part(simple_baselines={"bag of words": {"accuracy": 0.88}})),
    ("finetune", "simple-model", "amber", part(simple_baselines={"bag of words": {"accuracy": 0.985}})),
    ("finetune", "rows", "red", part(rows=20)),
    ("finetune", "rows", "amber", part(rows=90)),
    ("finetune", "truncation", "amber", part(rows_cut=200)),
    ("finetune", "truncation", "amber", part(rows_cut=200) | {"analysis/slices": {}}),
    ("finetune", "calibration", "amber", {"analysis/calibration/expected_calibration_error": 0.3}),
    ("finetune", "left-out", "amber", part(rows_left_out=7)),
    ("finetune", "beside-start", "amber", search()),
    ("finetune", "beside-start", "amber", search(task="reranking", before=0.2)),
    ("finetune", "held-out-queries", "amber", search() | {"results/pairs": {"held_out_queries": 11}}),
    ("finetune", "documents", "amber", search() | {"results/documents": 8, "results/pairs": {"mined": {"span": 20}}}),
    ("evaluate", "beside-bm25", "amber", search(bm25=[-0.4, -0.1])),
    ("evaluate", "beside-bm25", "amber", search(bm25=[-0.1, 0.2])),
    ("evaluate", "beside-start", "amber", search(bm25=[0.1, 0.2], start=[-0.1, 0.2])),
    ("corpus", "unknown-tokens", "red", {"manifest/statistics/unknown_rate": 0.3}),
    ("corpus", "unknown-tokens", "amber", {"manifest/statistics/unknown_rate": 0.02}),
    ("corpus", "removed-marks", "amber", {"results/removed_marks": 0.02, "results/equal_words": [["में", "मैं"]]}),
    ("corpus", "leaks", "red", {"results/shared_spans/found": 200}),
    ("corpus", "leaks", "amber", {"results/shared_spans/found": 40}),
    ("corpus", "duplicates", "amber", {"manifest/counts/documents_duplicate": 400}),
    ("corpus", "truncation", "amber", {"manifest/counts/tokens_cut": 90_000}),
    ("corpus", "evaluation-set", "amber", {"manifest/counts/examples_validation": 10}),
    ("corpus", "evaluation-set", "amber", {"manifest/counts/examples_validation": 4000}),
    ("corpus", "sentences", "amber", {"manifest/counts/documents_of_one_sentence": 800}),
    ("corpus", "skipped", "amber", {"manifest/skipped": {"not JSON": 500}}),
]


@pytest.mark.parametrize(
    ("stage", "name", "level", "changes"), FAULTS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_fault_is_found(stage, name, level, changes, tmp_path):
    found = {finding.name: finding for finding in find(read_stage(write_stage(tmp_path / "faulty", stage, changes)))}
    assert found[name].level == level, found[name]
    assert found[name].remedy and found[name].evidence


@pytest.mark.parametrize(
    ("stage", "results", "levels"),
    [
        ("finetune", search(after=0.4), {"beside-start": "green"}),
        ("evaluate", search(bm25=[0.1, 0.2], start=[0.1, 0.3]), {"beside-bm25": "green", "beside-start": "green"}),
        ("evaluate", search(bm25=[0.1, 0.2], start=[0, 0]), {"beside-bm25": "green"}),  # an untrained model
    ],
)
def test_a_better_retriever_passes(stage, results, levels, tmp_path):
    found = find(read_stage(write_stage(tmp_path / "good", stage, results)))
    assert {finding.name: finding.level for finding in found if finding.name.startswith("beside")} == levels


FALLING = evaluation_log(eval_loss=[2.6, 1.8, 1.5])


@pytest.mark.parametrize(
    ("name", "changes", "appears"),
    [
        ("converged", {"log": [*training_log(losses(2.0, 0.5)), *FALLING]}, True),
        ("converged", {"log": [*training_log(losses(2.0, 0.001, 100)), *FALLING]}, False),
        ("converged", {"log": [entry | {"eval_accuracy": 0.99} for entry in FALLING]}, True),
        ("converged", {"log": [entry | {"eval_accuracy": 1.0} for entry in FALLING]}, False),
        ("speed", {"log": training_log(FALL, free_cores=1.1, threads=2)}, True),
        ("speed", {"log": training_log(FALL, free_cores=1.1, threads=2, seconds=9.0)}, False),
    ],
)
def test_more_steps_are_not_advised_where_nothing_is_left_to_learn_nor_speed_judged_in_seconds(
    name, changes, appears, tmp_path
):
    found = doctor(write_stage(tmp_path / "run", "finetune", changes))
    assert (name in [finding.name for finding in found if finding.level == "amber"]) == appears


def test_a_run_as_planned_passes_and_one_without_a_plan_has_no_such_check(tmp_path):
    planned = {"planned-speed", "forecast"}
    for name, changes, expected in (("a", budget(), planned), ("b", {}, set())):
        found = {finding.name: finding.level for finding in doctor(write_stage(tmp_path / name, "pretrain", changes))}
        assert planned & found.keys() == expected and {found[name] for name in expected} <= {"green"}


@pytest.mark.parametrize(
    ("width", "mfu", "fields", "arguments", "remedy"),
    [
        (128, 0.02, {}, {}, "Use larger batches"),
        (128, 0.07, {}, {}, None),
        (768, 0.1, {}, {}, "Use larger batches"),
        (768, 0.1, {}, {"bf16": True}, None),
        (128, 0.02, {"optimizer_share": 0.9}, {}, "The optimizer takes 90% of the time"),
        (128, 0.02, {"free_cores": 0.5, "threads": 2}, {}, "End the other programs"),
        (128, 0.07, {"free_cores": [1.2] * 9 + [None] * 31, "threads": 2}, {}, None),
    ],
)
def test_a_run_far_below_the_speed_of_its_width_is_found_with_the_reason(
    width, mfu, fields, arguments, remedy, tmp_path
):
    changes = {"results/training_arguments": arguments} | pretraining_log(mfu=mfu, **fields)
    folder = write_stage(tmp_path / "run", "pretrain", changes)
    (folder / "config.json").write_text(json.dumps({"hidden_size": width}), encoding="utf-8")
    (found,) = (finding for finding in doctor(folder) if finding.name == "speed")
    assert found.level == ("amber" if remedy else "green") and (remedy or "") in found.remedy, found


def test_lower_scores_of_truncated_rows_are_an_observation_and_not_a_cause(tmp_path):
    def scored(rows: int) -> dict:
        truncated = [{"value": "no", "rows": 200, "score": 0.9}, {"value": "yes", "rows": rows, "score": 0.5}]
        return {"analysis/slices": {"truncated": truncated}}

    for name, more, title in (
        ("a", scored(200), "Truncated rows score lower"),
        ("b", {"analysis/slices": {}}, "Many rows are"),
        ("c", scored(1), "Many rows are"),  # one row is no evidence
    ):
        found = doctor(write_stage(tmp_path / name, "finetune", part(rows_cut=200) | more))
        assert next(finding for finding in found if finding.name == "truncation").title.startswith(title)


def test_a_word_that_all_of_a_few_rows_have_does_not_give_their_label_away(tmp_path):
    for rows, level in ((3, "green"), (10, "red")):
        words = [one | {"with_label": rows, "rows": rows, "without": 0} for one in giveaway(1.0)]
        folder = write_stage(tmp_path / str(rows), "finetune", {"results/data_checks/giveaway_words": words})
        assert {finding.name: finding.level for finding in doctor(folder)}["giveaway"] == level


@pytest.mark.parametrize("metric", ["accuracy", "pearson"])
def test_rows_with_one_answer_do_not_say_that_nothing_was_learned(metric, tmp_path):
    constants = Regression(MyBertConfig(num_labels=1)).constants([0.1] * 3)
    assert constants == [{"score": 0.1}] and sum([0.1] * 3) / 3 != 0.1, "rounding"
    scores = {"accuracy": 1.0} if metric == "accuracy" else {"pearson": 0.0, "mse": 0.0}
    changes = part(metric=metric, metrics=scores, constant_baselines=scores, intervals_95={})
    folder = write_stage(tmp_path / "run", "finetune", changes | {"results/metric": metric})
    (found,) = (one for one in find(read_stage(folder)) if one.name == "learned")
    assert found.level == "amber" and found.title.startswith("All rows have the same answer")
    assert "All rows have the same answer" in score_summary(read_stage(folder), "", changes["results/validation"])


def test_a_warm_up_that_ends_before_the_first_log_is_not_called_too_short(tmp_path):
    changes = pretraining_log(ratio=0.06, warmup=1)  # the first logged rate is the highest
    for number, (warmup, level) in enumerate([(0.03, "green"), (20, "green"), (4, "amber"), (0, "amber")]):
        recorded = {"manifest/choices": {"warmup_steps": warmup}}
        folder = write_stage(tmp_path / str(number), "pretrain", changes | recorded)
        found = {finding.name: finding for finding in doctor(folder)}["warm-up"]
        assert found.level == level and f"in the first {warmup if warmup < 1 else warmup / 400:.1%}" in found.evidence


def test_gradient_noise_is_evidence_for_the_learning_rate(tmp_path):
    found = {finding.name: finding for finding in doctor(write_stage(tmp_path / "good", "pretrain"))}
    for name in ("learning-rate-high", "learning-rate-low"):
        noise = "80% of a gradient's squared norm is noise, due to the choice of the batch; in a batch 4 times larger "
        assert noise in found[name].evidence
    clear = write_stage(tmp_path / "clear", "pretrain", pretraining_log(gradient_noise=0.08))
    (found,) = [finding for finding in doctor(clear) if "is noise, due to" in finding.evidence][:1]
    assert " 8% of a gradient's squared norm is noise" in found.evidence
    assert "in a batch 11.5 times smaller (the gradient noise scale), half of it would be." in found.evidence
    noisy = write_stage(tmp_path / "noisy", "pretrain", pretraining_log(ratio=0.06, gradient_noise=0.97))
    found = {finding.name: finding for finding in doctor(noisy)}
    assert "--gradient-accumulation-steps" in found["learning-rate-high"].remedy
    # the same small steps are not too small where gradients are noisy
    small = write_stage(tmp_path / "small", "pretrain", pretraining_log(ratio=3e-3, gradient_noise=0.8))
    assert {finding.name: finding.level for finding in doctor(small)}["learning-rate-low"] == "green"


RISING = [*losses(8, 4, 20), *(4 + i / 10 for i in range(20))]
PLATEAU = {"results/metrics/mlm_accuracy": 0.055}


@pytest.mark.parametrize(
    ("stage", "changes", "name"),
    [
        ("pretrain", pretraining_log(RISING, ratio=1e-5), "learning-rate-high"),  # a loss that rises, by small steps
        ("pretrain", pretraining_log(losses(8.0, 7.9), ratio=1e-5, gradient_noise=1.4), "learning-rate-low"),
        ("pretrain", pretraining_log(ratio=0.1, warmup=1), "learning-rate-high"),
        ("pretrain", pretraining_log([8.0, 7.0, 9.9, 9.0, *FALL[4:]], warmup=1), "warm-up"),
        ("pretrain", pretraining_log(RISING) | PLATEAU, "learning-rate-high"),
        ("pretrain", pretraining_log(losses(8.0, 7.9), ratio=1e-5) | PLATEAU, "learning-rate-low"),
        ("pretrain", PLATEAU, "plateau"),
        (
            "finetune",
            part(metrics={"accuracy": 0.49}) | {"log": training_log(losses(0.70, 0.69), rate=1e-8, ratio=1e-7)},
            "learning-rate-low",
        ),
        ("finetune", part(metrics={"accuracy": 0.49}), "learned"),
    ],
)
def test_one_finding_at_most_advises_another_learning_rate(stage, changes, name, tmp_path):
    found = find(read_stage(write_stage(tmp_path / "run", stage, changes)))
    assert [finding.name for finding in found if "--learning-rate" in finding.remedy] == [name]


@pytest.mark.parametrize(
    ("stage", "settings", "advised"),
    [
        ("pretrain", {"initial_weights": "random"}, ["--initial-weights text"]),
        ("pretrain", {"initial_weights": "text"}, []),
        ("pretrain", {"init_from": "bert"}, []),
        ("adapt", {}, []),
        ("distill", {"size": None}, []),
        ("distill", {"size": "mini"}, ["--initializer-range", "--phase2-corpus"]),
    ],
)
def test_a_plateau_has_only_remedies_that_the_run_can_use(stage, settings, advised, tmp_path):
    changes = PLATEAU | {"manifest/stage": stage, "manifest/settings": settings}
    folder = write_stage(tmp_path / "run", "pretrain", changes)
    (plateau,) = [finding for finding in find(read_stage(folder)) if finding.name == "plateau"]
    options = ("--initial-weights text", "--initializer-range", "--phase2-corpus")
    assert [option for option in options if option in plateau.remedy] == advised


@pytest.mark.parametrize(
    ("task", "metric", "options"),
    [
        ("text-classification", "accuracy", ["--class-weights", "--long-texts", "--calibrate"]),
        ("text-classification", "f1_micro", ["--long-texts"]),
        ("token-classification", "f1", ["--class-weights", "--calibrate"]),
        ("question-answering", "f1", []),
        ("multiple-choice", "accuracy", ["--calibrate"]),
    ],
)
def test_remedies_are_options_that_the_task_accepts(task, metric, options, tmp_path):
    changes = part(metrics={metric: 0.9}, constant_baselines={metric: 0.1}, rows_cut=200)
    changes |= {"results/task": task, "results/metric": metric, "results/data/train/balance": {"good": 99, "bad": 2}}
    changes["analysis/calibration/expected_calibration_error"] = 0.3
    if task == "question-answering":  # has no probabilities
        changes = {**changes, "analysis/calibration": None}
        del changes["analysis/calibration/expected_calibration_error"]
    remedies = " ".join(finding.remedy for finding in doctor(write_stage(tmp_path / "run", "finetune", changes)))
    choices = ("--class-weights", "--long-texts", "--calibrate")
    assert [option for option in choices if option in remedies] == options


@pytest.mark.parametrize(
    ("metric", "simple", "title"),
    [
        ("accuracy", 0.8, "A simple model (bag of words) has a better score"),
        ("accuracy", 0.7, "A simple model (bag of words) is as good"),
        ("mse", 0.6, "A simple model (bag of words) has a better score"),
    ],
)
def test_a_simple_model_that_is_better_is_called_so(metric, simple, title, tmp_path):
    scores = {"metrics": {metric: 0.7}, "simple_baselines": {"bag of words": {metric: simple}}}
    changes = part(**scores, constant_baselines={metric: 0.5}, intervals_95={}) | {"results/metric": metric}
    folder = write_stage(tmp_path / "run", "finetune", changes)
    (found,) = (finding for finding in doctor(folder) if finding.name == "simple-model")
    assert found.title == f"{title} (validation)"


def test_remedies_for_few_labels_are_no_options_that_end_their_training(tmp_path):
    changes = part(metrics={"accuracy": 0.49}, simple_baselines={"bag of words": {"accuracy": 0.9}})
    changes |= {"results/few_labels": True, "analysis/calibration/expected_calibration_error": 0.3}
    found = {finding.name: finding for finding in doctor(write_stage(tmp_path / "run", "finetune", changes))}
    for name in ("learned", "simple-model"):
        assert "abel more rows (`mybert suggest` chooses them)" in found[name].remedy
    remedies = [found[name].remedy for name in ("learned", "simple-model", "calibration")]
    assert not [one for one in remedies for option in ("epochs", "--learning-rate", "--calibrate") if option in one]


@pytest.mark.parametrize(
    ("metric", "labels", "has_finding"),
    [("accuracy", ["1 to 2", "from A to B"], True), ("pearson", ["1 to 2", "2 to 3"], False)],
)
def test_names_of_labels_that_look_like_ranges_are_labels(metric, labels, has_finding, tmp_path):
    changes = {"results/metric": metric, "results/data/train/balance": dict.fromkeys(labels, 2)}
    changes |= part(metrics={metric: 0.9}, constant_baselines={metric: 0.1})
    found = doctor(write_stage(tmp_path / "run", "finetune", changes))
    assert ("rare-classes" in [finding.name for finding in found]) == has_finding


def test_a_printed_option_is_on_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mybert.reports.doctor.line_width", lambda stream: 18)
    cli.main(["doctor", str(write_stage(tmp_path / "run", "pretrain", PLATEAU))])
    shown = capsys.readouterr().out
    assert "--learning-rate" in shown and "--initial-weights" in shown


@pytest.mark.parametrize(
    ("held_out", "level"),
    [([0.5, 0.1, 0.0], "green"), ([0.5, 0.1, 0.0, 0.0, 0.0], "green"), ([0.0, 0.1, 0.2], "amber")],
)
def test_losses_of_zero_can_be_judged(held_out, level, tmp_path):
    log = [*training_log([0.0] * 40, rate=1e-8, ratio=1e-7), *evaluation_log(eval_loss=held_out)]
    found = {finding.name: finding for finding in doctor(write_stage(tmp_path / "run", "finetune", {"log": log}))}
    assert found["overfitting"].level == level and "nan" not in found["overfitting"].evidence


def test_the_last_lines_of_a_command_name_what_the_report_warns_of(good_run, tmp_path):
    folder = write_stage(tmp_path / "plateau", "pretrain", PLATEAU)
    assert closing_lines(folder) == f"the output is in {folder}"
    lines = {}
    for run in (folder, good_run):
        report = write_report(run)
        first, second, *lines[run] = closing_lines(run).splitlines()
        assert (first, str(report) in second) == (f"the output is in {run}", True)
    summary, *titles = lines[folder]
    assert f"`mybert doctor {folder}`" in summary
    marked = {"red": "Problem", "amber": "Warning"}
    found = [finding for finding in doctor(folder) if finding.level in marked]
    assert titles == [f"  {marked[finding.level]}: {finding.title}" for finding in found] != []
    assert lines[good_run] == []
    spaced = folder.rename(tmp_path / "a run")
    assert f'`mybert doctor "{spaced}"`' in closing_lines(spaced)


def test_files_that_cannot_be_judged_do_not_fail_a_command_that_has_ended(tmp_path):
    folder = write_stage(tmp_path / "plateau", "pretrain", PLATEAU)
    report = write_report(folder)
    (folder / "results.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=r"results\.json"):
        doctor(folder)
    assert closing_lines(folder) == f"the output is in {folder}\nopen {report} in a browser to see the results"


def test_a_good_run_has_no_problem_and_no_warning(good_run):
    assert {finding.level for finding in find(read_stage(good_run))} == {"green"}


def test_the_gravest_findings_come_first_and_are_printed(tmp_path, capsys):
    changes = {"results/metrics/mlm_accuracy": 0.05, "results/nsp_accuracy_interval_95": [0.5, 0.6]}
    folder = write_stage(tmp_path / "run", "pretrain", changes)
    levels = [finding.level for finding in doctor(folder)]
    assert levels[:2] == ["red", "amber"] and set(levels[2:]) == {"green"}
    assert cli.main(["doctor", str(folder), "--report"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("Problem: ") < shown.index("Warning: ") < shown.index("Passed: ")
    assert (folder / "report.html").is_file()


def test_a_run_that_has_just_begun_has_no_findings(tmp_path):
    folder = write_stage(tmp_path / "run", "pretrain", {"results": {}, "log": [], "samples": []})
    assert find(read_stage(folder)) == []


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_folder_without_a_readable_manifest_is_refused(content, tmp_path):
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UserError, match=r"manifest\.json"):
        read_stage(tmp_path)


@pytest.mark.parametrize(
    ("stage", "results"),
    [
        ("corpus", {}),
        ("evaluate", {"metrics": {}}),
        ("evaluate", {"metrics": {"accuracy": "high"}, "rows": 3}),
        ("finetune", {"validation": {"metrics": {"accuracy": 1.0}}}),
    ],
)
def test_a_folder_whose_files_lack_an_entry_is_refused_in_one_line(stage, results, tmp_path, capsys):
    (tmp_path / "manifest.json").write_text(json.dumps({"stage": stage}))
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert cli.main(["doctor", str(tmp_path), "--report"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and f"repeat `mybert {stage}`" in message
    assert not (tmp_path / "report.html").exists()


def test_few_pairs_above_chance_are_not_called_chance_and_no_remedy_is_an_option_that_is_refused(tmp_path):
    changes = next_sentence(0.44, 1.0, 1.0) | {"results/metrics/nsp_pairs": 3} | held_out(4.0, 3.0, 3.4)
    found = {finding.name: finding for finding in doctor(write_stage(tmp_path / "run", "pretrain", changes))}
    assert found["next-sentence"].level == "amber" and "too few pairs" in found["next-sentence"].title
    assert "--load-best-model-at-end" not in found["overfitting"].remedy
    found = doctor(write_stage(tmp_path / "tuned", "finetune", {"log": evaluation_log(eval_loss=[0.4, 0.3, 0.7])}))
    assert {finding.name: finding for finding in found}["overfitting"].level in ("amber", "red")


def test_more_steps_are_not_advised_if_the_held_out_loss_of_next_sentences_rises(tmp_path):
    for name, values in (("flat", [0.70, 0.69, 0.69]), ("rising", [0.72, 0.77, 1.09])):
        log = pretraining_log(held_out=evaluation_log(eval_mlm_loss=[3.0, 2.0, 1.0], eval_nsp_loss=values))
        found = doctor(write_stage(tmp_path / name, "pretrain", next_sentence(0.49, 0.55, 0.52) | log))
        remedy = next(finding.remedy for finding in found if finding.name == "next-sentence")
        assert remedy.startswith("Train for more steps") == (name == "flat")


def test_an_evaluation_that_has_not_finished_has_no_findings(tmp_path):
    (tmp_path / "manifest.json").write_text('{"stage": "evaluate"}')
    assert doctor(tmp_path) == []


@pytest.mark.parametrize("content", [b"\xff\xfe\xff\n", b"[" * 100_000 + b"\n", b'{"step": 1,\n{}\n'])
def test_a_damaged_log_is_refused_with_its_line(content, tmp_path):
    folder = write_stage(tmp_path / "run", "pretrain")
    (folder / "log.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=r"log\.jsonl, line 1"):
        doctor(folder)


def test_the_half_written_last_line_of_a_running_stage_is_left_out(tmp_path):
    folder = write_stage(tmp_path / "run", "pretrain")
    expected = doctor(folder)
    with (folder / "log.jsonl").open("a") as file:
        file.write('{"step": 410, "lo')
    assert doctor(folder) == expected
