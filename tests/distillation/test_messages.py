"""Messages of `mybert distill`: for each teacher and setting, what the one line must say.

" … " in a message stands for anything.
"""

import shutil

import pytest

from tokenization import MyBertTokenizer

MISTAKES = [  # teacher, options, and message
    ("other", "", "has another vocabulary than the corpus; build the corpus with"),
    ("cased", "", "--teacher cased has another normalisation than the corpus"),
    ("bert", "--init-from other", "--init-from … name a checkpoint with the vocabulary of the corpus"),
    ("encoder", "--losses soft", "has no masked-language-model head; use relations"),
    ("bert", "--size tiny --losses cosine", "the hidden size of the teacher is 32"),
    ("bert", "--size tiny --losses relations --relation-heads 5", "must divide the hidden sizes"),
    ("bert", "--relation-heads 2", "--relation-heads has no effect without the loss relations"),
    ("encoder", "--temperature 3.0", "--temperature has no effect without the loss soft"),
    ("bert", "--layers 5", "--layers 5: … has 4 layers"),
    ("bert", "--layers 2 --size tiny", "--size and --layers exclude each other"),
    ("bert", "--losses hard=1", "add a loss that compares with the teacher"),
    ("bert", "--losses sotf=1", "found 'sotf=1'"),
    ("bert", "--temperature 0.0", "--temperature: expected above 0"),
    ("bert", "--time-budget 1m", "--time-budget chooses the size of the model, … use --max-steps"),
]


@pytest.fixture(scope="module")
def cased(teachers, tmp_path_factory):
    folder = shutil.copytree(teachers["bert"], tmp_path_factory.mktemp("cased") / "model")
    MyBertTokenizer.from_pretrained(folder, do_lower_case=False).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("teacher", "options", "message"), MISTAKES, ids=[case[-1] for case in MISTAKES])
def test_a_mistake_is_one_line_and_leaves_nothing(
    teachers, cased, corpus, assert_refused, tmp_path, teacher, options, message
):
    for name, folder in (*teachers.items(), ("cased", cased), ("corpus", corpus)):
        (tmp_path / name).symlink_to(folder)
    fixed = ["--teacher", teacher, "--corpus", "corpus", "--output", "out", "--max-steps", 1, "--use-cpu", "true"]
    assert_refused(["distill", *fixed, *options.split()], message)
