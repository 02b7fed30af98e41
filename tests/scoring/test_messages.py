"""Messages of `mybert score`: for each mistake, what its one line must say."""

import shutil

import pytest

TEXT, PAIR = '{"text": "a"}\n', '{"good": "a", "bad": "b"}\n'
MISTAKES = [  # content of rows.jsonl, words, and message
    (TEXT + '{"text": " "}', "filler", "rows.jsonl, line 2: empty text"),
    (TEXT + '{"text": "\u200d"}', "filler", "rows.jsonl, line 2: no token"),
    (
        *('{"good": "a", "worse": "b"}', "filler --pairs good,bad"),
        "no text in column 'bad' (there are 'good', 'worse'; choose two by --pairs A,B)",
    ),
    (
        *('{"better": "a", "bad": "b"}', "filler --pairs good,bad"),
        "no column 'good' (there are 'better', 'bad'; choose two by --pairs A,B)",
    ),
    ('{"good": "a", "bad": ""}', "filler --pairs good,bad", "line 1: empty text (column 'bad')"),
    ('{"good": "a", "bad": 1}', "filler --pairs good,bad", "line 1: no text in column 'bad'; correct it"),
    (PAIR, "filler --pairs good", "two columns such as good,bad"),
    (PAIR, "filler --pairs good,bad --masking whole-word", "--pairs compares whole texts"),
    (TEXT, "filler --max-length 65", "--max-length 65: … has 64 positions"),
    (TEXT, "encoder", "encoder … no masked-language-model head"),
]


@pytest.mark.parametrize(("content", "words", "message"), MISTAKES)
def test_a_mistake_is_one_line(models, tmp_path, assert_refused, content, words, message):
    for name in ("filler", "encoder"):
        shutil.copytree(models(name), tmp_path / name)
    (tmp_path / "rows.jsonl").write_text(content, encoding="utf-8")
    assert_refused(["score", *words.split(), "rows.jsonl", "--output", "out.jsonl"], message)
