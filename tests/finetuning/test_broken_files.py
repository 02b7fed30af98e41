"""Broken files of every task."""

import json

import pytest

TEXT = {"text": "a good film", "label": "good"}
PAIR = {"premise": "a good film", "hypothesis": "a film", "label": "yes"}
TAGGED = {"tokens": ["the", "good", "film"], "tags": ["O", "B-ART", "I-ART"]}
QUESTION = {"question": "who", "context": "the good film", "answers": {"text": ["film"], "answer_start": [9]}}
CHOICE = {"context": "the film", "choices": ["good", "bad"], "label": 0}

REMEDY = "; correct them, or leave them out by --errors skip"


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def nested(*questions: dict) -> str:
    paragraph = {"context": "the good film", "qas": list(questions)}
    return json.dumps({"version": "v2.0", "data": [{"title": "film", "paragraphs": [paragraph]}]})


# what is wrong: task, name of the file, content, message after the file's name
BROKEN = {
    "a text is missing, a label is empty": (
        *("text-classification", "train.jsonl"),
        lines(TEXT, {**TEXT, "text": None}, TEXT, {**TEXT, "label": ""}),
        ": 2 of 4 lines cannot be used: line 2: the text is missing; line 4: the label is missing" + REMEDY,
    ),
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
    "a line is a number": (
        "text-classification",
        "train.jsonl",
        lines(TEXT) + "7",
        ", line 2: not an object (found int)",
    ),
    "no column of texts": ("text-classification", "train.jsonl", lines({"words": "x"}), " has no column for 'text'"),
    "no rows": ("text-classification", "train.jsonl", "", " is empty"),
    "a line is cut off": (
        *("text-classification", "train.jsonl"),
        lines(TEXT) + '{"text": "a bad film", "la',
        ", line 2: not JSON (Unterminated string starting at character 24); correct it",
    ),
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
    "a field too many": (
        *("text-classification", "train.csv"),
        "text,label\na good film,good\na bad, dull film,bad\n",
        ", line 3: wrong number of columns (3, the header has 2); correct it",
    ),
    "half of a pair": (
        *("text-classification", "train.jsonl"),
        lines(PAIR, {**PAIR, "hypothesis": " "}),
        ": 1 of 2 lines cannot be used: line 2: the text_pair is empty" + REMEDY,
    ),
    "several labels, and one": (
        *("text-classification", "train.jsonl"),
        lines({**TEXT, "label": ["good", "new"]}, TEXT),
        ": 1 of 2 lines cannot be used: line 2: the labels 'good' are not a list" + REMEDY,
    ),
    "a score that is no number": (
        *("text-classification", "train.jsonl"),
        lines(*({**TEXT, "label": i / 2} for i in range(1, 10)), {**TEXT, "label": "high"}),
        ": 1 of 10 lines cannot be used: line 10: the label 'high' is not a number" + REMEDY,
    ),
    "a word without a tag": (
        *("token-classification", "train.conll"),
        "the O\ngood B-ART\nfilm\n",
        ", line 3: expected 2 columns as in the first line, found 1: 'film'",
    ),
    "an answer that stands elsewhere": (
        *("question-answering", "train.jsonl"),
        lines(QUESTION, {**QUESTION, "answers": {"text": ["good"], "answer_start": [3]}}),
        ": 1 of 2 lines cannot be used: line 2: the answer 'good' does not stand at character 3 (' goo' does); the "
        "context has it at 4" + REMEDY,
    ),
    "SQuAD's file, a question without text": (
        *("question-answering", "train.json"),
        nested({"id": "q1", "answers": []}),
        ", article 1, paragraph 1, question 1: expected an object with 'question', a text, found "
        "\"{'id': 'q1', 'answers': []}\"",
    ),
    "SQuAD's file without answers": (
        *("question-answering", "train.json"),
        nested({"id": "q1", "question": "who"}),
        ": 1 of 1 rows cannot be used: row 1: expected answers {'text': […], 'answer_start': […]}, two empty lists "
        "for none, found None; are file and columns right?",
    ),
    "a label beyond the choices": (
        *("multiple-choice", "train.jsonl"),
        lines(CHOICE, {**CHOICE, "label": 2}),
        ": 1 of 2 lines cannot be used: line 2: the label 2 is none of the choices (0 to 1, or a letter from A)"
        + REMEDY,
    ),
    "a choice too many": (
        *("multiple-choice", "train.jsonl"),
        lines(CHOICE, {**CHOICE, "choices": ["good", "bad", "dull"]}),
        ": 1 of 2 lines cannot be used: line 2: 3 choices, the first row has 2" + REMEDY,
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
