"""multiple-choice: columns, features, and a rule that a tiny model learns."""

import json

import pytest
from datasets import Dataset

from modeling_mybert import MyBertConfig, MyBertForMultipleChoice
from mybert import Predictor
from mybert.common.errors import UserError
from mybert.finetuning.evaluation.inference import predict_rows
from mybert.finetuning.task_checkpoint import Finetuned
from mybert.finetuning.tasks.multiple_choice import MultipleChoice
from tokenization import MyBertTokenizer


@pytest.fixture
def swag() -> list[dict]:
    """The right ending is the one with a good word."""
    return [
        {"sent1": "the film", "sent2": "a", "ending0": one, "ending1": other, "label": int(other == good)}
        for good in ("good film", "lovely book", "great song", "fine play")
        for bad in ("bad film", "dull book", "awful song")
        for one, other in ((good, bad), (bad, good))
    ]


def task(**settings) -> MultipleChoice:
    return MultipleChoice(MultipleChoice.Options.of(settings), MyBertConfig())


def test_the_first_line_counts_choices(swag):
    rows = task().canonical(Dataset.from_list(swag), "rows", labelled=True)[0]
    count = sum(name.startswith("ending") for name in swag[0])
    assert task().summary(rows) == f"multiple-choice: {count} choices for each context"


def test_each_choice_is_encoded_after_the_context_and_the_start(tiny_checkpoint, swag):
    tokenizer = MyBertTokenizer.from_pretrained(tiny_checkpoint)
    rows = task().canonical(Dataset.from_list(swag), "rows", labelled=True)[0]
    features = task().features(rows, tokenizer, training=True)
    assert features["input_ids"][1] == [
        tokenizer("the film", f"a {ending}")["input_ids"] for ending in (swag[1]["ending0"], swag[1]["ending1"])
    ]
    assert features["labels"][:] == [row["label"] for row in swag]


@pytest.mark.parametrize("label", ["B", "b", "1", 1, "1.0", 1.0])
def test_choices_may_be_a_list_and_labels_letters(label):
    rows = Dataset.from_list([{"article": "x", "question": "y", "options": ["1", "2", "3"], "answer": label}])
    rows = task().canonical(rows, "rows", labelled=True)[0]
    assert rows[0] == {"context": "x", "start": "y", "choices": ["1", "2", "3"], "label": label}
    assert task().check_rows(rows, training=True) == []
    assert task().references(rows) == [1]


@pytest.mark.parametrize(
    ("names", "columns", "expected"),
    [
        (("ctx_a", "ctx_b", "ctx"), [], {"context": "ctx_a", "start": "ctx_b"}),
        (("ctx_b", "ctx"), [], {"context": "ctx"}),
        (("ctx_a", "ctx_b", "ctx"), ["context=ctx"], {"context": "ctx"}),
        (("ctx_a", "ctx_b", "ctx"), ["context=ctx", "start=ctx_b"], {"context": "ctx", "start": "ctx_b"}),
    ],
)
def test_columns_of_hellaswag_are_not_read_twice(names, columns, expected):
    found = task(columns=columns).find_columns([*names, "endings", "label"], "rows", labelled=True)
    assert found == {**expected, "choices": "endings", "label": "label"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": "C"}, "the label 'C' is none of the choices"),
        ({"label": None}, "the label is missing"),
        ({"label": "9" * 5000}, "the label '999"),
        ({"label": "1.5"}, "the label '1.5' is none of the choices"),
        ({"choices": ["one"]}, "expected two or more choices, found ['one']"),
        ({"choices": ["one", "two", "three"]}, "3 choices, the first row has 2"),
        ({"choices": ["one", ""]}, "choice 1 is empty"),
        ({"context": " "}, "the context is empty"),
    ],
)
def test_a_broken_row_is_named(row, message):
    good = {"context": "x", "choices": ["one", "two"], "label": "A"}
    problems = task().check_rows(Dataset.from_list([good, {**good, **row}]), training=True)
    assert [(problem.row, problem.message[: len(message)]) for problem in problems] == [(1, message)]


@pytest.mark.slow
def test_a_rule_is_learned_and_predicted_without_labels(finetune, write_rows, swag, tmp_path):
    train = write_rows("train.jsonl", swag)
    words = ("--train", train, "--validation", train, "--num-train-epochs", 5)
    assert finetune("multiple-choice", *words) == 0
    assert json.loads((tmp_path / "out/results.json").read_text())["validation"]["metrics"] == {"accuracy": 1}
    said = Predictor(tmp_path / "out", device="cpu")([{k: v for k, v in row.items() if k != "label"} for row in swag])
    assert [one["choice"] for one in said] == [row["label"] for row in swag]
    assert [one["text"] for one in said] == [row[f"ending{row['label']}"] for row in swag]


@pytest.mark.parametrize("digits", [1, 2])
def test_choices_are_read_from_numbered_columns_of_one_name(digits):
    rows = Dataset.from_list([{"context": "c", **{f"ending{i:0{digits}}": f"e{i}" for i in range(12)}, "label": 11}])
    rows = task().canonical(rows, "rows", labelled=True)[0]
    assert rows[0]["choices"] == [f"e{i}" for i in range(12)] and task().references(rows) == [11]
    mixed = Dataset.from_list([{"context": "c", "ending0": "a", "ending1": "b", "option_0": "z"}])
    with pytest.raises(UserError, match=r"rows: columns of choices have several names \(ending, option_\)"):
        task().canonical(mixed, "rows", labelled=False)


def test_rows_with_different_numbers_of_choices_are_predicted_as_if_alone(tiny_checkpoint):
    tokenizer = MyBertTokenizer.from_pretrained(tiny_checkpoint)
    reader = task()
    model = MyBertForMultipleChoice.from_pretrained(tiny_checkpoint).eval()
    rows = Dataset.from_list([{"context": "the film", "choices": ["good", "bad", "dull film"][:n]} for n in (2, 3, 2)])
    assert not reader.check_rows(rows, training=False)
    assert "3 choices, the first row has 2" in str(reader.check_rows(rows, training=True))
    together = predict_rows(Finetuned(model, tokenizer, reader), rows)
    alone = [predict_rows(Finetuned(model, tokenizer, reader), rows.select([i]))[0] for i in range(3)]
    assert [len(one["scores"]) for one in together] == [2, 3, 2]
    for one, other in zip(together, alone, strict=True):
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-6) and one["choice"] == other["choice"]
