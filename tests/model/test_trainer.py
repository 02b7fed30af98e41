"""transformers' Trainer: label arguments, losses of accumulated batches, and noise on the embeddings."""

import pytest
import torch
from transformers import Trainer, TrainingArguments
from transformers.utils.generic import find_labels
from twins import twins

import modeling_mybert
from modeling_mybert import MyBertForMaskedLM, MyBertForPreTraining

SEQUENCES, LENGTH = 16, 12
LABELS = {
    "MyBertForPreTraining": ["labels", "next_sentence_label"],
    "MyBertForMaskedLM": ["labels"],
    "MyBertForNextSentencePrediction": ["labels"],
    "MyBertForSequenceClassification": ["labels"],
    "MyBertForTokenClassification": ["labels"],
    "MyBertForQuestionAnswering": ["start_positions", "end_positions"],
    "MyBertForMultipleChoice": ["labels"],
    "MyBertLMHeadModel": ["labels"],
}


@pytest.mark.parametrize("name", LABELS)
def test_only_labels_count_as_labels(name):
    """Trainer computes an evaluation loss only if all of these are in the batch."""
    assert find_labels(getattr(modeling_mybert, name)) == LABELS[name]


@pytest.fixture
def without_dropout(tiny_config):
    tiny_config.hidden_dropout_prob = tiny_config.attention_probs_dropout_prob = 0.0
    return tiny_config


def examples(vocabulary: int, most_labels: int = 5) -> list[dict]:
    generator = torch.Generator().manual_seed(0)
    rows = []
    for index in range(SEQUENCES):
        ids = torch.randint(5, vocabulary, (LENGTH,), generator=generator)
        labelled = torch.randperm(LENGTH, generator=generator)[: min(2 + index % 4, most_labels)]
        labels = torch.full_like(ids, -100)
        labels[labelled] = ids[labelled]
        rows.append({"input_ids": ids, "labels": labels})
    return rows


def first_step(model, rows, folder, accumulation: int = 1, **settings) -> tuple[float, float]:
    """Loss and gradient norm that Trainer logs for one optimizer step over all rows."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=SEQUENCES // accumulation,
        gradient_accumulation_steps=accumulation,
        max_steps=1,
        logging_steps=1,
        optim="sgd",
        max_grad_norm=1e9,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        **settings,
    )
    trainer = Trainer(model, arguments, train_dataset=rows)
    trainer.train()
    log = trainer.state.log_history[0]
    return log["loss"], log["grad_norm"]


@pytest.mark.parametrize(
    ("head", "pairs"), [(MyBertForMaskedLM, False), (MyBertForPreTraining, False), (MyBertForPreTraining, True)]
)
def test_accumulation_of_1_4_and_8_batches_gives_one_loss_and_gradient(without_dropout, tmp_path, head, pairs):
    """Trainer counts labelled tokens only; the pairs of a batch are weighted by its share of them."""
    weights = head(without_dropout).state_dict()
    rows = examples(without_dropout.vocab_size, most_labels=2 if pairs else 5)
    if pairs:
        rows = [{**row, "next_sentence_label": i % 2} for i, row in enumerate(rows)]
    found = []
    for accumulation in (1, 4, 8):
        model = head(without_dropout)
        model.load_state_dict(weights)
        found.append(first_step(model, rows, tmp_path, accumulation))
    for loss, norm in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-6)
        assert norm == pytest.approx(found[0][1], rel=1e-5)  # the norm is logged rounded to single precision


def test_neftune_adds_the_noise_that_it_adds_to_bert(without_dropout, tmp_path):
    """Trainer adds it in a hook that needs word embeddings of the form (B, S, H)."""
    rows = examples(without_dropout.vocab_size)
    for index, row in enumerate(rows):
        row["attention_mask"] = (torch.arange(LENGTH) < LENGTH - index % 4).long()
        row["labels"] = row["labels"].where(row["attention_mask"] == 1, -100)
    bert, model = twins(without_dropout, "ForMaskedLM")
    plain = first_step(model, rows, tmp_path, learning_rate=0.0)
    found, expected = (first_step(x, rows, tmp_path, neftune_noise_alpha=300.0) for x in (model, bert))
    assert found == pytest.approx(expected, rel=1e-5)
    assert abs(found[0] - plain[0]) > 0.01
