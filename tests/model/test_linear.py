"""oneDNN products compared with `torch.nn.Linear`, on any processor."""

import pytest
import torch
from recomputation import checkpoint_layers
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from twins import twins

from mybert.inference.cpu import onednn
from mybert.inference.cpu.onednn import linear

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN")


@pytest.fixture(autouse=True)
def foreign_processor(monkeypatch):
    monkeypatch.setattr(onednn, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(onednn, "least_rows", lambda: 0)


class Products(TorchDispatchMode):
    """Counts the products of each library."""

    def __enter__(self):
        self.onednn = self.others = 0
        return super().__enter__()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.onednn += function is torch.ops.mkldnn._linear_pointwise.default
        self.others += function in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("shape", [(16, 12), (160, 12), (2, 24, 12)])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_a_linear_layer(shape, bias):
    torch.manual_seed(0)
    module, x = nn.Linear(12, 20, bias=bias), torch.randn(shape, requires_grad=True)
    learned = [x, *module.parameters()]
    with Products() as counted:
        found = linear(module, x)
    assert (counted.onednn, counted.others) == (1, 0)
    expected = module(x)
    torch.testing.assert_close(found, expected)
    slope = torch.randn_like(expected)
    gradients = [torch.autograd.grad(y, learned, slope, create_graph=True) for y in (found, expected)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)
    seconds = [torch.autograd.grad(sum((g**2).sum() for g in parts[:2]), learned[:2]) for parts in gradients]
    for ours, theirs in zip(*seconds, strict=True):
        torch.testing.assert_close(ours, theirs)


def derivatives(call):
    """Derivatives of a small network by every transform of torch.func and by dual numbers."""
    torch.manual_seed(0)
    modules, x = [nn.Linear(12, 20), nn.Linear(20, 1)], torch.randn(16, 12)
    there, back = torch.randn(2, 16, 12)

    def network(x):
        return call(modules[1], call(modules[0], x).tanh()).sum()

    def slope(x):
        return torch.func.jvp(network, (x,), (there,))[1]

    yield torch.func.jvp(slope, (x,), (back,))
    yield torch.func.jvp(torch.func.grad(network), (x,), (there,))
    yield torch.func.grad(slope)(x)
    yield torch.func.vmap(torch.func.grad(network))(torch.stack([x, there]))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, there)
        both = torch.autograd.forward_ad.unpack_dual(network(dual))
    yield both
    x.requires_grad_()
    gradient = torch.autograd.grad(network(x), x, create_graph=True)[0]
    yield torch.autograd.grad(gradient, x, torch.stack([there, back]), is_grads_batched=True)


def test_a_torch_without_the_private_names_computes_by_its_own_operations(monkeypatch):
    monkeypatch.delattr(torch._C, "_are_functorch_transforms_active")
    monkeypatch.delattr(torch.autograd.forward_ad, "_current_level")
    module, x = nn.Linear(12, 20), torch.randn(16, 12)
    with Products() as counted:
        found = linear(module, x)
    assert counted.onednn == 0
    assert torch.equal(found, module(x))


def test_derivatives_of_every_kind_are_those_of_linear_layers():
    for ours, theirs in zip(derivatives(linear), derivatives(lambda layer, x: layer(x)), strict=True):
        torch.testing.assert_close(ours, theirs)


class Called(nn.Module):
    def __init__(self, module, call):
        super().__init__()
        self.module, self.call = module, call

    def forward(self, x):
        return self.call(self.module, x)


def test_frozen_weights_get_no_gradient_and_save_no_input():
    module, x = nn.Linear(4, 3), torch.randn(16, 4, requires_grad=True)
    module.weight.requires_grad_(False)
    h = x * 1
    with Products() as counted:
        found = linear(module, h)
        h.add_(1)  # autograd raises if the input was saved for the weight
        found.sum().backward()
    assert (counted.onednn, counted.others) == (2, 0)
    torch.testing.assert_close(x.grad, module.weight.sum(0).expand(16, 4))
    assert module.weight.grad is None
    assert module.bias.grad.tolist() == [16, 16, 16]
    found = linear(nn.Linear(4, 3), h.detach())
    assert found.grad_fn.saved_tensors[1] is None


class NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return None


def test_parameters_without_gradient_keep_none():
    module = nn.Linear(4, 3)
    NoGradient.apply(linear(module, torch.randn(16, 4))).sum().backward()
    assert module.weight.grad is None and module.bias.grad is None


def test_hooks_and_adapters_are_called():
    module, seen = nn.Linear(4, 4), []
    module.register_forward_hook(lambda *_: seen.append("hook"))
    linear(module, torch.randn(16, 4))
    assert seen == ["hook"]
    adapted = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, bias=False))
    x = torch.randn(16, 4)
    torch.testing.assert_close(linear(adapted, x), adapted(x))


def product(x, weight, bias=None):
    def called(module, x):
        return nn.functional.linear(x, weight, bias)

    return linear(Called(nn.Identity(), called), x)


def test_missing_biases_and_wrong_sizes_behave_as_in_pytorch():
    weight, x = torch.randn(3, 4), torch.randn(16, 4)
    with Products() as counted:
        torch.testing.assert_close(product(x, weight), x @ weight.t())
        assert counted.onednn == 1
        torch.testing.assert_close(product(x, weight[0]), x @ weight[0])
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            product(x[:, :3], weight)
        with pytest.raises(RuntimeError, match="must match"):
            product(x, weight, torch.randn(4))
    assert counted.onednn == 1


@pytest.mark.parametrize(
    "bias",
    [torch.randn(6)[::2], torch.randn(3, 2)[:, 1], torch.randn(1).expand(3), torch.tensor(2.0), torch.randn(1, 3)],
    ids=["every second", "a column", "one for all", "a scalar", "a row"],
)
def test_biases_of_any_layout_are_added_as_pytorch_does(bias):
    weight, x = torch.randn(3, 4), torch.randn(16, 4)
    torch.testing.assert_close(product(x, weight, bias), x @ weight.t() + bias)


@pytest.mark.parametrize(
    ("shape", "dtype", "least", "expected"),
    [
        *(((rows, 4), torch.float32, 0, 1) for rows in (1, 17, 128, 144)),
        *(((rows, 4), torch.float32, 0, 0) for rows in (129, 150)),
        ((2, 4, 4), torch.float32, 9, 0),
        ((9, 4), torch.float32, 9, 1),
        ((16, 4), torch.float64, 0, 0),
        ((16, 4), torch.bfloat16, 0, 0),
    ],
)
def test_multiples_of_16_rows_or_up_to_128_that_pay_in_float32_use_onednn(shape, dtype, least, expected, monkeypatch):
    monkeypatch.setattr(onednn, "least_rows", lambda: least)
    module, x = nn.Linear(4, 3).to(dtype), torch.randn(shape, dtype=dtype)
    with Products() as counted:
        found = linear(module, x)
    assert counted.onednn == expected
    torch.testing.assert_close(found, module(x), **({} if expected else {"rtol": 0, "atol": 0}))


def test_autocast_disabled_onednn_and_compiled_graphs_use_pytorch():
    module, x = nn.Linear(4, 4), torch.randn(16, 4)
    with Products() as counted:
        with torch.autocast("cpu", torch.bfloat16):
            assert linear(module, x).dtype == torch.bfloat16
        with torch.backends.mkldnn.flags(enabled=False):
            linear(module, x)
        linear(module, x[:0])
    assert counted.onednn == 0
    torch.compile(lambda y: linear(module, y), backend="eager", fullgraph=True)(x)


def test_a_compiled_layer_contains_no_onednn_product():
    module, x, graphs = nn.Linear(4, 4), torch.randn(16, 4), []
    expected = module(x)
    module.compile(backend=lambda graph, _: graphs.append(graph.code) or graph)
    torch.testing.assert_close(linear(module, x), expected)  # the graph runs inside the mode
    assert graphs and not any("mkldnn" in code for code in graphs)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_model_gives_berts_loss_and_gradients(tiny_config, checkpointing):
    tiny_config.hidden_dropout_prob = tiny_config.attention_probs_dropout_prob = 0.0
    bert, ours = (model.train() for model in twins(tiny_config, "ForPreTraining"))
    if checkpointing:
        checkpoint_layers(ours)
    lengths, places = torch.randint(8, 20, (16,)), torch.arange(20)
    ids, mask = torch.randint(5, 99, (16, 20)), places < lengths[:, None]
    batch = {"input_ids": ids, "attention_mask": mask.long(), "labels": torch.where(places < 8, ids, -100)}
    batch["next_sentence_label"] = torch.randint(0, 2, (16,))
    with Products() as counted:
        loss = ours(**batch).loss
        loss.backward()
    assert counted.onednn >= 2 * (6 * 2 + 2)  # forward, and gradients of inputs
    expected = bert(**batch).loss
    expected.backward()
    torch.testing.assert_close(loss, expected)
    theirs = dict(bert.named_parameters())
    for name, parameter in ours.named_parameters():
        if name in theirs:
            torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-3, atol=1e-5)
