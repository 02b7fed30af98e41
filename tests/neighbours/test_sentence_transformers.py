"""sentence-transformers loads, trains and saves MyBERT like a BERT of the same weights."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from modeling_mybert import MyBertModel
from tokenization import MyBertTokenizer

PAIRS = [
    ("How do I open a file?", "Call open with its path."),
    ("What is the capital of France?", "Paris is the seat of its government, and its largest city by far."),
    ("Why is the sky blue?", "Air scatters short waves of light more than long ones."),
    ("Who wrote Faust?", "Goethe did, over sixty years."),
    ("When do swallows leave?", "They fly south in September."),
    ("Where do penguins live?", "On the southern half of the earth, mostly."),
    ("Can I eat the mushroom?", "Only if you know it."),
    ("Which number is prime?", "Seven has no divisor but one and itself."),
]
TEXTS = [text for pair in PAIRS for text in pair] + [""]


@pytest.fixture(scope="module")
def folders(bert_folders, tmp_path_factory) -> dict:
    """A tiny BERT and a MyBERT of the same weights."""
    bert, mybert = bert_folders("MyBertModel"), tmp_path_factory.mktemp("mybert")
    MyBertModel.from_pretrained(bert).save_pretrained(mybert)
    MyBertTokenizer.from_pretrained(bert).save_pretrained(mybert)
    return {"bert": bert, "mybert": mybert}


def ranking_loss(model) -> float:
    questions, answers = (model.encode([pair[side] for pair in PAIRS], convert_to_tensor=True) for side in (0, 1))
    scores = 20 * torch.nn.functional.cosine_similarity(questions[:, None], answers[None], dim=-1)
    return torch.nn.functional.cross_entropy(scores, torch.arange(len(PAIRS))).item()


def train(folder, output) -> SentenceTransformer:
    model = SentenceTransformer(str(folder), device="cpu")
    settings = {"max_steps": 12, "per_device_train_batch_size": len(PAIRS), "learning_rate": 3e-3, "seed": 1}
    settings |= {"lr_scheduler_type": "constant", "save_strategy": "no", "logging_strategy": "no"}
    settings |= {"report_to": "none", "disable_tqdm": True, "use_cpu": True}
    arguments = SentenceTransformerTrainingArguments(str(output), **settings)
    rows = Dataset.from_list([{"anchor": question, "positive": answer} for question, answer in PAIRS])
    loss = MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss).train()
    return model


def test_training_equals_that_of_bert_and_the_model_is_saved_and_loaded(folders, tmp_path):
    before = ranking_loss(SentenceTransformer(str(folders["mybert"]), device="cpu"))
    trained, reference = (train(folders[name], tmp_path / name) for name in ("mybert", "bert"))
    assert ranking_loss(trained) < before / 3
    assert np.abs(trained.encode(TEXTS) - reference.encode(TEXTS)).max() < 1e-3
    trained.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert np.array_equal(again.encode(TEXTS), trained.encode(TEXTS))


ENCODE = """
import json
from sentence_transformers import SentenceTransformer
texts = json.loads(sys.argv[1])
for folder in sys.argv[2:]:
    model = SentenceTransformer(folder, trust_remote_code=True, device="cpu")
    print(json.dumps(model.encode(texts).tolist()))
"""


def test_a_saved_model_loads_in_a_process_without_this_project(folders, tmp_path, run_foreign):
    model = SentenceTransformer(str(folders["mybert"]), device="cpu")
    model.save(str(tmp_path / "saved"))
    printed = run_foreign(ENCODE, json.dumps(TEXTS), folders["mybert"], tmp_path / "saved")
    assert len(printed) == 2
    for line in printed:
        assert np.abs(np.array(json.loads(line)) - model.encode(TEXTS)).max() < 1e-5
