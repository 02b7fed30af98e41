"""Dropout compared with the definition of torch.nn.functional.dropout."""

import pytest
import torch

from modeling_mybert.operations_mybert import MyBertDropout, dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_values_are_dropped_or_scaled_with_the_probability_asked_for(p, dtype):
    torch.manual_seed(0)
    found = dropout(torch.ones(1000, 999, dtype=dtype), p, True)
    scale = found.max().item()
    assert scale == pytest.approx(1 / (1 - p), rel=0.01 if dtype == torch.bfloat16 else 1e-4)
    assert set(found.unique().tolist()) == {0.0, scale}
    deviation = (p * (1 - p) / found.numel()) ** 0.5
    assert abs((found == 0).double().mean().item() - p) < 5 * deviation + 2**-17


def test_neighbours_are_dropped_independently_of_each_other():
    torch.manual_seed(0)
    dropped = (dropout(torch.ones(4_000_000), 0.1, True) == 0).double()
    for distance in (1, 2, 3, 4, 5):
        both = (dropped[distance:] * dropped[:-distance]).mean().item()
        assert abs(both - 0.01) < 5 * (0.01 * 0.99 / dropped.numel()) ** 0.5


def test_the_gradient_is_that_of_the_values_kept():
    x = torch.randn(33, 7, requires_grad=True)
    found = dropout(x, 0.3, True)
    found.sum().backward()
    torch.testing.assert_close(x.grad * x, found)
    assert ((x.grad == 0) == (found == 0)).all()


def test_a_seed_decides_and_evaluation_changes_nothing():
    x, module = torch.randn(5, 3), MyBertDropout(0.5)
    draws = []
    for _ in range(2):
        torch.manual_seed(3)
        draws.append(module(x))
    assert torch.equal(*draws)
    assert not torch.equal(module(x), draws[0])
    assert module.eval()(x) is x
    assert MyBertDropout(0.0)(x) is x


def test_compiled_graphs_have_no_break_for_it():
    compiled = torch.compile(MyBertDropout(0.25), backend="eager", fullgraph=True)
    assert 0.15 < (compiled(torch.ones(100, 100)) == 0).float().mean().item() < 0.35
