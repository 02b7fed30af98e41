"""Broken files: one message with file, line and remedy before training. Tests of the tasks have more messages."""

import json

import pytest

TEXT = {"text": "a good film", "label": "good"}
PAIR = {"premise": "a good film", "hypothesis": "a film", "label": "yes"}

REMEDY = "; correct them, or leave them out by --errors skip"


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


# what is wrong: task, name of the file, content, message after the file's name
BROKEN = {
    "no row has a text": (
        *("text-classification", "train.jsonl"),
        lines({**TEXT, "text": ""}),
        ": 1 of 1 lines cannot be used: line 1: the text is empty; are file and columns right?",
    ),
    "a text is white space, a label is null": (
        *("text-classification", "train.jsonl"),
        lines(TEXT, {**TEXT, "text": " "}, {**TEXT, "label": 1.5}, {**TEXT, "label": None}, {**TEXT, "label": " "}),
        ": 3 of 5 lines cannot be used: line 2: the text is empty; lines 4, 5: the label is missing" + REMEDY,
    ),
    "a text is a list": (
        *("text-classification", "train.jsonl"),
        lines(TEXT, {**TEXT, "text": ["b"]}),
        ": 1 of 2 lines cannot be used: line 2: the text is ['b'], not a string" + REMEDY,
    ),
    "no rows": ("text-classification", "train.jsonl", "", " is empty"),
    "no column of labels": (
        *("text-classification", "train.csv"),
        "sentence,opinion\na good film,good\n",
        " has no column for 'label' (looked for label, labels, score, category, class, target); there are sentence, "
        "opinion; name it by --columns label=COLUMN, or add a line of names if the file has none",
    ),
    "no column at all": (
        *("text-classification", "train.jsonl"),
        lines({"words": "x", "opinion": "y"}),
        " has no column for 'text' (looked for text, sentence1, premise, question1, question, sentence, review, "
        "document, content, body, tweet) and no column for 'label' (looked for label, labels, score, category, class, "
        "target); there are words, opinion; name them by --columns text=COLUMN label=COLUMN",
    ),
    "half of a pair": (
        *("text-classification", "train.jsonl"),
        lines(PAIR, {**PAIR, "hypothesis": " "}, {**PAIR, "hypothesis": None}),
        ": 2 of 3 lines cannot be used: line 2: the text_pair is empty; line 3: the text_pair is missing" + REMEDY,
    ),
    "several labels, and one": (
        *("text-classification", "train.jsonl"),
        lines({**TEXT, "label": ["good", "new"]}, TEXT),
        ": 1 of 2 lines cannot be used: line 2: the labels 'good' are not a list" + REMEDY,
    ),
    "a score that is no number": (
        *("text-classification", "train.jsonl"),
        lines(*({**TEXT, "label": i / 2} for i in range(1, 19)), {**TEXT, "label": "high"}, {**TEXT, "label": "2,5"}),
        ": 2 of 20 lines cannot be used: line 19: the label 'high' is not a number; "
        "line 20: the label '2,5' is not a number (write 2.5)" + REMEDY,
    ),
    "SQuAD's file without answers": (
        *("question-answering", "train.json"),
        json.dumps({"data": [{"paragraphs": [{"context": "the good film", "qas": [{"question": "who"}]}]}]}),
        ": 1 of 1 rows cannot be used: row 1: expected answers {'text': […], 'answer_start': […]}, two empty lists "
        "for none, found None; are file and columns right?",
    ),
    "a label beyond the choices": (
        *("multiple-choice", "train.jsonl"),
        lines(*({"context": "the film", "choices": ["good", "bad"], "label": label} for label in (0, 3))),
        ": 1 of 2 lines cannot be used: line 2: the label 3 is none of the choices (0 to 1, or a letter from A)"
        + REMEDY,
    ),
}


@pytest.mark.parametrize("wrong", BROKEN)
def test_a_broken_file_gets_one_message_before_training(finetune, tmp_path, capsys, wrong):
    task, name, content, message = BROKEN[wrong]
    train = tmp_path / name
    train.write_text(content, encoding="utf-8")
    assert finetune(task, "--train", train) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith(f"mybert finetune: error: {train}{message}")
    assert "Traceback" not in captured.out + captured.err
    assert not (tmp_path / "out").exists()
