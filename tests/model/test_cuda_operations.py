"""Faster operations for CUDA compared with PyTorch's; all but the last test compute them on the CPU."""

import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from torch import nn

from modeling_mybert import MyBertForPreTraining
from modeling_mybert.attention_mybert import MyBertSelfAttention
from modeling_mybert.padding_mybert import packed_layout
from mybert.inference import cuda


@pytest.mark.parametrize("autocast", [False, True])
def test_one_product_gives_the_numbers_and_gradients_of_three(autocast, monkeypatch):
    torch.manual_seed(0)
    dtype = torch.float32 if autocast else torch.bfloat16
    modules = [nn.Linear(16, size).to(dtype) for size in (16, 8, 16)]
    x = torch.randn(5, 16, dtype=dtype)
    monkeypatch.setattr(cuda, "_computed_type", lambda x: torch.bfloat16)
    results = []
    for function in (cuda.linears, lambda modules, x: [module(x) for module in modules]):
        for module in modules:
            module.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            found = function(modules, x)
        sum(y.float().square().sum() for y in found).backward()
        results.append([*found, *(p.grad for module in modules for p in module.parameters())])
    for found, expected in zip(*results, strict=True):
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)


def test_a_vocabulary_that_is_no_multiple_of_eight_is_padded_for_the_product_only():
    torch.manual_seed(0)
    module, x = nn.Linear(16, 99).bfloat16(), torch.randn(2, 1000, 16).bfloat16()
    found = cuda.linear(module, x)
    assert found.shape == (2, 1000, 99) and found.stride(1) == 128
    torch.testing.assert_close(found, module(x))
    found.float().square().sum().backward()
    gradient = module.weight.grad.clone()
    module.zero_grad()
    module(x).float().square().sum().backward()
    torch.testing.assert_close(gradient, module.weight.grad, atol=0.5, rtol=0.02)


def test_float32_few_rows_hooks_and_other_modules_are_left_to_pytorch(monkeypatch):
    class Adapter(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 1

    plain, adapter, hooked, offloaded = nn.Linear(16, 99), Adapter(16, 99), nn.Linear(16, 99), nn.Linear(16, 99)
    adapter, hooked, offloaded = adapter.bfloat16(), hooked.bfloat16(), offloaded.bfloat16()
    add_hook_to_module(offloaded, AlignDevicesHook("cpu", offload=True))
    assert offloaded.weight.is_meta
    hooked.register_forward_hook(lambda module, inputs, output: output + 1)
    monkeypatch.setattr(torch.nn.functional, "pad", None)
    monkeypatch.setattr(torch, "cat", None)
    x = torch.randn(2000, 16)
    half = x.bfloat16()
    for module, rows in ((plain, x), (adapter, half), (hooked, half), (hooked, half[:5]), (offloaded, half)):
        assert torch.equal(cuda.linear(module, rows), module(rows))
        found = cuda.linears([module, module], rows)
        assert all(torch.equal(y, module(rows)) for y in found)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_half_precision_on_cuda_gives_the_loss_and_gradient_of_float32(tiny_config):
    """With padding: sdpa computes it by varlen_attn, and the products are the faster ones."""
    tiny_config.hidden_dropout_prob = tiny_config.attention_probs_dropout_prob = 0.0
    tiny_config.vocab_size, tiny_config.hidden_size, tiny_config.num_attention_heads = 101, 64, 2
    torch.manual_seed(0)
    model = MyBertForPreTraining(tiny_config).cuda()
    ids = torch.randint(5, 99, (40, 60), device="cuda")
    mask = torch.arange(60, device="cuda") < torch.randint(10, 61, (40, 1), device="cuda")
    batch = {"input_ids": ids, "attention_mask": mask.long(), "labels": ids.masked_fill(~mask, -100)}
    results = []
    for dtype in (None, torch.bfloat16, torch.float16):
        model.zero_grad()
        with torch.autocast("cuda", dtype, enabled=dtype is not None):
            loss = model(**batch, next_sentence_label=ids[:, 0] % 2).loss
        (loss * 64).backward()
        results.append((loss.item(), torch.cat([p.grad.flatten() for p in model.parameters()])))
    (loss, gradient), *halves = results
    for found, found_gradient in halves:
        assert abs(found - loss) < 0.01 * loss
        assert (found_gradient - gradient).norm() < 0.03 * gradient.norm()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_attention_dropout_on_cuda_keeps_the_mean(tiny_config):
    """The mean over many draws is the output without dropout, and single draws differ from it."""
    tiny_config.hidden_size, tiny_config.num_attention_heads = 64, 2
    tiny_config.attention_probs_dropout_prob, tiny_config.hidden_dropout_prob = 0.2, 0.0
    torch.manual_seed(0)
    module = MyBertSelfAttention(tiny_config).cuda().bfloat16()
    layout = packed_layout(torch.tensor([0, 7, 8, 40], dtype=torch.int32, device="cuda"), 32, 40)
    x = torch.randn(40, 64, device="cuda").bfloat16()
    expected = module.eval()(x, layout)[0].float()
    draws = torch.stack([module.train()(x, layout)[0].float() for _ in range(400)])
    assert draws.std(0)[:7].max() > 0.01
    assert (draws.mean(0) - expected).norm() < 0.1 * expected.norm()
    module.train()(x.requires_grad_(), layout)[0].float().sum().backward()
    assert x.grad.isfinite().all()
