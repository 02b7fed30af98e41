"""A few rows in memory are predicted as the same rows in a `datasets.Dataset`."""

import pytest
import torch

from modeling_mybert import (
    MyBertConfig,
    MyBertForMultipleChoice,
    MyBertForQuestionAnswering,
    MyBertForSequenceClassification,
    MyBertForTokenClassification,
)
from mybert.finetuning.data.memory_rows import MemoryRows
from mybert.finetuning.evaluation import predictor as module
from mybert.finetuning.evaluation.predictor import Predictor
from tokenization import MyBertTokenizer

LONG = "the very good film " * 20
CASES = {
    "text": (MyBertForSequenceClassification, {}, ["a good film", "bad", LONG, "", "it's [SEP] fine"]),
    "windows": (MyBertForSequenceClassification, {"long_texts": "window", "max_length": 12}, ["a good film", LONG]),
    "pairs": (MyBertForSequenceClassification, {}, [("a good film", "yes"), ("bad", LONG)]),
    "tags": (MyBertForTokenClassification, {}, ["a good film", LONG, {"tokens": ["a", "film"]}, {"tokens": '["a"]'}]),
    "choices": (
        MyBertForMultipleChoice,
        {},
        [
            {"context": "film", "choices": ["a", LONG]},
            {"context": "film", "choices": {"text": ["a", "b", "c"], "label": ["x", "y", "z"]}},
            {"context": "film", "start": "the", "ending0": "good", "ending1": "bad"},
        ],
    ),
    "answers": (MyBertForQuestionAnswering, {"max_length": 24}, [("which film", LONG), ("which", "a good film")]),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_in_memory_and_in_a_dataset_have_the_same_predictions(case, tiny_checkpoint, tmp_path, monkeypatch):
    head, options, rows = CASES[case]
    torch.manual_seed(1)
    config = MyBertConfig.from_pretrained(tiny_checkpoint, num_labels=2)
    head(config).save_pretrained(tmp_path)
    MyBertTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path)
    predictor = Predictor(tmp_path, device="cpu", **options)
    tables = [rows for _, rows in predictor.part(rows).tables]
    assert all(isinstance(table, MemoryRows) for table in tables)
    in_memory = predictor(rows)
    one_by_one = [predictor(row) for row in rows]
    monkeypatch.setattr(module, "MOST_ROWS", 0)
    in_dataset = predictor(rows)
    assert in_memory == in_dataset
    assert one_by_one == [predictor(row) for row in rows]
    assert all(prediction for prediction in in_memory)
