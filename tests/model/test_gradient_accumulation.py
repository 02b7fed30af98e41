"""With transformers' Trainer, loss and gradient of a step do not depend on the number of accumulated batches."""

import pytest
import torch
from transformers import Trainer, TrainingArguments

from modeling_mybert import MyBertForMaskedLM, MyBertForPreTraining

SEQUENCES, LENGTH = 16, 12


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


def first_step(model, rows, accumulation: int, folder) -> tuple[float, float]:
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
    )
    trainer = Trainer(model, arguments, train_dataset=rows)
    trainer.train()
    log = trainer.state.log_history[0]
    return log["loss"], log["grad_norm"]


@pytest.mark.parametrize("head", [MyBertForMaskedLM, MyBertForPreTraining])
def test_accumulation_of_1_4_and_8_batches_gives_one_loss_and_gradient(tiny_config, tmp_path, head):
    tiny_config.hidden_dropout_prob = tiny_config.attention_probs_dropout_prob = 0.0
    weights = head(tiny_config).state_dict()
    rows = examples(tiny_config.vocab_size)
    found = []
    for accumulation in (1, 4, 8):
        model = head(tiny_config)
        model.load_state_dict(weights)
        found.append(first_step(model, rows, accumulation, tmp_path))
    for loss, norm in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-6)
        assert norm == pytest.approx(found[0][1], rel=1e-5)  # the norm is logged rounded to single precision


def test_next_sentence_loss_under_trainer_is_weighted_and_never_multiplied(tiny_config, tmp_path):
    """Trainer counts labelled tokens only; the pairs of a batch are weighted by its share of them."""
    tiny_config.hidden_dropout_prob = tiny_config.attention_probs_dropout_prob = 0.0
    weights = MyBertForPreTraining(tiny_config).state_dict()
    rows = examples(tiny_config.vocab_size, most_labels=2)
    rows = [{**row, "next_sentence_label": i % 2} for i, row in enumerate(rows)]
    found = []
    for accumulation in (1, 4):
        model = MyBertForPreTraining(tiny_config)
        model.load_state_dict(weights)
        found.append(first_step(model, rows, accumulation, tmp_path))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-6)
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-5)
