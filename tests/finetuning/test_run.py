"""`mybert finetune` as a whole: seeds, sweeps, resuming, what is left behind, and what is said of mistakes."""

import contextlib
import io
import math
import re
import shutil
import statistics

import pytest
import torch
from datasets import Dataset
from json_files import read_lines
from safetensors.torch import load_file, save_file
from trained_runs import read_results as results

import mybert
from modeling_mybert import MyBertConfig, MyBertForSequenceClassification
from mybert.finetuning import report
from mybert.finetuning.arguments import FinetuningArguments
from mybert.finetuning.objective import WeightedLoss
from mybert.finetuning.recipes import Recipe, Run, planned_runs, runs_to_keep, summarise
from mybert.finetuning.run import finetune as finetune_function
from mybert.finetuning.run_data import new_task
from mybert.finetuning.settings import (
    SWEEPS,
    FinetuneSettings,
    default_batch_size,
    default_epochs,
    default_learning_rate,
)
from mybert.inference.task_checkpoint import new_model
from mybert.rows.labels import find_label_typos, find_marks
from mybert.training.trainer import RunTrainer
from tokenization import MyBertTokenizer


@pytest.fixture
def data(write_rows, opinions) -> tuple:
    return "--train", write_rows("train.jsonl", opinions[:40]), "--validation", write_rows("dev.jsonl", opinions[32:])


@pytest.mark.slow
def test_a_sweep_with_seeds_keeps_the_best_and_reports_all(finetune, data, tmp_path, monkeypatch, capsys):
    grid = {"learning_rate": (1e-9, 5e-3), "batch_size": (8,), "epochs": (2,)}
    monkeypatch.setitem(SWEEPS, "paper", grid)
    assert finetune("text-classification", *data, "--sweep", "paper", "--seeds", 2, "--seed", 3) == 0
    found = results(tmp_path / "out")
    runs = {(run["learning_rate"], run["seed"]): run["metrics"]["f1_macro"] for run in found["runs"]}
    assert set(runs) == {(1e-9, 3), (1e-9, 4), (5e-3, 3), (5e-3, 4)}
    assert [recipe["learning_rate"] for recipe in found["recipes"]] == [5e-3, 1e-9]
    for recipe in found["recipes"]:
        scores = [runs[recipe["learning_rate"], seed] for seed in (3, 4)]
        assert recipe["mean"] == pytest.approx(statistics.mean(scores))
        assert recipe["deviation"] == pytest.approx(statistics.stdev(scores))
    assert found["validation"]["metrics"]["f1_macro"] == max(runs.values()) > 0.5
    assert not list((tmp_path / "out/runs").glob("*/checkpoint-*"))
    assert not list((tmp_path / "out/runs").glob("*/model/*"))
    printed = capsys.readouterr().out
    assert "Runs, best first" in printed
    best = next(run for run in found["runs"] if run["metrics"]["f1_macro"] == max(runs.values()))
    name = f"lr{best['learning_rate']:g}-batch8-epochs2-seed{best['seed']}: macro F1 {max(runs.values()):.1%}\n"
    assert "run 1 of 4, lr1e-09-batch8-epochs2-seed3\n" in printed and name in printed


@pytest.mark.parametrize(
    ("sweep", "recipes", "within", "outside"),
    [  # (learning rate, batch size, epochs), as published
        ("paper", 24, {(5e-5, 16, 2), (2e-5, 32, 4)}, {(1e-4, 16, 2), (5e-5, 8, 2), (5e-5, 16, 1)}),
        ("miniatures", 20, {(3e-4, 8, 4), (3e-5, 128, 4)}, {(2e-5, 8, 4), (3e-4, 256, 4), (3e-4, 8, 3)}),
    ],
)
def test_a_sweep_trains_each_recipe_of_its_grid_once_with_each_seed(tmp_path, sweep, recipes, within, outside):
    words = {"task": "text-classification", "model": "-", "train": "-", "validation": "-", "output": "-"}
    settings = FinetuneSettings(**words, sweep=sweep, seeds=2)
    runs = planned_runs(settings, FinetuningArguments(output_dir=str(tmp_path), seed=7))
    assert len(runs) == len(set(runs)) == 2 * recipes and {run.seed for run in runs} == {7, 8}
    found = {tuple(run.recipe) for run in runs}
    assert len(found) == recipes and within <= found and not outside & found


@pytest.mark.parametrize(("length", "used", "said"), [(None, 16, False), (16, 16, False), (24, 24, True)])
def test_positions_that_were_never_pretrained_are_named_and_not_used_by_default(
    tiny_checkpoint, tmp_path, caplog, length, used, said
):
    tokenizer = MyBertTokenizer.from_pretrained(tiny_checkpoint, model_max_length=16)
    shutil.copytree(tiny_checkpoint, tmp_path / "short")
    tokenizer.save_pretrained(tmp_path / "short")
    words = {"task": "text-classification", "model": str(tmp_path / "short"), "train": "-", "output": "-"}
    task, tokenizer = new_task(FinetuneSettings(**words, max_length=length))
    assert ("sequences of at most 16 tokens" in caplog.text) == said
    assert task.options.max_length == tokenizer.model_max_length == used, "what is cut there is trained from now on"


def test_a_checkpoint_in_16_bits_is_trained_in_32(tiny_checkpoint, tmp_path):
    start = shutil.copytree(tiny_checkpoint, tmp_path / "start")
    MyBertForSequenceClassification.from_pretrained(start, dtype="bfloat16").save_pretrained(start)
    task, _ = new_task(
        FinetuneSettings(task="text-classification", model=str(start), train="-", validation="-", output="-")
    )
    assert {p.dtype for p in new_model(task, str(start)).parameters()} == {torch.float32}


def test_the_best_recipe_has_the_best_mean_and_only_models_that_may_win_are_kept():
    low, high = Recipe(1e-5, 16, 2), Recipe(2e-5, 16, 2)
    planned = [Run(recipe, seed) for recipe in (low, high) for seed in (0, 1)]
    scores = dict(zip(planned, (0.9, 0.1, 0.6, 0.8), strict=True))
    assert [summary.best for summary in summarise(scores, "accuracy")] == [planned[3], planned[0]]
    assert [summary.best for summary in summarise(scores, "mse")] == [planned[1], planned[2]]
    assert runs_to_keep({run: scores[run] for run in planned[:3]}, planned, "accuracy") == {planned[0], planned[2]}
    assert runs_to_keep(scores, planned, "accuracy") == {planned[3]}


def test_what_the_caller_has_chosen_stays_as_it_is(tiny_checkpoint, opinions, write_rows, tmp_path):
    train = str(write_rows("train.jsonl", opinions[:8]))
    arguments = FinetuningArguments(output_dir=str(tmp_path / "out"), max_steps=1, use_cpu=True)
    before = arguments.to_dict()
    model, output = str(tiny_checkpoint), str(tmp_path / "out")
    settings = FinetuneSettings(task="text-classification", model=model, train=train, output=output)
    finetune_function(settings, arguments)
    assert arguments.to_dict() == before


def test_a_frozen_encoder_stays_as_it_was(finetune, data, tiny_checkpoint, tmp_path):
    assert finetune("text-classification", *data, "--freeze", "encoder", "--num-train-epochs", 1) == 0
    before, after = load_file(tiny_checkpoint / "model.safetensors"), load_file(tmp_path / "out/model.safetensors")
    frozen = [name for name in after if name.startswith(("bert.embeddings.", "bert.encoder."))]
    assert len(frozen) == 16 + 5 and all(torch.equal(before[name], after[name]) for name in frozen)
    assert not torch.equal(before["bert.pooler.dense.weight"], after["bert.pooler.dense.weight"])


def test_weighted_classes_all_weigh_the_same():
    labels = [0] * 6 + [1] * 3
    loss = WeightedLoss(Dataset.from_dict({"labels": labels}), 2)
    torch.manual_seed(0)
    logits = torch.randn(9, 2)
    each = torch.nn.functional.cross_entropy(logits, torch.tensor(labels), reduction="none")
    expected = (each[:6].mean() + each[6:].mean()) / 2
    assert torch.allclose(loss({"logits": logits}, torch.tensor(labels)), expected)
    halves = [loss({"logits": logits[s]}, torch.tensor(labels)[s], 9) for s in (slice(0, 4), slice(4, 9))]
    assert torch.allclose(sum(halves), expected)


def test_the_number_minus_100_counts_in_the_loss_of_a_regression(tiny_checkpoint, tmp_path):
    model = MyBertForSequenceClassification.from_pretrained(tiny_checkpoint, num_labels=1, problem_type="regression")
    choices = {"eval_strategy": "no", "load_best_model_at_end": False, "use_cpu": True}
    choices |= {"per_device_train_batch_size": 32}
    trainer = RunTrainer(model=model, args=FinetuningArguments(output_dir=str(tmp_path), **choices))
    ids = torch.full((2, 4), 7)
    batches = [{"input_ids": ids, "labels": torch.tensor([number, -100.0])} for number in (-100.0, 2.0)]
    batches, count = trainer.get_batch_samples(iter(batches), 2, torch.device("cpu"))
    losses = [trainer.compute_loss(model.eval(), dict(batch), num_items_in_batch=count) for batch in batches]
    errors = [model(batch["input_ids"]).logits[:, 0] - batch["labels"] for batch in batches]
    assert torch.allclose(sum(losses), torch.cat(errors).square().mean())


@pytest.mark.slow
def test_classes_that_weigh_the_same_are_equally_likely_where_nothing_tells_them_apart(finetuned):
    rows = [{"text": "the film", "label": "rare" if i % 4 == 0 else "usual"} for i in range(40)]
    words = ("--per-device-train-batch-size", 40, "--max-steps", 60, "--class-weights")
    words += ("--save-strategy", "no", "--eval-strategy", "no", "--load-best-model-at-end", "false")
    folder = finetuned("text-classification", rows, *words)
    said = mybert.Predictor(str(folder), device="cpu")("the film")
    assert said["scores"]["rare"] == pytest.approx(0.5, abs=0.03)


class Done:
    """A run that several tests look at: its folder, what it has printed, and the panels of its curves."""

    def __init__(self, finetuned, train: list[dict], *words, **splits: list[dict]):
        printed, self.panels = io.StringIO(), []
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
            patch.setattr(report, "draw_curves", lambda log, drawn, path: self.panels.extend(drawn))
            self.folder = finetuned("text-classification", train, *words, **splits)
        self.printed, self.results = " ".join(printed.getvalue().split()), results(self.folder)
        self.config = MyBertConfig.from_pretrained(self.folder)


@pytest.fixture(scope="module")
def two_seeds(finetuned, opinions) -> Done:
    """The last validation row is nearly a training row, the one before has a wrong label; eight are training rows."""
    wrong = opinions[3] | {"label": {"good": "bad", "bad": "good"}[opinions[3]["label"]]}
    near = opinions[1] | {"text": opinions[1]["text"].upper() + "!"}
    words = ("--num-train-epochs", 3, "--seeds", 2, "--lr-scheduler-type", "constant", "--learning-rate", "2e-2")
    return Done(finetuned, opinions[:40], *words, validation=[*opinions[32:], wrong, near])


@pytest.fixture(scope="module")
def odd_rows(finetuned) -> Done:
    texts = {"good " * 40: "odd", "☃ " * 8: "bad", "fine book": "bad", "well": "Bad ", "": "bad"}
    rows = [{"text": text, "label": label} for text, label in texts.items()]
    words = ("--max-length", 16, "--errors", "skip", "--dropout", 0.4, "--num-train-epochs", 1)
    return Done(finetuned, rows, *words, validation=rows)


def test_odd_rows_are_counted_and_named(odd_rows):
    found = odd_rows.results["data"]["train"]
    assert found["rows"] == 4 and found["balance"] == {"bad": 2, "odd": 1, "Bad ": 1}
    assert (found["longest"], found["median_length"]) == (42, 8)
    assert found["longer_than_max_length"] == 1 / 4 and found["unknown_tokens"] == pytest.approx(8 / 54)
    for words in (
        "line 5: the text is empty; left out",
        "the label 'Bad ' (1) looks like 'bad' (2)",
        "warning: 4 training features are fewer than a batch of 8",
        "unknown tokens │ 14.81%",
    ):
        assert words in odd_rows.printed, words
    evidence = {finding.name: finding.evidence for finding in mybert.doctor(odd_rows.folder)}
    assert evidence["left-out"] == "1 row could not be used (validation); evaluated: 4."
    assert MyBertTokenizer.from_pretrained(odd_rows.folder).model_max_length == 16, "where the model was trained"


def test_rows_in_two_splits_are_named_and_unknown_tokens_only_if_there_are_many(two_seeds):
    train, dev = (two_seeds.folder.parent / f"{name}.jsonl" for name in ("train", "validation"))
    assert f"rows of validation ({dev}) that are also in train ({train}): 9 of " in two_seeds.printed
    assert "(validation line 1 is train line 33, validation line 2 is train line 34," in two_seeds.printed
    assert "unknown tokens" not in two_seeds.printed
    (overlap,) = two_seeds.results["data_checks"]["overlaps"]
    assert overlap == {"of": "validation", "in": "train", "rows": 18, "equal": 9, "near": 1}


def test_dropout_is_chosen_for_a_checkpoint_that_was_pretrained_without(two_seeds, odd_rows):
    for done, expected in ((two_seeds, 0.0), (odd_rows, 0.4)):
        assert ("--dropout 0.1" in done.printed) == (expected == 0)
        assert done.config.hidden_dropout_prob == done.config.attention_probs_dropout_prob == expected


def test_the_best_checkpoint_is_kept_and_the_history_and_the_curves_are_those_of_the_best_run(two_seeds):
    found, seed = two_seeds.results, two_seeds.results["best"]["seed"]
    for run in found["runs"]:
        assert run["metrics"]["f1_macro"] == max(log.get("eval_f1_macro", 0) for log in run["log"])
    assert re.search(r", evaluation: loss [0-9.e-]+, macro F1 [0-9.]+% [0-9]+ steps in ", two_seeds.printed)
    best = max(run["metrics"]["f1_macro"] for run in found["runs"])
    assert found["validation"]["metrics"]["f1_macro"] == best
    arguments = found["training_arguments"]
    assert (arguments["metric_for_best_model"], arguments["greater_is_better"]) == ("eval_f1_macro", True)
    assert found["metric"] == "accuracy", "reports begin with it"
    events, (run,) = read_lines(two_seeds.folder / "log.jsonl"), [run for run in found["runs"] if run["seed"] == seed]
    assert run["metrics"]["f1_macro"] == best and [e["step"] for e in events] == [log["step"] for log in run["log"]]
    losses = ([entry["loss"] for entry in some if "loss" in entry] for some in (events, run["log"]))
    assert next(losses) == next(losses)
    assert [event["step"] for event in events if "eval_accuracy" in event] == [5, 10, 15]
    assert all(event["tokens"] > 0 and event["seconds"] > 0 for event in events)
    good = sum(row["label"] == "good" for row in read_lines(two_seeds.folder.parent / "validation.jsonl")) / 18
    best = max(2 * share / (1 + share) for share in (good, 1 - good)) / 2  # one label has an F1, the other 0
    assert [panel.constant for panel in two_seeds.panels] == [None, pytest.approx(best)]


@pytest.mark.parametrize(
    "counts, slip",
    [
        ({"positive": 100, "negative": 90, "postive": 2}, "postive"),
        ({"positive": 100, "negative": 90, "ngeative": 1}, "ngeative"),
        ({"positive": 1000, "negative": 90, "postive": 20}, None),  # too many for a slip
        ({"very good": 5, "bad": 5, "Very_good": 5}, "Very_good"),
        ({"B-organization": 1000, "I-organization": 3}, None),
        ({"class_1": 1000, "class_10": 3}, None),
        ({"1": 1000, "-1": 1}, None),
        ({"entailment": 1000, "not_entailment": 1}, None),
        ({"relevant": 1000, "irrelevant": 1}, None),
        ({"PERSON-B": 1000, "PERSON-I": 1}, None),
        ({"comp.sys.ibm.pc.hardware": 1000, "comp.sys.mac.hardware": 1}, None),
        ({"c": 3, "C": 1000}, None),
        ({"1": 9, "01": 5, "2": 3}, "01"),
        ({"2": 5, "01": 9, "1e0": 1}, "1e0"),
        ({"True": 9, "0": 8, "1": 7}, "1"),
        ({"100000000000000000": 9, "100000000000000001": 8}, None),
    ],
)
def test_labels_that_look_alike_are_told_from_those_that_are_meant(counts, slip):
    assert [line.split("'")[1] for line in find_label_typos(counts)] == ([slip] if slip else [])


@pytest.mark.parametrize(
    ("labels", "marks"),
    [
        ("entailment neutral contradiction -", "-"),  # SNLI
        ("-1 0 1 2", "-1"),
        ("good bad N/A nan", "N/A nan"),
        ("-1 0 1", ""),  # sentiments
        ("-1 1", ""),
        ("-2 -1 0 1 2", ""),
        ("none other good", ""),
    ],
)
def test_labels_that_may_mark_rows_without_a_label_are_named(labels, marks):
    found = find_marks(dict.fromkeys(labels.split(), 7))
    assert [line.split("'")[1] for line in found] == marks.split()


def test_a_training_that_diverges_is_one_line(finetune, data, capsys):
    words = ("--learning-rate", 1e38, "--max-grad-norm", 0, "--max-steps", 4)
    assert finetune("text-classification", *data, *words) == 2
    assert "is nan; try a lower --learning-r" in capsys.readouterr().err.splitlines()[-1]


def test_a_seed_that_diverges_is_left_out_and_the_others_go_on(finetune, data, tmp_path, monkeypatch, capsys):
    loss = RunTrainer.compute_loss

    def broken(self, *args, **kwargs):
        found = loss(self, *args, **kwargs)
        return found * math.nan if self.args.seed == 6 and torch.is_tensor(found) else found

    monkeypatch.setattr(RunTrainer, "compute_loss", broken)
    words = ("text-classification", *data, "--seeds", 3, "--seed", 5, "--num-train-epochs", 1)
    for more in ((), ("--resume",)):
        assert finetune(*words, *more) == 0
        found = results(tmp_path / "out")
        assert [run["seed"] for run in found["runs"]] == [5, 7]
        assert [(run["seed"], "norm is nan" in run["diverged"]) for run in found["diverged"]] == [(6, True)]
        assert "seed6, diverged: step " in capsys.readouterr().out
    assert (tmp_path / "out/model.safetensors").is_file()


@pytest.mark.parametrize("way", ["--overwrite", "--resume"])
def test_a_kill_while_the_folder_is_made_ready_bars_no_way_on(finetune, data, classifier, tmp_path, way):
    """What is left then: the old manifest alone, or half of the first one."""
    output = tmp_path / "out"
    output.mkdir()
    if way == "--overwrite":
        shutil.copy(classifier / "manifest.json", output)
    else:
        (output / ".manifest.json.partial").write_text('{"stage"')
    assert finetune("text-classification", *data, "--num-train-epochs", 1, way) == 0
    assert (output / "model.safetensors").is_file() and not (output / ".manifest.json.partial").exists()


def table_cells(printed: str) -> dict[str, str]:
    """First and second cell of the rows of printed tables."""
    rows = [line.split("│") for line in printed.splitlines() if "│" in line]
    return {row[1].strip(): row[2].strip() for row in rows}


def test_shares_are_printed_in_percent(two_seeds):
    score = two_seeds.results["validation"]["metrics"]["accuracy"]
    assert f"│ accuracy │ {score:.1%} │" in two_seeds.printed
    assert not re.search(r"(accuracy|F1|bad|good)[ │,0-9]* [01]\.[0-9]", two_seeds.printed)


@pytest.mark.parametrize(
    ("given", "rate", "epochs"),
    [
        ({}, "0.001", "20"),
        ({"gradient_accumulation_steps": 2, "per_device_train_batch_size": 1}, "0.001", "12"),
        ({"max_steps": 5, "learning_rate": 5e-5}, "5e-05", "by --max-steps"),
    ],
)
def test_defaults_depend_on_the_width_and_the_number_of_steps(tiny_checkpoint, opinions, capsys, given, rate, epochs):
    words = {"task": "sentiment", "model": str(tiny_checkpoint), "train": opinions[:20], "validation_share": 0.1}
    mybert.finetune(**words, **given, output="out", use_cpu=True, disable_tqdm=True, dry_run=True)
    printed = capsys.readouterr().out
    cells = table_cells(printed)
    assert (cells["learning rate of the first run"], cells["epochs"]) == (rate, epochs)
    named = "using --learning-rate 0.001, the default for text-classification and a hidden size of 32"
    assert (named in printed) == ("learning_rate" not in given)
    assert (f"using --num-train-epochs {epochs}, the default" in printed) == ("max_steps" not in given)


def test_default_learning_rates_and_epochs():
    sizes = 128, 256, 384, 512, 768
    text, token = (
        [default_learning_rate(size, f"{name}-classification") for size in sizes] for name in ("text", "token")
    )
    assert (text, token) == ([1e-3, 3e-4, 3e-4, 5e-5, 5e-5], [1e-3, 1e-3, 3e-4, 5e-5, 5e-5])
    sizes = [default_batch_size(rows, task) for task in ("question-answering", "ner") for rows in (1550, 4999, 5000)]
    assert sizes == [8, 8, 32, 32, 32, 32]
    for steps, epochs in {1: 20, 4: 20, 5: 20, 6: 17, 29: 4, 33: 4, 34: 3, 10_000: 3}.items():
        assert default_epochs(steps) == epochs
        assert epochs in (3, 20) or (epochs - 1) * steps < 100 <= epochs * steps


def test_a_dry_run_prints_the_plan_and_the_time_and_writes_nothing(finetune, data, tmp_path, capsys):
    before = sorted(tmp_path.rglob("*"))
    assert finetune("text-classification", *data, "--num-train-epochs", 2, "--seeds", 3, "--dry-run") == 0
    printed, after = capsys.readouterr().out, sorted(tmp_path.rglob("*"))
    cells = table_cells(printed)
    expected = {"runs": "3", "training features": "40", "steps of the first run": "10", "features per step": "8"}
    assert cells.items() >= expected.items() and cells["training rows cut at --max-length"] == "0"
    assert finetune("text-classification", *data, "--max-steps", 2, "--save-steps", 1) == 0
    model = MyBertForSequenceClassification.from_pretrained(tmp_path / "out")
    assert cells["parameters"] == f"{model.num_parameters():,}", "also rows of tokens that the texts do not have"
    assert re.search(r"measured: \S+ s per step, \S+ tokens/s, \S+ .B of memory; .* of training in total", printed)
    assert before == after


def test_a_head_that_is_trained_further_keeps_the_order_of_its_labels(finetune, data, classifier, tmp_path):
    shutil.copytree(classifier, tmp_path / "start")
    config, weights = MyBertConfig.from_pretrained(classifier), load_file(classifier / "model.safetensors")
    config.id2label = {0: "good", 1: "bad"}
    config.save_pretrained(tmp_path / "start")
    head = {name: value.flip(0) if name.startswith("classifier.") else value for name, value in weights.items()}
    save_file(head, tmp_path / "start/model.safetensors", {"format": "pt"})
    words = ("--num-train-epochs", 1, "--learning-rate", "1e-9")
    assert finetune("text-classification", *data, *words, model=tmp_path / "start") == 0
    assert results(tmp_path / "out")["validation"]["metrics"]["accuracy"] == 1
    assert MyBertConfig.from_pretrained(tmp_path / "out").id2label == {0: "good", 1: "bad"}
