"""Rows held out for validation, and evaluated rows that the model was trained on."""

import itertools
import json
import random
import shutil
import statistics
from collections.abc import Callable

import pytest
from datasets import Dataset
from new_tasks import task_of
from trained_runs import read_results as results
from transformers import BertTokenizerFast

from mybert import cli
from mybert.finetuning.held_out import held_out_rows
from mybert.tasks.base import Task


def splitter(rows: list[dict], task: str = "text-classification") -> Callable[[float, int], list[int]]:
    """A function from share and seed to the held-out rows."""
    made = task_of(task)
    table = made.prepare(Dataset.from_list(rows))
    fitted = made.fitted(table)
    return lambda share, seed: held_out_rows(table, fitted, share, seed)


def held_out(rows: list[dict], share: float = 0.1, seed: int = 0, task: str = "text-classification") -> list[int]:
    return splitter(rows, task)(share, seed)


def test_held_out_rows_follow_their_texts_and_not_labels_order_or_other_rows():
    rows = [{"text": f"text {i % 900}", "label": "abc"[i % 3]} for i in range(1000)]  # 100 texts are there twice
    chosen = held_out(rows)
    texts = {rows[row]["text"] for row in chosen}
    assert 70 <= len(chosen) <= 130
    assert chosen == [i for i, row in enumerate(rows) if row["text"] in texts], "equal texts are on one side"
    assert chosen != held_out(rows, seed=1)
    corrected = [{**row, "label": "cab"[i % 3]} if i % 7 == 0 else row for i, row in enumerate(rows)]
    corrected[::50] = [{**row, "label": f"typo {i}"} for i, row in enumerate(rows[::50])]
    assert held_out(corrected) == chosen
    more = [{"text": f"new {i}", "label": "d"} for i in range(300)] + rows[::-1]
    assert {more[row]["text"] for row in held_out(more) if more[row]["text"].startswith("text")} == texts
    spelt = [{**row, "text": f"  {row['text'].upper()} "} for row in rows]
    assert held_out(spelt) == chosen
    assert {*chosen} < {*held_out(rows, share=0.2)}


def test_for_few_rows_the_share_is_met_to_a_half():
    for count in (10, 12, 20, 35, 80):
        split = splitter([{"text": f"text {i}", "label": i + 0.5} for i in range(count)])
        for seed, share in itertools.product(range(20), (0.1, 0.3, 0.8)):
            found = len(split(share, seed)) / count
            assert abs(found - share) <= min(share, 1 - share) / 2 + 1 / count


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_each_label_with_enough_rows_is_on_both_sides(share):
    rows = [{"text": f"text {i}", "label": label} for i, label in enumerate("a" * 60 + "b" * 12 + "c" * 2 + "d")]
    split = splitter(rows)
    for seed in range(20):
        chosen = split(share, seed)
        parts = [{row["label"] for i, row in enumerate(rows) if (i in chosen) == part} for part in (True, False)]
        assert {"a", "b"} <= parts[0] and {"a", "b", "c"} <= parts[1]


def test_rows_of_a_context_are_on_one_side_unless_most_rows_have_it():
    draw, none = random.Random(0), {"text": [], "answer_start": []}
    rows = [{"question": f"q {i}", "context": f"context {draw.randrange(60)}", "answers": none} for i in range(300)]
    chosen = held_out(rows, task="question-answering")
    sides: dict[str, set] = {}
    for i, row in enumerate(rows):
        sides.setdefault(row["context"], set()).add(i in chosen)
    assert all(len(found) == 1 for found in sides.values()) and 15 <= len(chosen) <= 45
    answered = [{**row, "answers": {"text": ["context"], "answer_start": [0]}} for row in rows]
    assert held_out(answered, task="question-answering") == chosen
    one = [{**row, "context": "context"} for row in rows]
    assert 15 <= len(held_out(one, task="question-answering")) <= 45


def test_a_tenth_of_the_training_rows_is_held_out_by_default(finetune, write_rows, opinions, tmp_path, capsys):
    train = write_rows("train.jsonl", opinions)
    assert finetune("text-classification", "--train", train, "--max-steps", 2, "--validation-share", 0.1) == 0
    count = results(tmp_path / "out")["data"]["validation"]["rows"]
    assert 3 <= count <= 7 and results(tmp_path / "out")["data"]["train"]["rows"] == 48 - count
    assert f"validation: {count} of the 48 training rows" in capsys.readouterr().out
    lines = (tmp_path / "out/validation/predictions.jsonl").read_text().splitlines()
    assert all(json.loads(line)["input"] in opinions for line in lines)
    few = write_rows("few.jsonl", opinions[3:5])
    words = ("--train", few, "--max-steps", 1, "--validation-share", 0.5)
    assert finetune("text-classification", *words, output="few") == 0
    printed = capsys.readouterr().out
    assert "no validation: 2 training rows" in printed and "warning: 2 training rows" in printed


def test_the_tokens_of_each_row_are_counted_once_and_split_with_the_rows(
    finetune, tiny_checkpoint, write_rows, opinions, tmp_path, monkeypatch
):
    rows = [{**row, "text": f"{row['text']} {'zebra ' * (number % 7)}\u0f3c"} for number, row in enumerate(opinions)]
    counted, token_ids = [], Task.token_ids

    def observed(task, rows, tokenizer):
        counted.append(len(rows))
        return token_ids(task, rows, tokenizer)

    monkeypatch.setattr(Task, "token_ids", observed)
    words = ("--train", write_rows("train.jsonl", rows), "--max-steps", 1, "--validation-share", 0.1)
    assert finetune("text-classification", *words) == 0
    assert counted == [len(rows)]
    lines = (tmp_path / "out/validation/predictions.jsonl").read_text().splitlines()
    held_out = [json.loads(line)["input"]["text"] for line in lines]
    parts = {"validation": held_out, "train": [row["text"] for row in rows if row["text"] not in held_out]}
    tokenizer = BertTokenizerFast.from_pretrained(tiny_checkpoint)
    for name, texts in parts.items():
        ids = [tokenizer(text)["input_ids"] for text in texts]
        found, plain = results(tmp_path / "out")["data"][name], sum(len(some) - 2 for some in ids)
        assert found["longest"] == max(map(len, ids)) and found["median_length"] == statistics.median(map(len, ids))
        assert found["unknown_tokens"] == pytest.approx(
            sum(some.count(tokenizer.unk_token_id) for some in ids) / plain
        )


def test_evaluated_rows_that_were_trained_on_are_counted(finetune, write_rows, opinions, tmp_path, capsys):
    train, warning = write_rows("train.jsonl", opinions), "The model was trained on evaluated rows"
    assert finetune("text-classification", "--train", train, "--max-steps", 1, "--validation-share", 0.1) == 0
    count = results(tmp_path / "out")["data"]["train"]["rows"]
    moved = shutil.copy(train, tmp_path / "moved.jsonl")
    new = [{"text": f"unseen {i}", "label": "good"} for i in range(8)]
    mixed = write_rows("mixed.jsonl", [*new, *({**row, "label": "bad"} for row in opinions[::-1])])
    fresh, copy = write_rows("fresh.jsonl", new), tmp_path / "copy"
    again = shutil.copytree(tmp_path / "out", tmp_path / "again")
    assert cli.main(["merge", str(tmp_path / "out"), str(again), "--output", str(copy)]) == 0
    for model, file, rows, equal in (
        *((tmp_path / "out", *case) for case in ((moved, 48, count), (mixed, 56, count), (fresh, 8, 0))),
        (copy, mixed, 56, count),
    ):
        capsys.readouterr()
        words = ("--data", file, "--model", model, "--output", tmp_path / "scores", "--overwrite", "--bootstrap", 0)
        assert cli.main(["evaluate", *map(str, words)]) == 0
        printed = capsys.readouterr().out
        trained = results(tmp_path / "scores")["training_rows"]
        assert trained == {"same_file": file == moved, "rows": rows, "equal": equal}
        assert (warning in printed) is (warning in (tmp_path / "scores/report.html").read_text()) is bool(equal)
        cli.main(["doctor", str(tmp_path / "scores")])
        assert (warning in capsys.readouterr().out) is bool(equal)
