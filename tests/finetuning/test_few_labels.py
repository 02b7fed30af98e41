"""Few labels: the parts against formulas, transformers and scikit-learn; runs and folds against runs by hand."""

import functools
import io
import re
import shlex
import signal
from collections import Counter

import numpy as np
import pytest
import torch
from datasets import Dataset
from json_files import read_lines
from rich.console import Console
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from trained_runs import read_results
from transformers import BertForSequenceClassification, set_seed
from transformers.integrations.integration_utils import TensorBoardCallback

from modeling_mybert import MyBertConfig
from mybert import Predictor, cli
from mybert.artifacts.staging import exclusive_lock
from mybert.common.progress import Bar
from mybert.finetuning import few_labels
from mybert.finetuning.arguments import FinetuningArguments
from mybert.finetuning.held_out import fold_of_rows
from mybert.finetuning.run_data import new_task
from mybert.finetuning.settings import FinetuneSettings
from mybert.inference.task_checkpoint import new_model
from mybert.tasks.bootstrap_scores import interval_95


def prepared(checkpoint, rows: list[dict]):
    settings = FinetuneSettings(task="text-classification", model=str(checkpoint), train="-", output="-")
    task, tokenizer = new_task(settings)
    rows = task.prepare(Dataset.from_list(rows))
    task = task.fitted(rows)
    return task, tokenizer, rows, task.features(rows, tokenizer, training=True)


@pytest.fixture
def words(tiny_checkpoint, write_rows, tmp_path):
    """A function from rows and options to the command that trains on the rows, with defaults for few labels."""

    def call(rows: list[dict], *more) -> list[str]:
        train = write_rows("my rows.jsonl", rows)
        fixed = ("--model", tiny_checkpoint, "--train", train, "--output", tmp_path / "out", "--use-cpu", "true")
        return ["finetune", "--task", "sentiment", *map(str, (*fixed, "--max-length", 32, "--bootstrap", 20, *more))]

    return call


def test_a_terminal_shows_the_steps_until_the_training_is_stopped(tiny_checkpoint, opinions, monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr(few_labels, "Bar", functools.partial(Bar, console=console))
    task, tokenizer, _, features = prepared(tiny_checkpoint, opinions)

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        few_labels.train(new_model(task, str(tiny_checkpoint)), features, task.collator(tokenizer), 1, after_step=stop)
    assert Bar._shown is None and re.search(r"training .* 0 of \d+ steps", screen.getvalue())
    log = few_labels.train(new_model(task, str(tiny_checkpoint)), features, task.collator(tokenizer), 1)
    assert f"{len(log) - 1} of {len(log) - 1} steps" in screen.getvalue()


@pytest.mark.parametrize("several", [False, True])
def test_the_model_is_a_bert_whose_head_is_the_logistic_regression_of_means(
    tiny_checkpoint, opinions, tmp_path, monkeypatch, several
):
    rows = [{**row, "label": [row["label"], "any"]} for row in opinions] if several else opinions
    task, tokenizer, rows, features = prepared(tiny_checkpoint, rows)
    torch.manual_seed(0)
    model = new_model(task, str(tiny_checkpoint))
    weight, steps = model.bert.encoder.layer[0].output.dense.weight, few_labels._contrastive_steps
    at = [weight.detach().clone()]

    def observed(*arguments):
        yield from steps(*arguments)
        at.append(weight.detach().clone())

    monkeypatch.setattr(few_labels, "_contrastive_steps", observed)
    log = few_labels.train(model, features, task.collator(tokenizer), seed=1)
    assert not torch.equal(*at) and torch.allclose(weight, (at[0] + at[1]) / 2)
    assert log[-1]["step"] == len(log) - 1 == log[-2]["step"]
    model.save_pretrained(tmp_path / "model")
    bert = BertForSequenceClassification.from_pretrained(tmp_path / "model", attn_implementation="eager").eval()
    assert bert.config.num_hidden_layers == 2
    batch = task.collator(tokenizer)([{k: v for k, v in row.items() if k not in ("row", "cut")} for row in features])
    with torch.no_grad():
        states = bert.bert(batch["input_ids"], batch["attention_mask"], output_hidden_states=True).hidden_states
        logits = bert(batch["input_ids"], batch["attention_mask"]).logits
        mask = batch["attention_mask"][..., None]
        means = (states[1] * mask).sum(1) / mask.sum(1) + few_labels._SHARE * states[1][:, 0]
        expected = torch.nn.functional.layer_norm(means, means.shape[-1:])
    assert torch.allclose(states[2][:, 0], expected, atol=1e-4)
    vectors = expected.double().numpy()
    vectors = (vectors - vectors.mean(0)) / np.sqrt(((vectors - vectors.mean(0)) ** 2).sum(1).mean())
    labels = np.array([row["label"] for row in opinions])
    fit = LogisticRegression(C=few_labels._PENALTY, max_iter=5000, tol=1e-8).fit(vectors, labels)
    margin = logits[:, task.config.label2id["good"]]
    if not several:
        margin = margin - logits[:, task.config.label2id["bad"]]
    assert np.abs(margin.numpy() - fit.decision_function(vectors)).max() < 0.05


def test_many_labels_for_few_rows_are_no_warning_of_scikit_learn(tiny_checkpoint, recwarn):
    rows = [{"text": f"a film {number}", "label": f"label {number % 14}"} for number in range(24)]
    task, tokenizer, rows, features = prepared(tiny_checkpoint, rows)
    targets = task.kind.targets(rows["label"][:])
    few_labels.fit_head(new_model(task, str(tiny_checkpoint)), features, targets, task.collator(tokenizer))
    assert not [warning for warning in recwarn if "unique classes" in str(warning.message)]


def test_the_contrastive_loss_is_that_of_its_formula():
    vectors = torch.nn.functional.normalize(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    labels = torch.tensor([[1.0, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0]])
    losses = []
    for i in range(4):
        others = [j for j in range(5) if j != i]
        total = sum(torch.exp(vectors[i] @ vectors[j] / few_labels._TEMPERATURE) for j in others)
        terms = []
        for j in others:
            both = float((labels[i] * labels[j]).sum())
            weight = both / float(labels[i].sum() + labels[j].sum() - both)
            terms.append((weight, -torch.log(torch.exp(vectors[i] @ vectors[j] / few_labels._TEMPERATURE) / total)))
        losses.append(sum(weight * loss for weight, loss in terms) / sum(weight for weight, _ in terms))
    assert float(few_labels._contrastive_loss(vectors, labels)) == pytest.approx(float(sum(losses) / 4), rel=1e-5)


def test_an_epoch_has_each_row_once_mostly_beside_one_of_its_label():
    labels = np.eye(20)[np.random.default_rng(0).integers(20, size=203)]
    batches = list(few_labels._batches(labels, np.random.default_rng(1)))
    assert sorted(row for batch in batches for row in batch) == list(range(203))
    assert max(map(len, batches)) - min(map(len, batches)) <= 1
    for batch in batches:
        counts = Counter(labels[batch].argmax(1).tolist())
        assert sum(count == 1 for count in counts.values()) < len(batch) / 3


def test_folds_are_even_for_each_label_and_keep_equal_texts_together(tiny_checkpoint):
    rows = [{"text": f"the film {n % 50}", "label": "good" if n % 50 % 5 else "bad"} for n in range(60)]
    task, _, rows, _ = prepared(tiny_checkpoint, rows)
    folds = fold_of_rows(rows, task, 5, seed=0)
    assert all(folds[n] == folds[n + 50] for n in range(10))
    for label in ("good", "bad"):
        sizes = Counter(folds[n] for n in range(50) if rows[n]["label"] == label)
        assert max(sizes.values()) - min(sizes.values()) <= 1 and len(sizes) == 5
    assert (folds != fold_of_rows(rows, task, 5, seed=1)).any()


def test_few_rows_are_trained_for_few_labels_and_predicted_by_folds(
    tiny_checkpoint, opinions, words, tmp_path, capsys
):
    rows = [{"id": n, **row} for n, row in enumerate(opinions[:24])]
    assert cli.main(words(rows)) == 0
    text = capsys.readouterr().out
    results = read_results(tmp_path / "out")
    assert results["few_labels"] and "cross-validation in 4 folds" in text
    assert results["folds"]["seconds"] > 0 and 2 < results["folds"]["tokens_seen"] / results["best"]["tokens_seen"] < 4
    scores = re.findall(
        r"^cross-validation, fold (\d) of 4\nfold \1 of 4: accuracy ([\d.]+)%, \d+ s$", text, re.MULTILINE
    )
    assert [number for number, _ in scores] == ["1", "2", "3", "4"]
    assert text.index("fold 4 of 4: ") < text.index("\nfinal model, trained on all 24 rows\n")
    predictions = read_lines(tmp_path / "out/validation/predictions.jsonl")
    assert [line["input"]["id"] for line in predictions] == list(range(24))
    assert results["validation"]["metrics"]["accuracy"] > 0.6
    assert results["validation"]["rows"] == 24 and results["data"]["train"]["rows"] == 24
    task, tokenizer, table, _ = prepared(tiny_checkpoint, rows)
    folds = fold_of_rows(table, task, 4, seed=42)
    for (_, score), fold in zip(scores, range(4), strict=True):
        right = [predictions[n]["label"] == rows[n]["label"] for n in np.flatnonzero(folds == fold)]
        assert float(score) == pytest.approx(100 * np.mean(right), abs=0.1)
    rest = table.select(np.flatnonzero(folds != 1).tolist())
    set_seed(42)
    model, collate = new_model(task, str(tiny_checkpoint)), task.collator(tokenizer)
    few_labels.train(model, task.features(rest, tokenizer, training=True), collate, 42)
    for number in np.flatnonzero(folds == 1).tolist():
        logits = model(**collate([{"input_ids": tokenizer(rows[number]["text"])["input_ids"]}])).logits
        good = float(logits.detach().softmax(1)[0, task.config.label2id["good"]])
        assert predictions[number]["scores"]["good"] == pytest.approx(good, abs=1e-3)
    found = Predictor(tmp_path / "out", device="cpu")([row["text"] for row in rows])
    assert sum(one["label"] == row["label"] for one, row in zip(found, rows, strict=True)) >= 20
    before = (tmp_path / "out/model.safetensors").read_bytes()
    assert cli.main(words(rows, "--resume")) == 0
    assert (tmp_path / "out/model.safetensors").read_bytes() == before


ORDINARY = dict.fromkeys(("adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "num_train_epochs"), 0.5)


@pytest.mark.parametrize(("name", "value"), [*ORDINARY.items(), ("validation_share", 0.2), ("freeze", "encoder")])
def test_an_option_that_few_labels_would_ignore_trains_as_usual(tmp_path, name, value):
    settings = FinetuneSettings(task="sentiment", model="m", train="rows.csv", output=str(tmp_path))
    arguments = FinetuningArguments(output_dir=str(tmp_path))
    assert few_labels.may_be_few(settings, arguments)
    setattr(arguments if name in ORDINARY else settings, name, value)
    assert not few_labels.may_be_few(settings, arguments)


def test_a_dry_run_plans_few_labels(opinions, words, tmp_path, capsys):
    assert cli.main(words([*opinions[:24], *opinions[:2]], "--dry-run", "--slices", "label")) == 0
    text = capsys.readouterr().out
    assert "in 4 folds" in text and "held out" not in text and not (tmp_path / "out").exists()
    assert re.search("training features .* 26 ", text) and re.search("steps of the first run .* 8 ", text)


@pytest.mark.parametrize("count", [24, 100])
def test_a_run_takes_as_many_steps_as_are_planned(tiny_checkpoint, opinions, count):
    task, tokenizer, _, features = prepared(tiny_checkpoint, (opinions * 9)[:count])
    model, targets = new_model(task, str(tiny_checkpoint)), few_labels.targets_of(2, features)
    steps = few_labels._contrastive_steps(model, features, targets, task.collator(tokenizer), 1, bf16=False)
    assert len([*steps]) == few_labels.planned_steps(count) == {24: 8, 100: 32}[count]


def test_a_label_with_one_row_is_absent_from_its_fold(opinions, words, tmp_path):
    rows = [row for row in opinions if row["label"] == "good"][:12]
    rows.append(next(row for row in opinions if row["label"] == "bad"))
    assert cli.main(words(rows)) == 0
    predictions = read_lines(tmp_path / "out/validation/predictions.jsonl")
    assert predictions[-1]["label"] == "good" and predictions[-1]["scores"]["good"] > 0.99
    assert not list((tmp_path / "out/validation").glob("suspects*"))  # the fold has not learned the label
    assert Predictor(tmp_path / "out", device="cpu")(rows[-1]["text"])["scores"]["bad"] > 0.01


def test_a_signal_stops_the_training_of_few_labels_between_two_steps(opinions, words, monkeypatch, capsys):
    given = words(opinions[:24])
    steps, taken = few_labels._contrastive_steps, []

    def interrupted(*arguments):
        for step in steps(*arguments):
            taken.append(step)
            if len(taken) == 12:  # of the second fold, since each has 8
                signal.raise_signal(signal.SIGTERM)
            yield step

    monkeypatch.setattr(few_labels, "_contrastive_steps", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main(given)
    assert ended.value.code == 143 and len(taken) == 12
    message, hint = capsys.readouterr().out.splitlines()[-2:]
    assert message.startswith("stopped and saved after 1 of 4 folds")
    resumed = shlex.split(hint)
    assert resumed == ["mybert", *given, "--resume"]
    assert cli.main(resumed[1:]) == 0
    assert len(taken) == 12 + 4 * 8, "three folds and the model"
    assert "--resume: 1 of 4 folds are done\ncross-validation, fold 2 of 4\n" in capsys.readouterr().out


def test_given_validation_rows_score_few_labels_without_folds(opinions, words, write_rows, tmp_path, capsys):
    rows = [
        {"text": row["text"], "label": [row["label"], "any"][: 1 + number % 2]} for number, row in enumerate(opinions)
    ]
    validation = write_rows("validation.jsonl", rows[24:])
    assert cli.main(words(rows[:24], "--validation", validation, "--seeds", 2)) == 0
    assert "folds" not in capsys.readouterr().out
    results = read_results(tmp_path / "out")
    found = Predictor(tmp_path / "out", device="cpu")([row["text"] for row in rows[24:]])
    pairs = [(set(one["labels"]), set(row["label"])) for one, row in zip(found, rows[24:], strict=True)]
    both, each = sum(len(a & b) for a, b in pairs), sum(len(a) + len(b) for a, b in pairs)
    assert results["validation"]["metrics"]["f1_micro"] == pytest.approx(2 * both / each)
    assert [run["metrics"]["f1_micro"] for run in results["runs"]] and len(results["runs"]) == 2
    assert 0 < MyBertConfig.from_pretrained(tmp_path / "out").label_threshold < 1


def test_each_fold_is_predicted_by_the_model_of_the_others(
    finetune, opinions, write_rows, tmp_path, tiny_checkpoint, capsys
):
    words = ("--max-steps", 4, "--seed", 3)
    train = write_rows("rows.jsonl", opinions)
    assert finetune("sentiment", "--folds", 3, "--train", train, *words, output="folds") == 0
    headings = re.findall(r"^(?:cross-validation|final model), .*$", capsys.readouterr().out, re.MULTILINE)
    names = [f"cross-validation, fold {number} of 3" for number in (1, 2, 3)]
    assert headings == [*names, f"final model, trained on all {len(opinions)} rows"]
    task, _, rows, _ = prepared(tiny_checkpoint, opinions)
    folds = fold_of_rows(rows, task, 3, seed=3)
    rest = write_rows("rest.jsonl", [row for row, fold in zip(opinions, folds, strict=True) if fold != 1])
    assert finetune("text-classification", "--train", rest, *words, output="rest") == 0
    found = read_lines(tmp_path / "folds/validation/predictions.jsonl")
    assert len(found) == len(opinions) == read_results(tmp_path / "folds")["validation"]["rows"]
    predictor = Predictor(tmp_path / "rest", device="cpu")
    for number in np.flatnonzero(folds == 1).tolist():
        expected = predictor(opinions[number]["text"])
        assert found[number]["scores"]["good"] == pytest.approx(expected["scores"]["good"], abs=1e-4)


def test_intervals_of_few_rows_cover_the_score_of_all():
    draw = np.random.default_rng(0)
    covered, plain = 0, 0
    for _ in range(300):
        right = draw.random(16) < 0.9
        values = right[draw.integers(16, size=(200, 16))].mean(1)
        low, high = interval_95(values, 16, is_share=True, score=right.mean(), is_bounded=True)
        assert (low, high) == tuple(binomtest(int(right.sum()), 16).proportion_ci(method="wilson"))
        covered += low <= 0.9 <= high
        plain += np.percentile(values, 2.5) <= 0.9 <= np.percentile(values, 97.5)
    assert covered >= 0.92 * 300 > plain
    lows = [interval_95([0.9, 0.91], 11, is_share=False, score=f1, is_bounded=True)[0] for f1 in (0.88, 0.9, 10 / 11)]
    assert 0.5 < lows[0] < lows[1] < lows[2] == pytest.approx(binomtest(10, 11).proportion_ci(method="wilson").low)
    values = draw.normal(0.5, 0.1, size=2000)
    low, high = interval_95(values, 10, is_share=False, score=0.5)
    assert low < np.percentile(values, 1) and high > np.percentile(values, 99)
    assert interval_95(values, 1000, is_share=False, score=0.5) == tuple(np.percentile(values, (2.5, 97.5)))


@pytest.mark.parametrize(
    ("options", "started"),
    [
        ("--fp16 true", []),
        ("--num-train-epochs 1", [""]),
        ("--folds 2 --num-train-epochs 1", ["fold1of2", "fold2of2", ""]),
    ],
)
def test_only_trainers_that_train_start_trackers_with_the_lock_and_before_anything_is_lost(
    opinions, words, tmp_path, monkeypatch, capsys, options, started
):
    names: list[str] = []

    def begin(_tracker, args, *_others, **_kwargs):
        names.append(args.output_dir.partition("seed42")[2].strip("-"))

    def fail(*_arguments, **_kwargs):
        raise RuntimeError("no login")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TensorBoardCallback, "setup", None, raising=False)  # as those have that need a login
    monkeypatch.setattr(TensorBoardCallback, "on_train_begin", begin)
    given = words(opinions, *options.split(), "--report-to", "tensorboard", "--overwrite")
    assert cli.main(given) == 0
    assert list(dict.fromkeys(names)) == started
    assert read_results(tmp_path / "out")["few_labels"] == (not started)
    warning = "warning: no effect on few labels: --fp16, --report-to"
    assert (warning in capsys.readouterr().out) == (not started)
    if not started:
        return
    before = (tmp_path / "out/results.json").read_bytes()
    names.clear()
    with exclusive_lock(tmp_path / "out"):
        assert cli.main(given) == 2
    assert names == [] and "another run is writing" in capsys.readouterr().err
    monkeypatch.setattr(TensorBoardCallback, "on_train_begin", fail)
    assert cli.main(given) == 2
    assert "--report-to" in capsys.readouterr().err
    assert (tmp_path / "out/results.json").read_bytes() == before
