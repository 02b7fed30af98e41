"""Messages of `mybert adapt` and `trim`: for each list of words, text and setting, what the one line must say.

" … " in a message stands for anything.
"""

import shutil
import string

import pytest
from json_files import write_files
from tiny_models import WORDS

CYRILLIC = [{"text": f"танкер нефть {a}{b}"} for a in "абвгд" for b in "абвгд"]
FILES = {
    "known.jsonl": [{"text": "the oil price rises and falls"}] * 9,
    "repeated.jsonl": [{"text": "the tanker tanker tanker"}] * 9,
    "empty.jsonl": [{"text": ""}, {"text": " "}],
    "cyrillic.jsonl": CYRILLIC,
    "tags.jsonl": [{"tokens": ["the", "tanker"], "tags": ["O", "O"]}],
    "words.txt": f"{' '.join(WORDS)} {' '.join(string.punctuation)}",
}
NO_NEW_WORD, NO_TEXT = "no new word occurs in 3 documents, which blank lines separate", "no document holds text"
ADAPT = [  # what is adapted to, options, and message
    ("", "", "--task-data"),
    ("known.jsonl", "", NO_NEW_WORD),
    ("repeated.jsonl", "", NO_NEW_WORD),
    ("empty.jsonl", "", NO_TEXT),
    ("known.jsonl", "--replay empty.jsonl", NO_TEXT),
    ("known.jsonl", "--general empty.jsonl", NO_TEXT),
    ("cyrillic.jsonl", "--new-words 0", "cannot read the text: 100% of its words are [UNK]; use a model whose"),
    ("known.jsonl", "--max-length 999", "--max-length 999: … has 64 positions"),
    ("known.jsonl", "--new-words many", "--new-words: expected 0 or more, or auto, found 'many'"),
    (
        *("known.jsonl", "--new-words 0 --freeze all"),
        "--freeze all has no effect with --new-words 0: there are no vectors of new words to train",
    ),
    ("known.jsonl", "--lora-rank 2 --freeze encoder", "leave out --freeze encoder"),
    ("known.jsonl", "--freeze all --weight-decay 0.1", "--weight-decay has no effect with --freeze all"),
    ("known.jsonl", "--lora-rank 2 --weight-decay 0.1", "--weight-decay has no effect with --lora-rank"),
    ("known.jsonl", "--time-budget 1m", "--time-budget and --max-steps exclude each other"),
    ("known.jsonl", "--time-budget soon", "--time-budget: expected a time like 90s"),
    ("known.jsonl", "--columns text=body", "--columns has no effect without --task-data"),
    ("known.jsonl", "--task ner", "--task has no effect without --task-data"),
    ("known.jsonl", "--replay-share 0.5", "--replay-share has no effect without --replay"),
    ("-", "--resume", "--resume cannot read standard input again"),
]
LISTS = [  # of --words, and message
    ("the\n[MASK]\n", "only words that are already in the vocabulary, for example 'the'"),
    (
        "a b\nthe\n" + "a b\n" * 5,
        "".join(f"line {line}: 'a b' contains a space; " for line in (1, 3, 4, 5, 6)) + "and 1 more",
    ),
    ("tanker\noil price\n", "line 2: 'oil price' contains a space"),
    ("tan\x00ker\n", "line 1: … contains a control character"),
    ("e-mail\n", "line 1: 'e-mail' is not one word: the tokenizer splits it into e - mail"),
    ("\u0301\n", "line 1: … is not one word: the tokenizer removes it"),
    ("tanker\nbarrel\nTanker\n", "line 3: 'Tanker' becomes 'tanker', which is also in line 1"),
    ("\n", "has no words"),
    ("x" * 101, "a word of 101 characters, BERT reads at most 100"),
    (b"\xff\xfe\xff", "--words list.txt: not UTF-8; save the file as UTF-8"),
]
TRIM = [  # text and model, and message
    ("--model model", "--task-data"),
    ("empty.jsonl --model model", NO_TEXT),
    ("--task-data empty.jsonl --model model", NO_TEXT),
    ("--task-data tags.jsonl --model model", "has no column for 'text' … or name another task by --task"),
    ("words.txt --model model", "the text needs all … tokens of model; there is nothing to trim"),
    ("words.txt --model bare", "bare has no tokenizer … ; copy its tokenizer.json"),
]


@pytest.fixture
def adapt_refused(bert, assert_refused, tmp_path):
    """A function from texts, options and the message with which `mybert adapt` refuses them."""
    fixed = ["--model", bert, "--max-steps", 4, "--max-length", 32, "--eval-characters", 300, "--num-proc", 1]
    write_files(tmp_path, FILES)
    return lambda texts, options, message: assert_refused(
        ["adapt", *texts.split(), *fixed, "--output", "out", *options.split()], message
    )


@pytest.mark.parametrize(("texts", "options", "message"), ADAPT, ids=[f"{case[0]} {case[1]}" for case in ADAPT])
def test_a_mistake_is_one_line_and_leaves_nothing(adapt_refused, texts, options, message):
    adapt_refused(texts, options, message)


@pytest.mark.parametrize(("words", "message"), LISTS, ids=[message for _, message in LISTS])
def test_a_bad_list_of_words_is_one_line_and_leaves_nothing(adapt_refused, tmp_path, words, message):
    write_files(tmp_path, {"list.txt": words})
    adapt_refused("known.jsonl", "--words list.txt", message)


def test_a_mistake_keeps_the_model_that_was_to_be_replaced(adapt_refused, tmp_path):
    write_files(tmp_path, {"out/manifest.json": '{"stage": "adapt", "complete": true}', "out/words.txt": "tanker"})
    adapt_refused("empty.jsonl", "--overwrite", NO_TEXT)
    adapt_refused(
        "known.jsonl", "--overwrite --words out/words.txt", "holds the input out/words.txt; name another folder"
    )


@pytest.mark.parametrize(("words", "message"), TRIM, ids=[words for words, _ in TRIM])
def test_a_text_that_trims_nothing_is_one_line_and_leaves_nothing(models, assert_refused, tmp_path, words, message):
    write_files(tmp_path, FILES)
    shutil.copytree(models("encoder"), tmp_path / "model")
    shutil.copytree(
        tmp_path / "model", tmp_path / "bare", ignore=shutil.ignore_patterns("tokenizer.json", "vocab.txt")
    )
    assert_refused(["trim", *words.split(), "--output", "out"], message)
