"""Messages of `mybert suggest`: for each model and setting, what the one line must say.

" … " in a message stands for anything.
"""

import pytest
from json_files import write_files

FILES = {
    "rows.jsonl": [{"text": "a film", "context": "a great film", "question": "who"}],
    "pairs.jsonl": [{"text": "a film", "text_pair": "a great film"}],
}
MISTAKES = [  # words after `mybert suggest`, with the name of a model in braces, and message
    (
        "{reader} rows.jsonl --output o.jsonl",
        "expected a model of text-classification … , found question-answering in … label random rows instead",
    ),
    ("{regression} rows.jsonl --output o.jsonl", "found regression in … label random rows instead"),
    ("{classifier} rows.jsonl --output o.txt", "--output: expected a file name in .jsonl, .csv, .json"),
    ("{classifier} rows.jsonl --output o.json --format doccano", "in .jsonl for --format doccano"),
    (
        "{pairs} pairs.jsonl --output o.jsonl --format doccano",
        "--format doccano: doccano shows one text, and these rows are pairs; use label-studio",
    ),
    ("{classifier} rows.jsonl --output o.jsonl --labelled no.csv", "no.csv: there is no such file"),
    (
        "{classifier} rows.jsonl --output o.jsonl --labelled rows.jsonl",
        "no row is left to suggest; left out: 1 like labelled rows",
    ),
    ("{classifier} rows.jsonl", "--output"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_a_mistake_is_one_line_and_writes_nothing(models, assert_refused, tmp_path, words, message):
    write_files(tmp_path, FILES)
    model, *words = words.split()
    assert_refused(["suggest", models(model.strip("{}")), *words], message)
