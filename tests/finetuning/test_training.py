"""One run and what it says before: labels that do not occur, and resuming wherever it was killed."""

import json


def results(folder) -> dict:
    return json.loads((folder / "results.json").read_text())


def test_a_split_without_any_label_is_described(finetune, write_rows, tmp_path):
    train = write_rows("train.jsonl", [{"text": word, "labels": [word]} for word in ("good", "bad")] * 4)
    test = write_rows("test.jsonl", [{"text": "the film", "labels": []}] * 2)
    assert finetune("text-classification", "--train", train, "--test", test, "--num-train-epochs", 1) == 0
    assert results(tmp_path / "out")["data"]["test"]["balance"] == {}
