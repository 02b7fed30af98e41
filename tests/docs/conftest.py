"""A folder with tiny data and tiny models for the code of documentation and examples."""

import contextlib
import json
import shlex
import sys
from glob import glob
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from json_files import write_lines

from mybert import cli

SMALLER = {  # appended to each command: the last of two equal flags wins
    "tokenizer": ("--vocab-size", "300", "--num-proc", "1"),
    "corpus": ("--max-length", "32", "--num-proc", "1", "--validation-share", "0.2"),
    "pretrain": ("--max-steps", "2", "--save-steps", "2"),
    "adapt": ("--max-steps", "2", "--max-length", "32", "--eval-characters", "100", "--num-proc", "1"),
    "distill": ("--max-steps", "2", "--save-steps", "2"),
    "finetune": ("--max-steps", "2", "--max-length", "32", "--bootstrap", "20"),
}


def run_command(words: list[str], text: str | None = None) -> None:
    """Runs `mybert …` in this process; `text` is its standard input."""
    assert words[0] == "mybert", words
    expanded = [name for word in words[1:] for name in (sorted(glob(word)) if "*" in word else [word])]
    with pytest.MonkeyPatch.context() as patch:
        if text is not None:
            patch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text.encode()), encoding="utf-8"))
        with contextlib.redirect_stdout(StringIO()) as printed:
            assert cli.main([*expanded, *SMALLER.get(words[1], ())]) == 0, words
    print(printed.getvalue(), end="")
    check_closing_lines(words, printed.getvalue())


def check_closing_lines(words: list[str], printed: str) -> None:
    """The last lines of each command say where the output is, how to open its report, and what to look at in it."""
    if "--dry-run" in words:
        assert printed.endswith("\ndry run: nothing was written\n"), words
    elif "--output" in words:
        output = words[words.index("--output") + 1]
        _, place, last = printed.rpartition(f"the output is in {output}\n")
        assert place, (words, printed)
        opens, *warnings = last.splitlines() or [""]
        page = Path(output) if output.endswith(".html") else next(Path(output).glob("*.html"), None)
        assert opens == ("" if page is None else f"open {page} in a browser to see the results"), words
        assert all(line.startswith("  ") or f"`mybert doctor {output}`" in line for line in warnings), words


@pytest.fixture
def run_mybert():
    """A function that runs `mybert …`, given as words and standard input, on little data."""
    return run_command


def sentences(seed: int) -> list[str]:
    nouns, verbs = ("film", "book", "song", "story", "scene", "sea"), ("ends", "begins", "moves", "sings", "waits")
    return [
        f"The {nouns[(seed + i) % 6]} {verbs[(seed * 3 + i) % 5]} near the {nouns[(seed * 5 + 2 * i) % 6]}."
        for i in range(8)
    ]


@pytest.fixture(scope="session")
def workspace(tmp_path_factory) -> Path:
    """A folder with text, labelled rows, a pretrained model and a classifier, as the guides assume."""
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "books").mkdir()
    for i in range(12):
        (folder / "books" / f"{i}.txt").write_text(" ".join(sentences(i)) + "\n")
    labels = {"good": "a great {}", "bad": "a dull {}"}
    rows = [
        {"text": form.format(n), "label": name}
        for n in ("film", "book", "song", "scene")
        for name, form in labels.items()
    ]
    tagged = [
        {"tokens": ["Ann", "sings", "a", noun], "tags": ["B-PER", "O", "O", "O"]} for noun in ("song", "story", "film")
    ]
    context = "The song was written by Ann."
    answers = [
        {"question": "Who wrote it?", "context": context, "answers": {"text": ["Ann"], "answer_start": [24]}}
    ] * 3
    choices = [{"context": "The film", "ending0": "ends", "ending1": "sings", "label": i % 2} for i in range(4)]
    others = [{"text": f"the {noun} {verb}"} for noun in ("film", "sea", "story") for verb in ("waits", "sings")]
    files = {
        "labelled": rows,
        "unlabelled": others,
        "train": rows,
        "dev": rows,
        "test": rows,
        "texts": rows,
        "ner": tagged,
        "qa": answers,
        "choices": choices,
    }
    for name, content in files.items():
        write_lines(folder / f"{name}.jsonl", content)
    choice = {"type": "choices", "value": {"choices": ["bad"]}}
    (folder / "corrected.json").write_text(
        json.dumps([{"data": {"text": "a dull film"}, "annotations": [{"result": [choice]}]}])
    )
    for name in ("train", "dev", "test", "labelled"):
        (folder / f"{name}.csv").write_text(
            "text,label\n" + "".join(f"{row['text']},{row['label']}\n" for row in rows)
        )
    (folder / "unlabelled.csv").write_text("text\n" + "".join(f"{row['text']}\n" for row in others))
    papers = "\n\n".join(f"{text} The hydrocarbon tanker waits." for text in sentences(1))
    (folder / "papers.txt").write_text(f"{papers}\n")
    for name in ("new", "sentences"):
        (folder / f"{name}.txt").write_text("a great film\na dull song\n")
    setup = """
        mybert tokenizer books/*.txt --output tokenizer
        mybert corpus books/*.txt --document-per-file --tokenizer tokenizer --output corpus
        mybert pretrain --corpus corpus --size tiny --output model
        mybert finetune --task text-classification --model model --train train.csv --output classifier
    """
    with contextlib.chdir(folder):
        for line in setup.strip().splitlines():
            run_command(shlex.split(line))
        (folder / "quickstart").mkdir()
        for name in ("corpus", "model"):
            (folder / "quickstart" / name).symlink_to(folder / name)
    (folder / "examples").symlink_to(Path(__file__).parents[2] / "examples")
    return folder
