"""`mybert finetune` as a whole: seeds, sweeps, resuming, what is left behind, and what is said of mistakes."""

import contextlib
import json
import math
import re
import shutil
import signal
import statistics

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file

import mybert
from modeling_mybert import MyBertConfig, MyBertForSequenceClassification
from mybert.common.output_folders import exclusive_lock
from mybert.finetuning import report
from mybert.finetuning.arguments import FinetuningArguments
from mybert.finetuning.data.labels import find_label_typos
from mybert.finetuning.recipes import Recipe, Run, planned_runs, runs_to_keep, summarise
from mybert.finetuning.run import finetune as finetune_function
from mybert.finetuning.settings import (
    SWEEPS,
    FinetuneSettings,
    default_epochs,
    default_learning_rate,
)
from mybert.finetuning.soft_labels import SoftLabels
from mybert.finetuning.task_checkpoint import new_model, new_task
from mybert.finetuning.trainer import FinetuningTrainer, WeightedLoss
from tokenization import MyBertTokenizer


def results(folder) -> dict:
    return json.loads((folder / "results.json").read_text())


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
    name = f"lr{best['learning_rate']:g}-batch8-epochs2-seed{best['seed']}: f1_macro {max(runs.values()):.4g}\n"
    assert "run 1 of 4, lr1e-09-batch8-epochs2-seed3\n" in printed and name in printed


@pytest.mark.parametrize(
    ("sweep", "recipes", "within", "outside"),
    [
        # (learning rate, batch size, epochs), as published
        ("paper", 24, {(5e-5, 16, 2), (2e-5, 32, 4)}, {(1e-4, 16, 2), (5e-5, 8, 2), (5e-5, 16, 1)}),
        ("miniatures", 20, {(3e-4, 8, 4), (3e-5, 128, 4)}, {(2e-5, 8, 4), (3e-4, 256, 4), (3e-4, 8, 3)}),
    ],
)
def test_a_sweep_trains_each_recipe_of_its_grid_once_with_each_seed(tmp_path, sweep, recipes, within, outside):
    settings = FinetuneSettings(
        task="text-classification", model="-", train="-", validation="-", output="-", sweep=sweep, seeds=2
    )
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


@pytest.fixture
def interrupted_at_8(monkeypatch):
    """A context in which training is interrupted before step 9 of 10, five in an epoch."""
    step = FinetuningTrainer.training_step

    def stop(self, *args, **kwargs):
        if self.state.global_step == 8:
            raise KeyboardInterrupt
        return step(self, *args, **kwargs)

    @contextlib.contextmanager
    def interrupted():
        with monkeypatch.context() as patch:
            patch.setattr(FinetuningTrainer, "training_step", stop)
            yield

    return interrupted


def test_a_stopped_python_call_names_the_call_that_continues_it(
    tiny_checkpoint, opinions, tmp_path, monkeypatch, capsys
):
    step = FinetuningTrainer.training_step

    def stop(self, *args, **kwargs):
        signal.raise_signal(signal.SIGTERM)
        return step(self, *args, **kwargs)

    monkeypatch.setattr(FinetuningTrainer, "training_step", stop)
    words = {"task": "text-classification", "model": str(tiny_checkpoint), "use_cpu": True, "disable_tqdm": True}
    with pytest.raises(SystemExit):
        mybert.finetune(**words, train=opinions[:8], output=str(tmp_path / "out"), max_length=32)
    assert "; `mybert.finetune(…, resume=True)` continues it" in capsys.readouterr().out


@pytest.mark.slow
def test_a_resumed_run_with_a_teacher_equals_one_never_interrupted(
    finetune, write_rows, opinions, classifier, interrupted_at_8, tmp_path, monkeypatch
):
    texts = write_rows("texts.jsonl", [{"text": row["text"]} for row in opinions[16:]])
    data = ("--train", write_rows("train.jsonl", opinions[:8]), "--validation", write_rows("dev.jsonl", opinions))
    words = ("text-classification", *data, "--teacher", classifier, "--unlabelled", texts, "--num-train-epochs", 2)
    assert finetune(*words, output="whole") == 0
    with interrupted_at_8():
        assert finetune(*words) == 130
    monkeypatch.setattr(SoftLabels, "of_teacher", lambda *_: 1 / 0)  # its predictions are read from the folder
    assert finetune(*words, "--resume") == 0
    assert not (tmp_path / "out/teacher_logits.parquet").exists()
    whole, resumed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "out"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.slow
def test_a_resumed_run_equals_one_never_interrupted(finetune, data, interrupted_at_8, tmp_path, monkeypatch, capsys):
    words = ("text-classification", *data, "--num-train-epochs", 2, "--seeds", 2)
    assert finetune(*words, output="whole") == 0
    with interrupted_at_8():
        assert finetune(*words) == 130
    assert not (tmp_path / "out/results.json").exists()
    for word, value, message in (
        ("--weight-decay", 0.5, "--weight-decay is 0.5, the run was started with 0.01"),
        ("--label-smoothing-factor", 0.1, "--label-smoothing-factor is 0.1, the run was started with 0.0"),
        ("--adam-beta2", 0.9, "--adam-beta2 is 0.9, the run was started with 0.999"),
        ("--eval-delay", 1, "--eval-delay is 1"),
        ("--optim", "adafactor", "--optim is 'adafactor', the run was started with 'adamw_torch"),
        ("--gradient-accumulation-steps", 2, "sequences_per_step is"),
    ):
        assert finetune(*words, "--resume", word, value) == 2
        assert message in capsys.readouterr().err
    assert finetune(*words, "--resume", output="begun") == 0  # where nothing is
    monkeypatch.chdir(tmp_path)  # the same files under other names
    assert finetune(words[0], *(str(word).removeprefix(f"{tmp_path}/") for word in words[1:]), "--resume") == 0
    whole, resumed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "out"))
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    one, other = results(tmp_path / "whole")["runs"], results(tmp_path / "out")["runs"]
    assert [run["metrics"] for run in one] == [run["metrics"] for run in other]
    (tmp_path / "whole/manifest.json").unlink()
    assert finetune(*words, "--resume", output="whole") == 2
    assert "has no run of `mybert finetune` to continue" in capsys.readouterr().err


def test_a_checkpoint_without_its_optimizer_is_not_gone_on_from(finetune, data, interrupted_at_8, capsys):
    words = ("text-classification", *data, "--num-train-epochs", 2, "--save-only-model", "true")
    with interrupted_at_8():
        assert finetune(*words) == 130
    assert finetune(*words, "--resume") == 2
    assert "has no optimizer state" in capsys.readouterr().err


def test_what_the_caller_has_chosen_stays_as_it_is(tiny_checkpoint, opinions, write_rows, tmp_path):
    train = str(write_rows("train.jsonl", opinions[:8]))
    arguments = FinetuningArguments(output_dir=str(tmp_path / "out"), max_steps=1, use_cpu=True)
    before = arguments.to_dict()
    model, output = str(tiny_checkpoint), str(tmp_path / "out")
    settings = FinetuneSettings(task="text-classification", model=model, train=train, output=output)
    finetune_function(settings, arguments)
    assert arguments.to_dict() == before


def test_dropout_is_chosen_for_a_checkpoint_that_was_pretrained_without(finetune, data, tmp_path, capsys):
    words = ("text-classification", *data, "--num-train-epochs", 1)
    assert finetune(*words, output="without") == 0
    assert "--dropout 0.1" in capsys.readouterr().out
    assert finetune(*words, "--dropout", 0.4, output="with") == 0
    assert "--dropout 0.1" not in capsys.readouterr().out
    losses = []
    for name, expected in (("without", 0.0), ("with", 0.4)):
        config = MyBertConfig.from_pretrained(tmp_path / name)
        assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == expected
        losses.append([log["loss"] for log in results(tmp_path / name)["runs"][0]["log"] if "loss" in log])
    assert losses[0] != losses[1]


@pytest.mark.slow
def test_a_frozen_encoder_stays_as_it_was(finetune, data, minilm_folder, tmp_path):
    words = ("--freeze", "encoder", "--num-train-epochs", 1)
    assert finetune("text-classification", *data, *words, model=minilm_folder) == 0
    before, after = load_file(minilm_folder / "model.safetensors"), load_file(tmp_path / "out/model.safetensors")
    frozen = [name for name in after if name.startswith(("bert.embeddings.", "bert.encoder."))]
    assert len(frozen) == 6 * 16 + 5
    assert all(torch.equal(before[name.removeprefix("bert.")], after[name]) for name in frozen)
    assert not torch.equal(before["pooler.dense.weight"], after["bert.pooler.dense.weight"])
    assert results(tmp_path / "out")["validation"]["metrics"]["accuracy"] > 0.8


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
    trainer = FinetuningTrainer(model=model, args=FinetuningArguments(output_dir=str(tmp_path), **choices))
    ids = torch.full((2, 4), 7)
    batches = [{"input_ids": ids, "labels": torch.tensor([number, -100.0])} for number in (-100.0, 2.0)]
    batches, count = trainer.get_batch_samples(iter(batches), 2, torch.device("cpu"))
    losses = [trainer.compute_loss(model.eval(), dict(batch), num_items_in_batch=count) for batch in batches]
    errors = [model(batch["input_ids"]).logits[:, 0] - batch["labels"] for batch in batches]
    assert torch.allclose(sum(losses), torch.cat(errors).square().mean())


@pytest.mark.slow
def test_classes_that_weigh_the_same_are_equally_likely_where_nothing_tells_them_apart(finetune, write_rows, tmp_path):
    rows = [{"text": "the film", "label": "rare" if i % 4 == 0 else "usual"} for i in range(40)]
    train = write_rows("train.jsonl", rows)
    words = ("--train", train, "--per-device-train-batch-size", 40, "--max-steps", 60)
    words += ("--save-strategy", "no", "--eval-strategy", "no", "--load-best-model-at-end", "false")
    for output, more, share in (("as-is", (), 0.25), ("weighted", ("--class-weights",), 0.5)):
        assert finetune("text-classification", *words, *more, output=output) == 0
        said = mybert.Predictor(str(tmp_path / output), device="cpu")("the film")
        assert said["scores"]["rare"] == pytest.approx(share, abs=0.03)


def test_training_stops_when_patience_is_spent(finetune, data, tmp_path):
    words = ("--patience", 1, "--num-train-epochs", 9, "--learning-rate", "1e-9")
    assert finetune("text-classification", *data, *words) == 0
    run = results(tmp_path / "out")["runs"][0]
    assert run["steps"] == 10  # five an epoch; the second is no better than the first


def test_the_best_checkpoint_is_kept_not_the_last(finetune, data, tmp_path):
    words = ("--num-train-epochs", 3, "--lr-scheduler-type", "constant", "--learning-rate", "2e-2")
    assert finetune("text-classification", *data, *words) == 0
    run = results(tmp_path / "out")["runs"][0]
    scores = {log["step"]: log["eval_f1_macro"] for log in run["log"] if "eval_f1_macro" in log}
    assert run["metrics"]["f1_macro"] == max(scores.values())
    assert results(tmp_path / "out")["validation"]["metrics"]["f1_macro"] == max(scores.values())


def test_the_folder_says_how_it_was_made_and_loads_with_its_labels(finetune, data, write_rows, opinions, tmp_path):
    test = write_rows("test.jsonl", opinions[:6])
    assert finetune("text-classification", *data, "--test", test, "--num-train-epochs", 1) == 0
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert (manifest["stage"], manifest["complete"]) == ("finetune", True)
    assert manifest["counts"] == {"train": 40, "validation": 16, "test": 6}
    assert set(manifest["inputs"]) == {"model", "train", "validation", "test"}
    for split in ("validation", "test"):
        names = {path.name for path in (tmp_path / "out" / split).iterdir()}
        assert names == {"results.json", "predictions.jsonl", "errors.txt", "errors.png", "analysis.json"}
    assert MyBertForSequenceClassification.from_pretrained(tmp_path / "out").config.label2id == {"bad": 0, "good": 1}


def test_a_label_that_looks_misspelt_is_named_before_training(finetune, opinions, write_rows, capsys):
    rows = write_rows("train.jsonl", [*opinions, *opinions, {"text": "well", "label": "Good "}])
    assert finetune("text-classification", "--train", rows, "--num-train-epochs", 1) == 0
    assert "the label 'Good ' (1) looks like 'good' (" in " ".join(capsys.readouterr().out.split())


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
    ],
)
def test_labels_that_look_alike_are_told_from_those_that_are_meant(counts, slip):
    assert [line.split("'")[1] for line in find_label_typos(counts)] == ([slip] if slip else [])


def test_rows_that_stand_in_two_splits_are_warned_of_by_number(finetune, data, capsys):
    assert finetune("text-classification", *data, "--num-train-epochs", 1) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"rows of validation ({data[3]}) that are also in train ({data[1]}): 8 of " in printed
    assert "(validation line 1 is train line 33, validation line 2 is train line 34," in printed


def test_the_overview_counts_what_is_cut_and_unknown(finetune, write_rows, tmp_path):
    rows = [{"text": "good " * 40, "label": "a"}, {"text": "bad ☃", "label": "b"}, {"text": "fine book", "label": "b"}]
    train = write_rows("train.jsonl", rows)
    assert finetune("text-classification", "--train", train, "--num-train-epochs", 1) == 0
    found = results(tmp_path / "out")["data"]["train"]
    assert found["balance"] == {"b": 2, "a": 1}
    assert (found["longest"], found["median_length"]) == (42, 4)
    assert found["longer_than_max_length"] == pytest.approx(1 / 3)
    assert found["unknown_tokens"] == pytest.approx(1 / 44)


@pytest.mark.parametrize(("unknown", "said"), [("☃ ", True), ("", False)])
def test_many_unknown_tokens_are_named_after_the_scores(unknown, said, finetune, opinions, write_rows, capsys):
    train = write_rows("train.jsonl", [row | {"text": unknown * 8 + row["text"]} for row in opinions])
    assert finetune("text-classification", "--train", train, "--num-train-epochs", 1) == 0
    last = capsys.readouterr().out.rpartition("Each label")[2]
    assert ("% of the training tokens are [UNK]: the vocabulary of " in last) == said


def test_rows_that_cannot_be_used_are_left_out_on_request(finetune, write_rows, opinions, tmp_path, capsys):
    rows = [*opinions[:8], {"text": "", "label": "good"}]
    train, validation = write_rows("train.jsonl", rows), write_rows("validation.jsonl", rows)
    words = ("--train", train, "--validation", validation, "--num-train-epochs", 1)
    assert finetune("text-classification", *words, "--errors", "skip") == 0
    assert "line 9: the text is empty; left out" in capsys.readouterr().out
    assert results(tmp_path / "out")["data"]["train"]["rows"] == 8
    evidence = {finding.name: finding.evidence for finding in mybert.doctor(tmp_path / "out")}
    assert evidence["left-out"] == "1 row could not be used (validation); evaluated: 8."


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--metric", "bleu"), "--metric bleu: expected one of accuracy, f1_macro"),
        (("--max-length", 999), "--max-length 999: "),
        (("--model", "nowhere"), "nowhere: no such folder"),
        (("--validation", "nowhere.jsonl"), "nowhere.jsonl: there is no such file"),
        (("--columns", "body=text"), "--columns body=text: text-classification has the columns text"),
        (("--columns", "text=body"), "has no column 'body'; there are text, label"),
        (("--sweep", "all"), "--sweep: invalid choice: 'all' (choose from 'paper', 'miniatures')"),
        (
            ("--sweep", "paper", "--learning-rate", 1),
            "--learning-rate is chosen by the sweep; leave it or --sweep out",
        ),
        (("--sweep", "paper", "--max-steps", 1), "--max-steps is chosen by the sweep; leave it or --sweep out"),
        (
            ("--patience", 2, "--eval-strategy", "no", "--save-strategy", "no"),
            "--patience counts evaluations; leave it or --eval-strategy no out",
        ),
        (("--n-best", 3), "--n-best has no effect on text-classification; leave it out"),
        (("--label-smoothing-factor", 0.1, "--class-weights"), "has no effect with --class-weights; leave it out"),
        (("--learning-rate", "nan"), "learning_rate: expected 0 or more, found nan"),
        (("--seed", -1), "seed: expected 0 or more and below 2**32, found -1"),
        (("--neftune-noise-alpha", 5), "neftune_noise_alpha is not supported"),
        (("--dataloader-drop-last", "true"), "dataloader_drop_last is not supported: every row is trained on"),
        (
            ("--prediction-loss-only", "true"),
            "prediction_loss_only is not supported: checkpoints are chosen by",
        ),
        (("--eval-do-concat-batches", "false"), "eval_do_concat_batches false is not supported"),
        (("--metric-for-best-model", "bleu"), "metric_for_best_model is not supported: the best checkpoint"),
        (("--greater-is-better", "false"), "greater_is_better is not supported"),
        (("--bf16-full-eval", "true"), "bf16_full_eval is not supported: it would round the weights that are kept"),
        (("--push-to-hub", "true"), "push_to_hub is not supported: `mybert push` uploads"),
        (("--use-liger-kernel", "true"), "use_liger_kernel"),
        (("--report-to", "comet_ml"), "comet"),
        (
            ("--learning-rate", 1e38, "--max-grad-norm", 0, "--max-steps", 4),
            "is nan; try a lower --learning-r",
        ),
        (("--dropout", 1), "--dropout: expected 0 or more and below 1, found 1.0"),
        (("--learing-rate", 1), "did you mean '--learning-rate'"),
        (("--save-strategy", "best"), "--save-strategy: invalid choice: 'best'"),
        (("--save-strategy", "no"), "value, or add --load-best-model-at-end false"),
    ],
)
def test_a_mistake_is_one_line(finetune, data, capsys, words, message):
    assert finetune("text-classification", *data, *words) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "words",
    [
        ("--optim", "adamw_bnb_8bit"),
        ("--optim", "galore_adamw"),
        ("--lr-scheduler-type", "cosine_with_min_lr"),
        ("--lr-scheduler-type", "warmup_stable_decay"),
        ("--lr-scheduler-kwargs", '{"foo": 1}'),
        ("--adam-beta1", "1.5"),
        ("--adam-epsilon", "-1"),
        ("--dataloader-num-workers", "-1"),
        ("--report-to", "comet_ml"),
    ],
    ids=" ".join,
)
def test_arguments_that_cannot_work_cost_no_finished_model(finetune, data, classifier, tmp_path, capsys, words):
    shutil.copytree(classifier, tmp_path / "out")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert finetune("text-classification", *data, "--overwrite", *words) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}


def test_a_seed_that_diverges_is_left_out_and_the_others_go_on(finetune, data, tmp_path, monkeypatch, capsys):
    loss = FinetuningTrainer.compute_loss

    def broken(self, *args, **kwargs):
        found = loss(self, *args, **kwargs)
        return found * math.nan if self.args.seed == 6 and torch.is_tensor(found) else found

    monkeypatch.setattr(FinetuningTrainer, "compute_loss", broken)
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


def test_a_second_run_in_one_output_is_kept_out_while_the_first_is_at_work(finetune, data, tmp_path, capsys):
    words = ("text-classification", *data, "--num-train-epochs", 1)
    with exclusive_lock(tmp_path / "out"):
        assert finetune(*words) == 2
        assert f"another run is writing to {tmp_path / 'out'}" in capsys.readouterr().err
    assert finetune(*words) == 0
    assert not list(tmp_path.glob(".*"))


def test_an_output_that_is_there_is_kept(finetune, data, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("")
    assert finetune("text-classification", *data) == 2
    assert "exists; add --overwrite" in capsys.readouterr().err
    assert finetune("text-classification", *data, "--overwrite") == 2
    assert "was not made by `mybert finetune`" in capsys.readouterr().err
    assert np.array_equal([path.name for path in (tmp_path / "out").iterdir()], ["mine"])


def table_cells(printed: str) -> dict[str, str]:
    """First and second cell of the rows of printed tables."""
    rows = [line.split("│") for line in printed.splitlines() if "│" in line]
    return {row[1].strip(): row[2].strip() for row in rows}


@pytest.mark.parametrize(("given", "used"), [({}, "0.001"), ({"learning_rate": 5e-5}, "5e-05")])
def test_the_default_learning_rate_depends_on_the_width(tiny_checkpoint, opinions, capsys, given, used):
    words = {"task": "sentiment", "model": str(tiny_checkpoint), "train": opinions[:8], "output": "out"}
    mybert.finetune(**words, **given, use_cpu=True, disable_tqdm=True, dry_run=True)
    printed = capsys.readouterr().out
    assert table_cells(printed)["learning rate of the first run"] == used
    named = "using --learning-rate 0.001, the default for text-classification and a hidden size of 32"
    assert (named in printed) == (not given)
    sizes = 128, 256, 384, 512, 768
    for task, rates in {
        "text-classification": [1e-3, 3e-4, 3e-4, 5e-5, 5e-5],
        "token-classification": [1e-3, 1e-3, 3e-4, 5e-5, 5e-5],
    }.items():
        assert [default_learning_rate(size, task) for size in sizes] == rates


@pytest.mark.parametrize(
    ("steps", "epochs"), [(1, 20), (4, 20), (5, 20), (6, 17), (29, 4), (33, 4), (34, 3), (10_000, 3)]
)
def test_few_rows_are_read_more_often_by_default(steps, epochs):
    assert default_epochs(steps) == epochs
    assert epochs in (3, 20) or (epochs - 1) * steps < 100 <= epochs * steps


@pytest.mark.parametrize(
    ("given", "epochs"),
    [
        ({}, "20"),
        ({"gradient_accumulation_steps": 2, "per_device_train_batch_size": 1}, "12"),
        ({"max_steps": 5}, "by --max-steps"),
    ],
)
def test_the_default_epochs_depend_on_the_number_of_steps(tiny_checkpoint, opinions, capsys, given, epochs):
    words = {"task": "sentiment", "model": str(tiny_checkpoint), "train": opinions[:20], "output": "out"}
    mybert.finetune(**words, **given, use_cpu=True, disable_tqdm=True, dry_run=True)
    printed = capsys.readouterr().out
    assert table_cells(printed)["epochs"] == epochs
    assert (f"using --num-train-epochs {epochs}, the default" in printed) == ("max_steps" not in given)


def test_the_checkpoint_that_knows_a_rare_label_is_better_than_one_label_for_all_rows(tiny_checkpoint):
    settings = FinetuneSettings(task="sentiment", model=str(tiny_checkpoint), train="rows", output="out")
    task, _ = new_task(settings)
    task = task.with_labels(["bad", "good"], problem_type="single_label_classification")
    constant = [{"label": "good"}] * 10
    knows = [{"label": name} for name in ["good"] * 4 + ["bad"] * 6]
    references = ["good"] * 7 + ["bad"] * 3
    scores = [task.score(predictions, references) for predictions in (constant, knows)]
    assert scores[0][task.main_metric] == scores[1][task.main_metric] == 0.7
    assert scores[0][task.selection_metric] < scores[1][task.selection_metric]


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


def test_the_history_and_the_curves_are_those_of_the_best_run(finetune, data, tmp_path, monkeypatch):
    panels = []
    monkeypatch.setattr(report, "draw_curves", lambda log, drawn, path: panels.extend(drawn))
    assert finetune("text-classification", *data, "--num-train-epochs", 2, "--seeds", 2) == 0
    found = results(tmp_path / "out")
    best, arguments = found["best"]["seed"], found["training_arguments"]
    assert (arguments["metric_for_best_model"], arguments["greater_is_better"]) == ("eval_f1_macro", True)
    assert results(tmp_path / "out")["metric"] == "accuracy", "reports begin with it"
    events = [json.loads(line) for line in (tmp_path / "out/log.jsonl").read_text().splitlines()]
    run = next(run for run in results(tmp_path / "out")["runs"] if run["seed"] == best)
    assert [event["step"] for event in events] == [log["step"] for log in run["log"]]
    assert [event["loss"] for event in events if "loss" in event] == [
        log["loss"] for log in run["log"] if "loss" in log
    ]
    assert [event["step"] for event in events if "eval_accuracy" in event] == [5, 10]
    assert all(event["tokens"] > 0 and event["seconds"] > 0 for event in events)
    # half of the validation rows are good: one label has an F1 of 2 / 3, the other of 0
    assert [panel.constant for panel in panels] == [None, pytest.approx(1 / 3)]


def test_fewer_rows_than_a_batch_are_warned_about(finetune, opinions, write_rows, capsys):
    rows = write_rows("few.jsonl", opinions[:5])
    words = ("--train", rows, "--validation", rows, "--num-train-epochs", 1)
    assert finetune("text-classification", *words) == 0
    assert "warning: 5 training features are fewer than a batch of 8" in capsys.readouterr().out


def test_the_tokenizer_truncates_where_the_model_was_trained(finetune, data, tmp_path):
    assert finetune("text-classification", *data, "--num-train-epochs", 1, "--max-length", 16) == 0
    assert MyBertTokenizer.from_pretrained(tmp_path / "out").model_max_length == 16


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
