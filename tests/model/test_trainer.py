"""transformers' Trainer: label arguments, losses of accumulated batches, and noise on the embeddings."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from trainer_step import first_step
from transformers import Trainer
from transformers.utils.generic import find_labels
from twins import twins

import modeling_mybert

SEQUENCES, LENGTH = 16, 12
LABELS = {
    "MyBertForPreTraining": ["labels", "next_sentence_label"],
    "MyBertForMaskedLM": ["labels"],
    "MyBertForNextSentencePrediction": ["labels"],
    "MyBertForSequenceClassification": ["labels"],
    "MyBertForTokenClassification": ["labels"],
    "MyBertForQuestionAnswering": ["start_positions", "end_positions"],
    "MyBertForMultipleChoice": ["labels"],
}


@pytest.mark.parametrize("name", LABELS)
def test_only_labels_count_as_labels(name):
    """Trainer computes an evaluation loss only if all of these are in the batch."""
    assert find_labels(getattr(modeling_mybert, name)) == LABELS[name]


@pytest.fixture
def without_dropout(tiny_config):
    tiny_config.hidden_dropout_prob = tiny_config.attention_probs_dropout_prob = 0.0
    return tiny_config


def masked_tokens(most_labels: int = 5) -> list[dict]:
    """Sequences with one to five labelled tokens."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for index in range(SEQUENCES):
        ids = torch.randint(5, 99, (LENGTH,), generator=generator)
        labelled = torch.randperm(LENGTH, generator=generator)[: min(2 + index % 4, most_labels)]
        labels = torch.full_like(ids, -100)
        labels[labelled] = ids[labelled]
        rows.append({"input_ids": ids, "labels": labels})
    return rows


def with_pairs() -> list[dict]:
    return [{**row, "next_sentence_label": index % 2} for index, row in enumerate(masked_tokens(most_labels=2))]


def tags() -> list[dict]:
    return [{**row, "labels": row["labels"].where(row["labels"] == -100, 1)} for row in masked_tokens()]


def classes() -> list[dict]:
    return [{**row, "labels": -100 if index % 3 else index % 2} for index, row in enumerate(masked_tokens())]


@pytest.mark.parametrize(
    ("head", "rows"),
    [
        ("MaskedLM", masked_tokens),
        ("PreTraining", masked_tokens),
        ("PreTraining", with_pairs),  # Trainer counts tokens only: pairs are weighted by a batch's share of them
        ("TokenClassification", tags),
        ("SequenceClassification", classes),
    ],
)
def test_accumulation_of_1_4_and_8_batches_gives_one_loss_and_gradient(without_dropout, tmp_path, head, rows):
    head = getattr(modeling_mybert, f"MyBertFor{head}")
    weights, found = head(without_dropout).state_dict(), []
    for accumulation in (1, 4, 8):
        model = head(without_dropout)
        model.load_state_dict(weights)
        found.append(first_step(model, rows(), tmp_path, accumulation))
    for step in found[1:]:
        assert step == pytest.approx(found[0], rel=1e-5)  # the norm is logged rounded to single precision


class FocalTrainer(Trainer):
    """Weights each label by its difficulty, from the logits of all positions."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        losses = cross_entropy(outputs.logits.flatten(0, 1), inputs["labels"].flatten(), reduction="none")
        loss = ((1 - torch.exp(-losses)) ** 2 * losses).sum() / num_items_in_batch
        return (loss, outputs) if return_outputs else loss


@pytest.mark.parametrize("settings", [{"kind": FocalTrainer}, {"label_smoothing_factor": 0.1}])
def test_a_loss_of_the_trainer_reads_the_logits_that_bert_returns(without_dropout, tmp_path, settings):
    bert, model = twins(without_dropout, "ForMaskedLM")
    found, expected = (first_step(x, masked_tokens(), tmp_path, **settings) for x in (model, bert))
    assert found == pytest.approx(expected, rel=1e-5)


def test_neftune_adds_the_noise_that_it_adds_to_bert(without_dropout, tmp_path):
    """Trainer adds it in a hook that needs word embeddings of the form (B, S, H)."""
    rows = masked_tokens()
    for index, row in enumerate(rows):
        row["attention_mask"] = (torch.arange(LENGTH) < LENGTH - index % 4).long()
        row["labels"] = row["labels"].where(row["attention_mask"] == 1, -100)
    bert, model = twins(without_dropout, "ForMaskedLM")
    plain = first_step(model, rows, tmp_path, learning_rate=0.0)
    found, expected = (first_step(x, rows, tmp_path, neftune_noise_alpha=300.0) for x in (model, bert))
    assert found == pytest.approx(expected, rel=1e-5)
    assert abs(found["loss"] - plain["loss"]) > 0.01
