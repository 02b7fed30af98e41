import copy

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForPreTraining, TrainingArguments, get_scheduler

from mybert.training import muon
from mybert.training.muon import Muon, MuonAdamW, orthogonalise

RATE = 1e-2
SHAPES = [(32, 32), (32, 96), (96, 32), (32, 40), (32, 32)]


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


@pytest.mark.parametrize(("half", "tolerance"), [(False, 1e-5), (True, 0.03)], ids=["float32", "bfloat16"])
def test_matrices_of_the_encoder_move_by_the_polynomial_of_their_gradient(
    model, arguments, monkeypatch, half, tolerance
):
    """The iteration of Jordan et al. 2024 changes singular values only; here in float64, on each of them."""
    monkeypatch.setattr(muon, "bfloat16_is_faster", lambda device: half)
    updates = first_update(model, arguments)
    for name, parameter in model.named_parameters():
        if ".encoder." in name and parameter.ndim == 2:
            left, values, right = np.linalg.svd(parameter.grad.numpy().astype(np.float64), full_matrices=False)
            values /= np.linalg.norm(values)
            for _ in range(5):
                values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
            expected = -RATE * 0.2 * max(parameter.shape) ** 0.5 * (left * values) @ right
            assert np.linalg.norm(updates[name] - expected) < tolerance * np.linalg.norm(expected), name


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


def stepped(make) -> list[torch.Tensor]:
    """Matrices after three steps of an optimizer, with the same gradients for each `make`."""
    generator = torch.Generator().manual_seed(0)
    matrices = [torch.randn(shape, generator=generator, requires_grad=True) for shape in SHAPES]
    optimizer = make(matrices)
    for _ in range(3):
        for matrix in matrices:
            matrix.grad = torch.randn(matrix.shape, generator=generator)
        matrices[1].grad = None  # a frozen or unused one
        optimizer.step()
    return [matrix.detach() for matrix in matrices]


def of_torch(matrices) -> torch.optim.Optimizer:
    return torch.optim.Muon(matrices, RATE, 0.1, adjust_lr_fn="match_rms_adamw")


@pytest.mark.parametrize("stacked", [1, 1 << 20])
def test_in_bfloat16_it_is_the_muon_of_torch(stacked, monkeypatch):
    monkeypatch.setattr(muon, "_STACKED", stacked)
    for found, expected in zip(stepped(lambda m: Muon(m, RATE, 0.1, torch.bfloat16)), stepped(of_torch), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=RATE * 0.02)


def test_in_float32_it_is_the_muon_of_torch_in_higher_precision(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.double)  # by which torch's rounds
    for found, expected in zip(stepped(lambda m: Muon(m, RATE, 0.1, torch.float32)), stepped(of_torch), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * RATE)


@pytest.mark.parametrize("shape", [(3, 64, 64), (3, 64, 256), (3, 256, 64), (1, 5, 1)])
@pytest.mark.parametrize("smallest", [1.0, 1e-3, 1e-6], ids="condition {}".format)
def test_float32_is_as_exact_as_the_iteration_needs(shape, smallest):
    """Also for matrices that are nearly singular, as gradients are; bfloat16 has an error of 0.01."""
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    values = values * smallest ** torch.linspace(0, 1, values.shape[-1])
    matrices = left @ values.diag_embed() @ right
    expected = orthogonalise(matrices.double())
    assert (orthogonalise(matrices) - expected).abs().max() < 1e-3 * expected.abs().max()


def test_a_resumed_run_keeps_the_type_of_its_products(model, arguments, monkeypatch, caplog):
    def optimizer(faster: bool) -> MuonAdamW:
        monkeypatch.setattr(muon, "bfloat16_is_faster", lambda device: faster)
        return MuonAdamW.of(model, [], arguments)

    for is_faster, started in ((True, "bfloat16"), (False, "float32")):
        saved = copy.deepcopy(optimizer(is_faster).state_dict())
        resumed = optimizer(not is_faster)
        caplog.clear()
        resumed.load_state_dict(saved)
        assert resumed.parts[0].param_groups[0]["dtype"] == started
        assert f"Muon goes on in {started}" in caplog.text
