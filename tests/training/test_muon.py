import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForPreTraining, TrainingArguments, get_scheduler

from mybert.training.muon import MuonAdamW

RATE = 1e-2


@pytest.fixture
def arguments(tmp_path):
    return TrainingArguments(
        output_dir=str(tmp_path), learning_rate=RATE, weight_decay=0.0, adam_epsilon=1e-12, use_cpu=True
    )


@pytest.fixture
def model():
    torch.manual_seed(0)
    return BertForPreTraining(
        BertConfig(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    )


def first_update(model, arguments) -> dict[str, np.ndarray]:
    """The change of each parameter by the first step with random gradients."""
    optimizer = MuonAdamW.of(model, [name for name, p in model.named_parameters() if p.ndim > 1], arguments)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizer.step()
    return {name: (p.detach() - before[name]).numpy() for name, p in model.named_parameters()}


def test_matrices_of_the_encoder_move_by_the_polar_factor_of_their_gradient(model, arguments):
    updates = first_update(model, arguments)
    for name, parameter in model.named_parameters():
        if ".encoder." in name and parameter.ndim == 2:
            left, _, right = np.linalg.svd(parameter.grad.numpy().astype(np.float64), full_matrices=False)
            scale = RATE * 0.2 * max(parameter.shape) ** 0.5
            # five Newton-Schulz iterations leave the singular values between 0.7 and 1.2
            assert np.abs(left.T @ -updates[name] @ right.T / scale - np.eye(len(left.T))).max() < 0.4, name


def test_other_parameters_move_as_with_adamw(model, arguments):
    updates = first_update(model, arguments)
    for name, parameter in model.named_parameters():
        if ".encoder." not in name or parameter.ndim == 1:
            expected = -RATE * np.sign(parameter.grad.numpy())  # Adam's first step
            np.testing.assert_allclose(updates[name], expected, rtol=1e-2, err_msg=name)


@pytest.mark.parametrize("name", ["polynomial", "cosine_with_min_lr"])
def test_schedules_that_end_at_a_given_rate_know_the_first_one(model, arguments, name):
    optimizer = MuonAdamW.of(model, [], arguments)
    kwargs = {"lr_end": RATE / 4} if name == "polynomial" else {"min_lr": RATE / 4}
    schedule = get_scheduler(name, optimizer, 0, 10, kwargs)
    for _ in range(10):
        optimizer.step()
        schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([RATE / 4] * 3)
