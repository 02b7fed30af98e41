"""text-classification: single label, several labels, regression and windows, compared with transformers' BERT."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from datasets import Dataset
from json_files import change_json
from new_tasks import task_of
from scipy.special import softmax
from trained_runs import read_results as results
from transformers import (
    BertForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    pipeline,
    set_seed,
)

from modeling_mybert import MyBertConfig, MyBertForSequenceClassification
from mybert import Predictor, cli
from mybert.common.errors import UserError
from mybert.finetuning.run_data import load_data, new_task
from mybert.finetuning.settings import FinetuneSettings
from mybert.inference.logits import logits_of
from mybert.inference.task_checkpoint import load_finetuned
from mybert.tasks.settings import PredictorSettings
from mybert.tasks.text_classification import TextClassification
from tokenization import MyBertTokenizer


def predictions(folder, texts: list) -> list[dict]:
    return Predictor(str(folder), device="cpu")(texts)


def test_a_decisive_word_is_learned_and_the_pipeline_agrees_with_predict(classifier, opinions):
    config = MyBertConfig.from_pretrained(classifier)
    assert (config.id2label, config.problem_type) == ({0: "bad", 1: "good"}, "single_label_classification")
    said = predictions(classifier, [row["text"] for row in opinions])
    assert [one["label"] for one in said] == [row["label"] for row in opinions]
    texts = ["a lovely day", "an awful long afternoon in the rain", "dull"]
    classify = pipeline("text-classification", model=str(classifier), device="cpu")
    for one, other in zip(predictions(classifier, texts), classify(texts), strict=True):
        assert one["label"] == other["label"] and one["score"] == pytest.approx(other["score"], abs=1e-5)


@pytest.mark.slow
def test_the_loss_curve_is_that_of_transformers_bert_and_trainer(
    tiny_checkpoint, finetune, write_rows, opinions, tmp_path
):
    train = write_rows("train.jsonl", opinions)
    set_seed(7)
    start = tmp_path / "start"  # with a head, so that both begin alike
    bert = BertForSequenceClassification.from_pretrained(tiny_checkpoint, num_labels=2)
    bert.save_pretrained(start)
    tokenizer = MyBertTokenizer.from_pretrained(tiny_checkpoint)
    tokenizer.save_pretrained(start)
    same = ("--train", train, "--num-train-epochs", 4, "--seed", 7, "--logging-steps", 1)
    assert finetune("text-classification", *same, model=start) == 0
    losses = [log["loss"] for log in results(tmp_path / "out")["runs"][0]["log"] if "loss" in log]

    encoded = tokenizer([row["text"] for row in opinions])
    labels = [int(row["label"] == "good") for row in opinions]
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "bert"),
        learning_rate=5e-3,
        weight_decay=0.01,
        adam_epsilon=1e-6,
        warmup_steps=0.1,
        per_device_train_batch_size=8,
        num_train_epochs=4,
        seed=7,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    set_seed(7)
    dataset = Dataset.from_dict({**encoded, "labels": labels})
    trainer = Trainer(bert, arguments, DataCollatorWithPadding(tokenizer), train_dataset=dataset)
    trainer.train()
    expected = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    assert len(expected) == 24
    assert expected[-1] < expected[0] / 2
    assert np.abs(np.array(losses) - expected).max() < 1e-4


def test_pairs_are_two_segments_and_labels_may_be_numbers(tiny_checkpoint):
    tokenizer, task = MyBertTokenizer.from_pretrained(tiny_checkpoint), task_of()
    rows = [{"sentence1": f"the {a}", "sentence2": f"a {b}", "label": int(a == b)} for a in "xy" for b in "xy"]
    renamed = task.by_role(Dataset.from_list(rows), "rows", labelled=True)[0]
    task = task.fitted(renamed)
    features = task.features(renamed, tokenizer, training=True)
    assert task.config.label2id == {"0": 0, "1": 1} and features["labels"][:] == [1, 0, 0, 1]
    assert features["input_ids"][1] == tokenizer("the x", "a y")["input_ids"]
    assert features["token_type_ids"][1] == [0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("names", "columns", "expected"),
    [
        (("question", "sentence"), [], {"text": "question", "text_pair": "sentence"}),
        (("text",), [], {"text": "text"}),
        (("premise", "hypothesis"), [], {"text": "premise", "text_pair": "hypothesis"}),
        (("Premise", "Hypothesis"), [], {"text": "Premise", "text_pair": "Hypothesis"}),
        (("Text", "text"), [], {"text": "text"}),
        (("text", "sentence2"), [], {"text": "text"}),  # no usual pair
        (("text", "sentence2"), ["text_pair=sentence2"], {"text": "text", "text_pair": "sentence2"}),
    ],
)
def test_columns_are_found_by_their_usual_names_or_are_named(names, columns, expected):
    found = task_of(columns=columns).find_columns([*names, "idx", "label"], "file", labelled=True)
    assert found == {**expected, "label": "label"}


def test_column_names_of_training_that_a_file_lacks_can_be_given():
    """A checkpoint stores `--columns`; the file to evaluate may have other names."""
    options = TextClassification.Options(columns=["text=body", "label=gold"])
    stored = TextClassification(options, MyBertConfig(), trained_inputs=("text",))
    found = stored.find_columns(["body"], "new.csv", labelled=False)
    with pytest.raises(UserError) as caught:
        stored.find_columns(["body", "label"], "test.csv", labelled=True)
    message = "test.csv has no column 'gold'; there are body, label; name it by --columns label=COLUMN"
    assert (found, str(caught.value)) == ({"text": "body"}, message)
    with pytest.raises(UserError, match=r"^it has no column 'body'; there are title$"):  # a request has no --columns
        dataclasses.replace(stored, asks=False).find_columns(["title"], "it", labelled=False)


def test_a_model_of_single_texts_ignores_a_second_text(classifier):
    one, both = predictions(classifier, ["a good film", {"text": "a good film", "text_pair": "a dull book"}])
    assert both["scores"] == pytest.approx(one["scores"])


def test_the_problem_of_a_foreign_checkpoint_can_be_given(tiny_checkpoint, tmp_path):
    model = MyBertForSequenceClassification.from_pretrained(tiny_checkpoint, num_labels=3)
    model.save_pretrained(tmp_path / "theirs")
    MyBertTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path / "theirs")
    said = Predictor(tmp_path / "theirs", problem="multi-label", device="cpu")("a good film")
    assert said["labels"] == [name for name, score in said["scores"].items() if score > 0.5]


def test_windows_average_the_logits_of_overlapping_parts(tiny_checkpoint):
    torch.manual_seed(0)
    model = MyBertForSequenceClassification.from_pretrained(tiny_checkpoint, num_labels=3).eval()
    model.config.problem_type = "single_label_classification"
    tokenizer = MyBertTokenizer.from_pretrained(tiny_checkpoint)
    task = task_of(config=model.config, max_length=10, stride=2, long_texts="window")
    texts = ["the very good", " ".join("abcdefghijklmnopqrstu")]
    rows = Dataset.from_dict({"text": texts})
    features = task.features(rows, tokenizer, training=False)
    assert features["row"][:] == [0, 1, 1, 1, 1]
    found = task.decode(logits_of(model, task, tokenizer, features), features, rows)

    ids = tokenizer(texts[1], add_special_tokens=False)["input_ids"]
    windows = [[tokenizer.cls_token_id, *ids[start : start + 8], tokenizer.sep_token_id] for start in (0, 6, 12, 18)]
    with torch.no_grad():
        logits = torch.cat([model(torch.tensor([window])).logits for window in windows]).mean(0).numpy()
    assert np.allclose(list(found[1]["scores"].values()), softmax(logits), atol=1e-6)


def test_a_stored_stride_without_effect_is_not_refused(classifier, tmp_path):
    windowed = shutil.copytree(classifier, tmp_path / "windowed")
    finetuned = json.loads((windowed / "config.json").read_text())["finetuned"]
    change_json(windowed / "config.json", finetuned=finetuned | {"long_texts": "window", "stride": 3})
    for given, expected in (({"stride": 4}, ("window", 4)), ({"long_texts": "truncate"}, ("truncate", 3))):
        found = load_finetuned(PredictorSettings(model=str(windowed), **given)).task.options
        assert (found.long_texts, found.stride) == expected


@pytest.mark.parametrize(
    ("lengths", "limit", "expected"),
    [
        ([20] * 99 + [300], 512, 128),  # 1% are longer
        ([20] * 90 + [203] * 10, 512, 208),
        ([20] * 90 + [203] * 10, 160, 160),
        ([20] * 90 + [203] * 10, 64, 64),
        ([20] * 100, 64, 64),
        ([300] * 100, 512, 304),
    ],
)
def test_the_default_length_truncates_at_most_one_row_in_a_hundred(
    tiny_checkpoint, write_rows, tmp_path, lengths, limit, expected, capsys
):
    model = tmp_path / "model"
    config = MyBertConfig.from_pretrained(tiny_checkpoint, max_position_embeddings=512)
    MyBertForSequenceClassification(config).save_pretrained(model)
    MyBertTokenizer.from_pretrained(tiny_checkpoint, model_max_length=limit).save_pretrained(model)
    rows = [{"text": "a " * (length - 2), "label": number % 2} for number, length in enumerate(lengths)]
    settings = FinetuneSettings(
        task="text-classification",
        model=str(model),
        train=str(write_rows("train.jsonl", rows)),
        output="out",
        validation_share=0,
    )
    task, tokenizer = new_task(settings)
    task, data = load_data(settings, task, tokenizer)
    read = [sum(min(length, most) for length in lengths) for most in (128, expected)]
    printed = capsys.readouterr().out
    assert (f"reads {1 - read[0] / read[1]:.1%} fewer tokens" in printed) == (expected > 128)
    assert printed.count("using --max-length") == (expected != 128)
    found = sum(len(ids) > expected for ids in task.token_ids(data.splits["train"].rows, tokenizer))
    assert task.options.max_length == task.config.finetuned["max_length"] == tokenizer.model_max_length == expected
    assert expected == limit or found <= 0.01 * len(rows)
    assert max(len(ids) for ids in data.train_features["input_ids"][:]) == min(expected, max(lengths))


def labelled(problem: str, names: str, thresholds: list[str]) -> TextClassification:
    config = MyBertConfig(problem_type=problem, id2label=dict(enumerate(names)))
    return task_of(config=config, threshold=thresholds).loaded("model")


def test_a_threshold_of_every_label_decides_on_several_labels():
    logits = np.random.default_rng(0).normal(size=(50, 3))
    task = labelled("multi_label_classification", "abc", ["0.4", "c=0.7"])
    expected = [
        [
            name
            for name, value, least in zip("abc", row, (0.4, 0.4, 0.7), strict=True)
            if 1 / (1 + np.exp(-value)) > least
        ]
        for row in logits
    ]
    assert [one["labels"] for one in task.kind.predictions(logits)] == expected
    task.config.label_threshold = 0.9  # tuned for all labels: those given go first
    assert [one["labels"] for one in task.kind.predictions(logits)] == expected


def test_rows_without_any_label_tune_no_threshold():
    rows = Dataset.from_dict({"text": ["a", "b"], "label": [[], []]})
    task = labelled("multi_label_classification", "ab", [])
    assert task.tuned(np.zeros((2, 2)), Dataset.from_dict({"row": [0, 1]}), rows) == {}


@pytest.mark.parametrize(
    ("thresholds", "scores", "expected"),
    [
        ([], [0.5, 0.3, 0.2], "a"),
        (["b=0.25"], [0.5, 0.3, 0.2], "b"),
        (["b=0.35"], [0.5, 0.3, 0.2], "a"),
        (["a=0.9"], [0.6, 0.1, 0.3], "c"),
        (["b=0.2", "c=0.1"], [0.5, 0.3, 0.2], "b"),
        (["0.9"], [0.5, 0.3, 0.2], "a"),  # none is above: the most probable one
    ],
)
def test_a_threshold_decides_on_one_label(thresholds, scores, expected):
    task = labelled("single_label_classification", "abc", thresholds)
    (found,) = task.kind.predictions(np.log([scores]))
    assert (found["label"], found["score"]) == (expected, pytest.approx(scores["abc".index(expected)]))


def test_predict_and_evaluate_use_the_threshold_that_finetune_stored(finetuned, tmp_path):
    rows = [
        {"text": f"the very good {number}" if number % 2 else "very bad", "label": "ab"[number % 2]}
        for number in range(24)
    ]
    words = ("--max-steps", 1, "--bootstrap", 0, "--threshold", "a=0")
    folder = finetuned("text-classification", rows, *words, validation=rows)
    assert [one["label"] for one in predictions(folder, ["very good", "bad"])] == ["a", "a"]
    analysis = json.loads((folder / "validation" / "analysis.json").read_text())["precision_recall"]["a"]
    assert len(analysis["threshold"]) == len(analysis["precision"]) and 0 <= analysis["best_threshold"] <= 1
    data = str(folder.parent / "train.jsonl")
    command = ["evaluate", "--model", str(folder), "--data", data, "--output", str(tmp_path / "scores")]
    assert cli.main([*command, "--threshold", "b=0", "--bootstrap", "0"]) == 0
    assert results(tmp_path / "scores")["labels"]["b"]["predicted"] == len(rows)
