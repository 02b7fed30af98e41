"""Cross-entropy in pieces compared with torch's cross-entropy."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from modeling_mybert import MyBertForMaskedLM
from modeling_mybert.operations_mybert import mean_cross_entropy
from mybert.inference.cpu import elementwise


@pytest.fixture
def pieces(monkeypatch):
    """Called with a number of rows, it makes losses compute so many rows at a time."""
    return lambda rows, classes: monkeypatch.setattr(elementwise, "_PIECE", rows * classes)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 4, 10])
@pytest.mark.parametrize("count", [None, 40, torch.tensor(7)])
def test_pieces_have_torchs_loss_and_gradient(pieces, rows, count, dtype):
    pieces(rows, 33)
    torch.manual_seed(0)
    logits = (5 * torch.randn(11, 33)).to(dtype).requires_grad_()
    labels = torch.randint(33, (11,))
    labels[[0, 5, 6]] = -100
    divisor = 8 if count is None else count
    loss = mean_cross_entropy(logits, labels, count)
    assert type(loss.grad_fn).__name__ == "_InPiecesBackward"
    exact = logits.detach().double().requires_grad_()
    expected = cross_entropy(exact, labels, reduction="sum") / divisor
    precise = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-5}[dtype]  # sums are float32 at least
    assert loss.dtype == torch.promote_types(dtype, torch.float32)
    assert loss.item() == pytest.approx(expected.item(), rel=precise)
    (found,), (wanted,) = (torch.autograd.grad(x / 7, y) for x, y in ((loss, logits), (expected, exact)))
    assert found.dtype == dtype and (found[[0, 5, 6]] == 0).all()
    rounding = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2**-7}[dtype]
    torch.testing.assert_close(found.double(), wanted, rtol=rounding, atol=1e-7)
    assert found.double().abs().sum().item() == pytest.approx(wanted.abs().sum().item(), rel=max(rounding / 8, 1e-12))


def test_extreme_logits_are_as_torchs(pieces):
    pieces(1, 3)
    values = [[3e38, -3e38, 0.0], [-torch.inf, 2.0, 2.0], [100.0, 90.0, -200.0]]
    found = []
    for loss in (mean_cross_entropy, cross_entropy):
        logits = torch.tensor(values, requires_grad=True)
        value = loss(logits, torch.tensor([0, 1, 1]))
        found.append((value, *torch.autograd.grad(value, logits)))
    torch.testing.assert_close(*found)


def test_nothing_labelled_is_a_loss_of_zero_with_no_gradient(pieces):
    pieces(1, 5)
    logits = torch.randn(4, 5, requires_grad=True)
    loss = mean_cross_entropy(logits, torch.full((4,), -100))
    loss.backward()
    assert loss.item() == 0 and (logits.grad == 0).all()


@pytest.mark.parametrize("sparse_logits", [True, False])
def test_a_model_learns_the_same_from_pieces(tiny_config, pieces, sparse_logits):
    tiny_config.hidden_dropout_prob = tiny_config.attention_probs_dropout_prob = 0.0
    model = MyBertForMaskedLM(tiny_config).train()
    ids = torch.randint(5, 99, (3, 8))
    labels = ids.masked_fill(torch.rand(ids.shape) < 0.5, -100)
    found = []
    for rows in (1000, 2):
        pieces(rows, 99)
        model.zero_grad()
        loss = model(input_ids=ids, labels=labels, sparse_logits=sparse_logits).loss
        loss.backward()
        found.append((type(loss.grad_fn).__name__, [loss, *(p.grad for p in model.parameters())]))
    assert [name for name, _ in found] == ["DivBackward0", "_InPiecesBackward"]
    torch.testing.assert_close(found[1][1], found[0][1], rtol=1e-5, atol=1e-6)


def test_gradients_are_differentiated_again(pieces):
    pieces(2, 9)
    labels = torch.tensor([3, -100, 0, 8, 8])
    found = []
    for loss in (mean_cross_entropy, cross_entropy):
        torch.manual_seed(0)
        inputs, weight = torch.randn(5, 4, requires_grad=True), torch.randn(9, 4, requires_grad=True)
        (slope,) = torch.autograd.grad(loss(inputs @ weight.T, labels).square(), inputs, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), (inputs, weight)))
    torch.testing.assert_close(*found)


def test_functional_transforms(pieces):
    pieces(2, 9)
    logits, labels = torch.randn(3, 7, 9), torch.randint(9, (3, 7))

    def transformed(loss):
        slope = torch.func.grad(loss)
        twice = torch.func.grad(lambda x: slope(x, labels[0]).square().sum())
        return slope(logits[0], labels[0]), twice(logits[0]), torch.func.vmap(slope)(logits, labels)

    torch.testing.assert_close(transformed(mean_cross_entropy), transformed(cross_entropy))


def test_float16_is_scaled_before_it_is_rounded(pieces):
    pieces(2, 9)
    exact = torch.randn(7, 9, requires_grad=True)
    logits, labels = exact.detach().half().requires_grad_(), torch.tensor([0, 1, 2, 3, 4, 5, -100])
    scale, count = 65536.0, 100_000
    (mean_cross_entropy(logits, labels, count) * scale).backward()
    (cross_entropy(exact, labels, reduction="sum") / count * scale).backward()
    torch.testing.assert_close(logits.grad.float(), exact.grad, rtol=2e-2, atol=1e-4)


def test_other_negative_labels_are_refused(pieces):
    pieces(2, 9)
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        mean_cross_entropy(torch.randn(4, 9, requires_grad=True), torch.tensor([0, -1, 2, 3]))
