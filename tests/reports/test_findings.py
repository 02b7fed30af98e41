"""Each finding appears where its fault is, and stays away from good runs."""

import pytest
from stage_folders import EVALUATION, evaluation_log, losses, training_log, write_stage

from modeling_mybert import MyBertConfig
from mybert import cli, doctor
from mybert.reports.findings import closing_lines, findings_of
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
    first = "bm25" if task == "reranking" else "start"
    scores = {first: {"metrics": {"ndcg@10": before}}, "held_out": {"metrics": {"ndcg@10": after}}}
    return {"results": {"task": task, **(systems | {"differences": differences} if intervals else scores)}}


def giveaway(f1: float, with_label: int = 990, rows: int = 1000, without: int = 5) -> dict:
    word = {"label": "good", "word": "sku", "with_label": with_label, "rows": rows, "without": without, "f1": f1}
    return {"results/data_checks/giveaway_words": [word]}


def truncated(rows: int) -> dict:
    """Many truncated rows, of which some have a lower score."""
    parts = [{"value": "no", "rows": 200, "score": 0.9}, {"value": "yes", "rows": rows, "score": 0.5}]
    return part(rows_cut=200) | {"analysis/slices": {"truncated": parts}}


def slow(width: int, mfu: float, arguments: dict | None = None, **fields) -> dict:
    """A run of a width that reaches a share of the peak speed."""
    changes = {"results/training_arguments": arguments or {}, "config": {"hidden_size": width}}
    return changes | pretraining_log(mfu=mfu, **fields)


def early_warm_up(steps: float) -> dict:
    """The first logged rate is the highest."""
    return pretraining_log(ratio=0.06, warmup=1) | {"manifest/choices": {"warmup_steps": steps}}


def simple(metric: str, score: float) -> dict:
    """A model with a score of 0.7 beside a simple model."""
    scores = {"metrics": {metric: 0.7}, "simple_baselines": {"bag of words": {metric: score}}}
    return part(**scores, constant_baselines={metric: 0.5}, intervals_95={}) | {"results/metric": metric}


def ranges(metric: str, *labels: str) -> dict:
    balance = {"results/metric": metric, "results/data/train/balance": dict.fromkeys(labels, 2)}
    return balance | part(metrics={metric: 0.9}, constant_baselines={metric: 0.1})


def flat(*held_out: float) -> dict:
    return {"log": [*training_log([0.0] * 40, rate=1e-8, ratio=1e-7), *evaluation_log(eval_loss=list(held_out))]}


def pairs(*losses: float) -> dict:
    """Next sentences near chance, with these held-out losses."""
    held = evaluation_log(eval_mlm_loss=[3.0, 2.0, 1.0], eval_nsp_loss=list(losses))
    return next_sentence(0.49, 0.55, 0.52) | pretraining_log(held_out=held)


def part(**changes) -> dict:
    return {"results/validation": {**EVALUATION, **changes}}


RISING = [*losses(8, 4, 20), *(4 + i / 10 for i in range(20))]
BALANCE = "results/data/train/balance"
PLATEAU = {"results/metrics/mlm_accuracy": 0.055}
CONSTANT = {"accuracy": 0.95, "f1_macro": 0.49}  # accuracy may be higher by chance, macro F1 shows the one label
FEW_QUERIES = {"results/pairs": {"held_out_queries": 11}}
FAULTS = [
    ("pretrain", "plateau", "amber", {"results/metrics/mlm_accuracy": 0.07}),
    ("pretrain", "next-sentence", "red", next_sentence(0.49, 0.55, 0.52)),
    ("pretrain", "next-sentence", "amber", next_sentence(0.5, 0.6, 0.56)),
    ("pretrain", "evaluation-set", "amber", {"results/metrics": {}}),
    ("pretrain", "overfitting", "red", held_out(4.0, 3.0, 3.2, 3.4)),
    ("pretrain", "converged", "amber", held_out(6.0, 5.0, 4.2, 3.6)),
    # at the end of a schedule the learning rate is low: little is learned in the last interval of any run
    ("pretrain", "converged", "amber", held_out(6.05, 5.92, 5.79, 5.69, 5.65)),
    ("pretrain", "learning-rate-high", "red", pretraining_log(RISING)),
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
    # three epochs, the default
    ("finetune", "converged", "amber", {"log": evaluation_log(eval_loss=[2.6, 1.8, 1.5])}),
    ("finetune", "learning-rate-low", "red", {"log": training_log(losses(0.70, 0.69), rate=1e-8, ratio=1e-7)}),
    ("finetune", "leaks", "red", {"results/data_checks/overlaps": overlap(40, 0)}),
    ("finetune", "leaks", "amber", {"results/data_checks/overlaps": overlap(1, 4)}),
    ("finetune", "giveaway", "red", giveaway(0.99)),
    ("finetune", "giveaway", "red", giveaway(1.0, 10, 10, 0)),
    ("finetune", "rare-classes", "red", {BALANCE: {"good": 1998, "bad": 2}}),
    ("finetune", "rare-classes", "amber", {BALANCE: {"good": 1988, "bad": 12}}),
    ("finetune", "rare-classes", "amber", {BALANCE: {"good": 9, "bad": 3}, "results/few_labels": True}),
    ("finetune", "rare-classes", "red", {BALANCE: {"good": 9, "bad": 1}, "results/few_labels": True}),
    ("finetune", "unknown-tokens", "red", {"results/data/train/unknown_tokens": 0.2}),
    ("finetune", "learned", "red", part(metrics={"accuracy": 0.49})),
    ("finetune", "learned", "red", part(metrics=CONSTANT, constant_baselines=CONSTANT | {"accuracy": 0.94})),
    ("finetune", "learned", "amber", part(metrics={"accuracy": 0.52}, intervals_95={"accuracy": [0.48, 0.56]})),
    ("finetune", "learned", "amber", part(metrics={"accuracy": 1.0}, constant_baselines={"accuracy": 1.0})),
    ("finetune", "simple-model", "amber", part(simple_baselines={"bag of words": {"accuracy": 0.88}})),
    ("finetune", "rows", "red", part(rows=20)),
    ("finetune", "rows", "amber", part(rows=90)),
    ("finetune", "calibration", "amber", {"analysis/calibration/expected_calibration_error": 0.3}),
    ("finetune", "left-out", "amber", part(rows_left_out=7)),
    ("finetune", "beside-start", "amber", search()),
    ("finetune", "beside-start", "amber", search(task="reranking", before=0.2)),
    ("finetune", "beside-start", "amber", search(task="reranking", before=0.2, after=0.2 + 1e-16)),
    ("finetune", "documents", "amber", search() | {"results/documents": 8, "results/pairs": {"mined": {"span": 20}}}),
    ("evaluate", "beside-bm25", "amber", search(bm25=[-0.4, -0.1])),
    ("evaluate", "beside-bm25", "amber", search(bm25=[-0.1, 0.2])),
    ("evaluate", "beside-start", "amber", search(bm25=[0.1, 0.2], start=[-0.1, 0.2])),
    ("corpus", "unknown-tokens", "red", {"manifest/statistics/unknown_rate": 0.3}),
    ("corpus", "unknown-tokens", "amber", {"manifest/statistics/unknown_rate": 0.02}),
    ("corpus", "removed-marks", "amber", {"results/removed_marks": 0.02, "results/equal_words": [["में", "मैं"]]}),
    ("corpus", "leaks", "red", {"results/shared_spans/found": 200}),
    ("corpus", "leaks", "amber", {"results/shared_spans/found": 40}),
    ("corpus", "truncation", "amber", {"manifest/counts/tokens_cut": 90_000}),
    ("corpus", "evaluation-set", "amber", {"manifest/counts/examples_validation": 10}),
    ("corpus", "evaluation-set", "amber", {"manifest/counts/examples_validation": 4000}),
    ("corpus", "sentences", "amber", {"manifest/counts/documents_of_one_sentence": 800}),
    ("corpus", "skipped", "amber", {"manifest/skipped": {"not JSON": 500}}),
]


FALLING = evaluation_log(eval_loss=[2.6, 1.8, 1.5])
NOISE = "the share of noise in a gradient is 80%"
FEW_LABELS = part(metrics={"accuracy": 0.49}, simple_baselines={"bag of words": {"accuracy": 0.9}})
FEW_LABELS |= {"results/few_labels": True, "analysis/calibration/expected_calibration_error": 0.3}
MORE_ROWS, ENDING = "abel more rows (`mybert suggest` chooses them)", ("epochs", "--learning-rate", "--calibrate")
FEW_PAIRS = next_sentence(0.44, 1.0, 1.0) | {"results/metrics/nsp_pairs": 3} | held_out(4.0, 3.0, 3.4)
WEIGHTS, SIZE = ("--initial-weights text",), ("--initializer-range", "--length-schedule")
JUDGED = [  # stage, finding, its level or None, changes of a good run, and words that the finding has and lacks
    *((*fault, (), ()) for fault in FAULTS),
    ("finetune", "beside-start", "green", search(after=0.4), (), ()),
    ("finetune", "held-out-queries", "amber", search("reranking") | FEW_QUERIES, ("evaluate --reranker",), ()),
    ("evaluate", "beside-bm25", "green", search(bm25=[0.1, 0.2], start=[0.1, 0.3]), (), ()),
    ("evaluate", "beside-start", "green", search(bm25=[0.1, 0.2], start=[0.1, 0.3]), (), ()),
    ("evaluate", "beside-start", None, search(bm25=[0.1, 0.2], start=[0, 0]), (), ()),  # an untrained model
    ("finetune", "converged", "amber", {"log": [*training_log(losses(2.0, 0.5)), *FALLING]}, (), ()),
    ("finetune", "converged", None, {"log": [*training_log(losses(2.0, 0.001, 100)), *FALLING]}, (), ()),
    ("finetune", "converged", "amber", {"log": [entry | {"eval_accuracy": 0.99} for entry in FALLING]}, (), ()),
    ("finetune", "converged", None, {"log": [entry | {"eval_accuracy": 1.0} for entry in FALLING]}, (), ()),
    ("finetune", "speed", "amber", {"log": training_log(FALL, free_cores=1.1, threads=2)}, (), ()),
    ("finetune", "speed", None, {"log": training_log(FALL, free_cores=1.1, threads=2, seconds=9.0)}, (), ()),
    ("pretrain", "planned-speed", "green", budget(), (), ()),
    ("pretrain", "forecast", "green", budget(), (), ()),
    ("pretrain", "planned-speed", None, {}, (), ()),
    ("pretrain", "forecast", None, {}, (), ()),
    ("pretrain", "speed", "amber", slow(128, 0.02), ("Use larger batches",), ()),
    ("pretrain", "speed", "green", slow(128, 0.07), (), ()),
    ("pretrain", "speed", "amber", slow(768, 0.1), ("Use larger batches",), ()),
    ("pretrain", "speed", "green", slow(768, 0.1, {"bf16": True}), (), ()),
    ("pretrain", "speed", "amber", slow(128, 0.02, optimizer_share=0.9), ("The optimizer takes 90% of the time",), ()),
    ("pretrain", "speed", "amber", slow(128, 0.02, free_cores=0.5, threads=2), ("End the other programs",), ()),
    ("pretrain", "speed", "green", slow(128, 0.07, free_cores=[1.2] * 9 + [None] * 31, threads=2), (), ()),
    ("finetune", "truncation", "amber", truncated(200), ("Truncated rows score lower",), ()),
    ("finetune", "truncation", "amber", part(rows_cut=200) | {"analysis/slices": {}}, ("Many rows are",), ()),
    ("finetune", "truncation", "amber", truncated(1), ("Many rows are",), ()),  # one row is no evidence
    ("finetune", "giveaway", "green", giveaway(1.0, 3, 3, 0), (), ()),
    ("pretrain", "warm-up", "green", early_warm_up(0.03), ("in the first 3.0%",), ()),
    ("pretrain", "warm-up", "green", early_warm_up(20), ("in the first 5.0%",), ()),
    ("pretrain", "warm-up", "amber", early_warm_up(4), ("in the first 1.0%",), ()),
    ("pretrain", "warm-up", "amber", early_warm_up(0), ("in the first 0.0%",), ()),
    ("pretrain", "learning-rate-high", "green", {}, (NOISE,), ()),
    ("pretrain", "learning-rate-low", "green", {}, (NOISE,), ()),
    (
        *("pretrain", "learning-rate-high", "amber", pretraining_log(ratio=0.06, gradient_noise=0.97)),
        *(("--gradient-accumulation-steps",), ()),
    ),
    ("pretrain", "learning-rate-low", "green", pretraining_log(ratio=3e-3, gradient_noise=0.8), (), ()),
    ("finetune", "simple-model", "amber", simple("accuracy", 0.8), ("of words) has a better score (validation)",), ()),
    ("finetune", "simple-model", "amber", simple("accuracy", 0.7), ("of words) is as good (validation)",), ()),
    ("finetune", "simple-model", "amber", simple("mse", 0.6), ("of words) has a better score (validation)",), ()),
    ("finetune", "learned", "red", FEW_LABELS, (MORE_ROWS,), ENDING),
    ("finetune", "simple-model", "amber", FEW_LABELS, (MORE_ROWS,), ENDING),
    ("finetune", "calibration", "amber", FEW_LABELS, (), ENDING),
    ("finetune", "rare-classes", "red", ranges("accuracy", "1 to 2", "from A to B"), (), ()),
    ("finetune", "rare-classes", None, ranges("pearson", "1 to 2", "2 to 3"), (), ()),
    ("finetune", "overfitting", "green", flat(0.5, 0.1, 0.0), (), ("nan",)),
    ("finetune", "overfitting", "green", flat(0.5, 0.1, 0.0, 0.0, 0.0), (), ("nan",)),
    ("finetune", "overfitting", "amber", flat(0.0, 0.1, 0.2), (), ("nan",)),
    ("pretrain", "next-sentence", "amber", FEW_PAIRS, ("too few pairs",), ()),
    ("pretrain", "overfitting", "red", FEW_PAIRS, (), ("--load-best-model-at-end",)),
    ("finetune", "overfitting", "amber", {"log": evaluation_log(eval_loss=[0.4, 0.3, 0.7])}, (), ()),
    ("pretrain", "next-sentence", "red", pairs(0.70, 0.69, 0.69), ("Train for more steps",), ()),
    ("pretrain", "next-sentence", "red", pairs(0.72, 0.77, 1.09), (), ("Train for more steps",)),
    ("corpus", "duplicates", "amber", {"manifest/counts/documents_duplicate": 200}, ("`mybert corpus --ded",), ()),
    *(
        ("pretrain", "evaluation-set", "red", {"manifest/stage": stage, "results/metrics/mlm_tokens": 90}, has, lacks)
        for stage, has, lacks in (
            ("pretrain", ("by `mybert corpus` with --validation-share",), ()),
            ("adapt", ("by a larger --validation-share",), ("mybert corpus", "--split-documents")),
        )
    ),
    *(
        ("pretrain", "plateau", "red", PLATEAU | {"manifest/stage": stage, "manifest/settings": settings}, has, lacks)
        for stage, settings, has, lacks in (
            ("pretrain", {"initial_weights": "random"}, WEIGHTS, SIZE),
            ("pretrain", {"initial_weights": "text"}, (), WEIGHTS + SIZE),
            ("pretrain", {"init_from": "bert"}, (), WEIGHTS + SIZE),
            ("adapt", {}, (), WEIGHTS + SIZE),
            ("distill", {"size": None}, (), WEIGHTS + SIZE),
            ("distill", {"size": "mini"}, SIZE, WEIGHTS),
        )
    ),
]


@pytest.mark.parametrize(
    ("stage", "name", "level", "changes", "has", "lacks"),
    JUDGED,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_is_judged_by_its_numbers(stage, name, level, changes, has, lacks, tmp_path):
    found = {finding.name: finding for finding in doctor(write_stage(tmp_path / "run", stage, changes))}
    if level is None:
        assert name not in found
        return
    text = f"{found[name].title} {found[name].evidence} {found[name].remedy}"
    assert found[name].level == level and found[name].evidence, found[name]
    assert found[name].remedy or level == "green"
    assert all(words in text for words in has) and not any(words in text for words in lacks), text


@pytest.mark.parametrize("metric", ["accuracy", "pearson"])
def test_rows_with_one_answer_do_not_say_that_nothing_was_learned(metric, tmp_path):
    constants = Regression(MyBertConfig(num_labels=1)).constants([0.1] * 3)
    assert constants == [{"score": 0.1}] and sum([0.1] * 3) / 3 != 0.1, "rounding"
    scores = {"accuracy": 1.0} if metric == "accuracy" else {"pearson": 0.0, "mse": 0.0}
    changes = part(metric=metric, metrics=scores, constant_baselines=scores, intervals_95={})
    folder = write_stage(tmp_path / "run", "finetune", changes | {"results/metric": metric})
    (found,) = (one for one in findings_of(read_stage(folder)) if one.name == "learned")
    assert found.level == "amber" and found.title.startswith("All rows have the same answer")
    assert "All rows have the same answer" in score_summary(read_stage(folder), "", changes["results/validation"])


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
    found = findings_of(read_stage(write_stage(tmp_path / "run", stage, changes)))
    assert [finding.name for finding in found if "--learning-rate" in finding.remedy] == [name]


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


def test_a_printed_option_is_on_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mybert.reports.doctor.line_width", lambda stream: 18)
    cli.main(["doctor", str(write_stage(tmp_path / "run", "pretrain", PLATEAU))])
    shown = capsys.readouterr().out
    assert "--learning-rate" in shown and "--initial-weights" in shown


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
    assert f"`mybert doctor '{spaced}'`" in closing_lines(spaced)


def test_files_that_cannot_be_judged_do_not_fail_a_command_that_has_ended(tmp_path):
    folder = write_stage(tmp_path / "plateau", "pretrain", PLATEAU)
    report = write_report(folder)
    (folder / "results.json").write_text("{", encoding="utf-8")
    assert closing_lines(folder) == f"the output is in {folder}\nopen {report} in a browser to see the results"


def test_a_good_run_has_no_problem_and_no_warning(good_run):
    assert {finding.level for finding in findings_of(read_stage(good_run))} == {"green"}


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
    assert findings_of(read_stage(folder)) == []


def test_an_evaluation_that_has_not_finished_has_no_findings(tmp_path):
    (tmp_path / "manifest.json").write_text('{"stage": "evaluate"}')
    assert doctor(tmp_path) == []


def test_the_half_written_last_line_of_a_running_stage_is_left_out(tmp_path):
    folder = write_stage(tmp_path / "run", "pretrain")
    expected = doctor(folder)
    with (folder / "log.jsonl").open("a") as file:
        file.write('{"step": 410, "lo')
    assert doctor(folder) == expected
