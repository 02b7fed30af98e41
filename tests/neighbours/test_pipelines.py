"""Pipelines of transformers give the same results with MyBERT and with BERT of the same weights."""

import json

import numpy as np
import pytest
from transformers import BertTokenizer, pipeline

from modeling_mybert import AUTO_MAP
from tokenization import MyBertTokenizer

TEXTS = [
    "Angela Merkel met Emmanuel Macron in unbelievably rainy Berlin.",
    "Ok.",
    "The naïve café-owner of 東京 didn't know Zoë.",
]
MASKED = ["The [MASK] fell.", "He is a [MASK] of the [MASK].", "[MASK]"]


@pytest.fixture
def pipes(pair, bert_folders):
    """A function from a task and a head to the pipelines with MyBERT and BERT."""

    def make(task: str, head: str, **settings):
        folder = bert_folders(head)
        tokenizers = MyBertTokenizer.from_pretrained(folder), BertTokenizer.from_pretrained(folder)
        return [
            pipeline(task, model=model, tokenizer=tokenizer, **settings)
            for model, tokenizer in zip(pair(head), tokenizers, strict=True)
        ]

    return make


def equal(found, expected) -> bool:
    """Whether the structures are equal and numbers differ by less than 1e-4."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(equal(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(equal, found, expected))
    if isinstance(expected, float | np.floating):
        return abs(found - expected) < 1e-4
    return found == expected


@pytest.mark.parametrize(
    ("task", "head", "settings", "given"),
    [
        ("fill-mask", "MaskedLM", {"batch_size": 3, "top_k": 4}, [MASKED]),
        ("text-classification", "SequenceClassification", {"batch_size": 3, "top_k": None}, [TEXTS]),
        ("token-classification", "TokenClassification", {"aggregation_strategy": "first"}, [TEXTS]),
        ("question-answering", "QuestionAnswering", {"top_k": 5}, [{"question": "Who?", "context": TEXTS[0]}]),
        ("zero-shot-classification", "SequenceClassification", {}, [TEXTS, ["weather", "coffee"]]),
    ],
)
def test_pipelines_give_what_they_give_with_bert(pipes, task, head, settings, given):
    ours, theirs = pipes(task, f"MyBertFor{head}", **settings)
    assert any(ours(*given)) and equal(ours(*given), theirs(*given))
    assert task == "question-answering" or equal(ours(*given, batch_size=2), ours(*given))


LONG = "[MASK] " + "rain " * 600  # more than the 128 positions of the model
TASKS = [
    ("text-classification", "AutoModelForSequenceClassification"),
    ("fill-mask", "AutoModelForMaskedLM"),
    ("fill-mask", "AutoModelForPreTraining"),
    ("feature-extraction", "AutoModel"),
    ("token-classification", "AutoModelForTokenClassification"),
]
TRUNCATE = """
import json
from transformers import pipeline
arguments = {
    "fill-mask": {"tokenizer_kwargs": {"truncation": True}},
    "text-classification": {"truncation": True},
    "feature-extraction": {"truncation": True},
}
for task, folder, long, short in json.loads(sys.argv[1]):
    for trust in (True, False):
        pipe = pipeline(task, model=folder, trust_remote_code=trust, **arguments.get(task, {}))
        assert type(pipe.model).__name__.startswith("MyBert" if trust else "Bert")
        print(json.dumps([pipe(long), pipe(short)], default=float))
"""


@pytest.mark.parametrize("process", ["foreign", "installed"])
def test_pipelines_of_a_folder_truncate_long_texts_to_the_trained_length(
    bert_folders, pair, tmp_path, process, request
):
    cases = []
    for task, auto in TASKS:
        head, folder = AUTO_MAP[auto].split(".")[1], tmp_path / auto
        pair(head)[0].save_pretrained(folder)
        MyBertTokenizer.from_pretrained(bert_folders(head), model_max_length=48).save_pretrained(folder)
        cases.append((task, str(folder), LONG, "[MASK] " + "rain " * 45))
    if process == "foreign":
        run_foreign = request.getfixturevalue("run_foreign")
        found = [json.loads(line) for line in run_foreign(TRUNCATE, json.dumps(cases))]
    else:
        found = [[pipeline(task, model=folder)(text) for text in texts] for task, folder, *texts in cases]
    assert len(found) == len(TASKS) * (2 if process == "foreign" else 1)
    assert all(equal(long, short) for long, short in found)


def test_truncation_may_be_switched_off(pair, bert_folders):
    model = pair("MyBertForSequenceClassification")[0]
    tokenizer = MyBertTokenizer.from_pretrained(bert_folders("MyBertForSequenceClassification"))
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, truncation=False)
    with pytest.raises(ValueError, match="max_position_embeddings=128"):
        classify(LONG)


@pytest.mark.parametrize(
    ("task", "head", "name"),
    [
        ("fill-mask", "MyBertForMaskedLM", "tokenizer_kwargs"),
        ("feature-extraction", "MyBertModel", "tokenize_kwargs"),
    ],
)
def test_the_arguments_of_the_tokenizer_may_be_none(pair, bert_folders, task, head, name):
    tokenizer = MyBertTokenizer.from_pretrained(bert_folders(head), model_max_length=48)
    assert pipeline(task, model=pair(head)[0], tokenizer=tokenizer, **{name: None})(LONG)
