"""Attention backends compared with the formula: outputs, gradients, dropout, isolation of sequences."""

import inspect
from itertools import pairwise

import pytest
import torch
import transformers.modeling_flash_attention_utils as flash_utils
from recomputation import checkpoint_layers
from torch import nn
from torch.nn.attention import varlen
from transformers.models.bert.modeling_bert import eager_attention_forward as bert_attention_forward
from transformers.testing_utils import CaptureLogger
from transformers.utils import is_flash_attn_2_available

from modeling_mybert import (
    MyBertForPreTraining,
    MyBertModel,
    attention_mybert,
    padding_mybert,
)
from modeling_mybert.attention_mybert import MyBertSelfAttention
from modeling_mybert.padding_mybert import RaggedLayout, packed_layout, padded_layout
from mybert.inference.cpu import attention as attention_on_cpu
from mybert.inference.cpu.elementwise import softmax

DROPPING = ["eager", "sdpa", "sdpa apart"]
ON_CPU = [*DROPPING, "flex_attention", "varlen_attn"]  # the last two by way of sdpa
ON_TOKENS = ["flex_attention", "varlen_attn", "flash_attention_2"]
LENGTHS = [7, 1, 19, 12]


@pytest.fixture
def backend(request, monkeypatch) -> str:
    """The backend to set; "sdpa apart" is sdpa in groups of similar length, however few sequences they have."""
    name, _, apart = request.param.partition(" ")
    monkeypatch.setattr(attention_on_cpu, "COST_OF_A_GROUP", 0 if apart else 10**9)
    return name


def pack(lengths: list[int] = LENGTHS) -> RaggedLayout:
    lengths = torch.tensor(lengths)
    return packed_layout(nn.functional.pad(lengths.cumsum(0), (1, 0)).int(), int(lengths.max()), int(lengths.sum()))


def left_padded(lengths: list[int] = LENGTHS) -> RaggedLayout:
    longest = max(lengths)
    mask = torch.arange(longest) >= longest - torch.tensor(lengths)[:, None]
    return padded_layout((len(lengths), longest), mask.long(), torch.device("cpu"))


def attention(config, backend: str, dropout: float = 0.0) -> MyBertSelfAttention:
    """One layer's attention with weights large enough that probabilities are far from uniform."""
    config.attention_probs_dropout_prob = dropout
    config._attn_implementation = backend
    torch.manual_seed(0)
    module = MyBertSelfAttention(config)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module


def tokens(config, lengths: list[int] = LENGTHS, seed: int = 1) -> torch.Tensor:
    return torch.randn(sum(lengths), config.hidden_size, generator=torch.Generator().manual_seed(seed))


def per_sequence(module: MyBertSelfAttention, x: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """The formula of the paper, in float64, on each sequence by itself."""
    parts = []
    for part in x.split(lengths):
        q, k, v = (
            (part.double() @ layer.weight.double().T + layer.bias.double()).unflatten(1, (-1, module.head_size))
            for layer in (module.query, module.key, module.value)
        )
        scores = torch.einsum("iad,jad->aij", q, k) / module.head_size**0.5
        parts.append(torch.einsum("aij,jad->iad", scores.softmax(-1), v).flatten(1))
    return torch.cat(parts)


# Stand-ins for CUDA kernels with the same signatures, computing one sequence at a time.


def each_sequence(q, k, v, cu_q, cu_k, scale: float) -> torch.Tensor:
    assert cu_q.dtype == cu_k.dtype == torch.int32
    bounds, seen = cu_q.tolist(), cu_k.tolist()
    assert len(q) == bounds[-1] and len(k) == seen[-1]
    assert q.shape[1:] == k.shape[1:] and k.shape == v.shape and all(x.stride(-1) == 1 for x in (q, k, v))
    mixed = []
    for (a, b), (c, d) in zip(pairwise(bounds), pairwise(seen), strict=True):
        scores = torch.einsum("iad,jad->aij", q[a:b], k[c:d]) * scale
        mixed.append(torch.einsum("aij,jad->iad", scores.softmax(-1), v[c:d]))
    return torch.cat(mixed)


@pytest.fixture
def kernels(monkeypatch):
    """The backends that take tokens, on the CPU: flex unfused, the others by stand-ins. Returns the kernels' calls."""
    calls = []
    signature = inspect.signature(varlen.varlen_attn)

    def varlen_attn(*args, **kwargs):
        found = signature.bind(*args, **kwargs).arguments
        calls.append(found)
        return each_sequence(*(found[x] for x in ("query", "key", "value", "cu_seq_q", "cu_seq_k", "scale")))

    def flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p=0.0,
        softmax_scale=None,
        causal=False,
    ):
        calls.append({"max_q": max_seqlen_q, "max_k": max_seqlen_k, "dropout_p": dropout_p, "causal": causal})
        return each_sequence(q, k, v, cu_seqlens_q, cu_seqlens_k, softmax_scale)

    def imported(implementation):
        process = flash_utils._lazy_define_process_function(flash_attn_varlen_func)
        newer = hasattr(flash_utils, "_process_with_kvcache_kwargs_fn")  # it returns two functions
        return (None, flash_attn_varlen_func, None, None, None), (process, None) if newer else process

    monkeypatch.setattr(varlen, "varlen_attn", varlen_attn)
    monkeypatch.setattr(flash_utils, "lazy_import_flash_attention", imported)
    monkeypatch.setattr(
        "transformers.integrations.flex_attention.compile_friendly_flex_attention",
        lambda *args, training=False, **kwargs: torch.nn.attention.flex_attention.flex_attention(*args, **kwargs),
    )
    monkeypatch.setattr(attention_mybert, "resolve_backend", lambda backend, *args: backend)
    return calls


@pytest.mark.parametrize("layout", [pack, left_padded])
@pytest.mark.parametrize("backend", ON_CPU, indirect=True)
def test_a_backend_gives_the_formula_and_its_gradient(tiny_config, backend, layout):
    module = attention(tiny_config, backend)
    x, weights = tokens(tiny_config).requires_grad_(), tokens(tiny_config, seed=2)
    gradients = []
    for found in (module(x, layout())[0], per_sequence(module, x, LENGTHS)):
        gradients.append(torch.autograd.grad((found * weights).sum(), (x, *module.parameters())))
    torch.testing.assert_close(module(x, layout())[0], found.float(), atol=1e-5, rtol=1e-5)
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("lengths", [LENGTHS, [100, 60, 140, 1, 50]])
@pytest.mark.parametrize("layout", [pack, left_padded])
@pytest.mark.parametrize("backend", ON_TOKENS)
@torch.no_grad()
def test_a_backend_on_tokens_is_called_so_that_it_gives_the_formula(tiny_config, kernels, backend, layout, lengths):
    module = attention(tiny_config, backend).eval()
    x = tokens(tiny_config, lengths)
    found, probabilities = module(x, layout(lengths))
    torch.testing.assert_close(found, per_sequence(module, x, lengths).float(), atol=1e-5, rtol=1e-5)
    assert probabilities is None
    for call in kernels:
        assert (call["max_q"], call["max_k"]) == (max(lengths), max(lengths))
        assert not call.get("causal") and call.get("window_size", (-1, -1)) == (-1, -1)
    assert bool(kernels) == (backend != "flex_attention")


@pytest.mark.parametrize("layout", [pack, left_padded])
@pytest.mark.parametrize("backend", [*DROPPING, "varlen_attn", "flash_attention_2"], indirect=True)
@torch.no_grad()
def test_some_rows_get_the_outputs_among_all_rows(tiny_config, kernels, backend, layout):
    whole, module, x = layout(), attention(tiny_config, backend), tokens(tiny_config)
    rows = torch.tensor([0, 0, 3, 8, 11, 27, 38])
    torch.testing.assert_close(module(x, whole, rows=rows)[0], module(x, whole)[0][rows], atol=1e-5, rtol=1e-5)


def test_flash_attention_gets_the_dropout_in_training_and_none_in_evaluation(tiny_config, kernels):
    module = attention(tiny_config, "flash_attention_2", dropout=0.25)
    x = tokens(tiny_config).requires_grad_()
    module.train()(x, pack())[0].sum().backward()
    module.eval()(x, pack())
    assert [call["dropout_p"] for call in kernels] == [0.25, 0.0]
    assert x.grad.isfinite().all() and x.grad.any()


@torch.no_grad()
def test_the_block_mask_of_flex_attention_is_built_once_a_batch(tiny_config, kernels, monkeypatch):
    built = []
    real = padding_mybert.create_block_mask
    monkeypatch.setattr(padding_mybert, "create_block_mask", lambda *a, **k: built.append(1) or real(*a, **k))
    tiny_config._attn_implementation = "flex_attention"
    model = MyBertModel(tiny_config).eval()
    for _ in range(2):
        model(torch.ones(1, 8, dtype=torch.long), cu_seq_lens_q=torch.tensor([0, 3, 8]), max_length_q=5)
    assert len(model.encoder.layer) == 2 and len(built) == 2


@pytest.mark.parametrize("layout", [pack, left_padded])
@pytest.mark.parametrize("backend", [*DROPPING, *ON_TOKENS], indirect=True)
@torch.no_grad()
def test_sequences_of_random_batches_never_see_each_other(tiny_config, kernels, backend, layout):
    module = attention(tiny_config, backend).eval()
    generator = torch.Generator().manual_seed(0)
    for trial in range(3):
        lengths = torch.randint(1, 25, (int(torch.randint(2, 7, (), generator=generator)),), generator=generator)
        lengths = lengths.tolist()
        x, others = tokens(tiny_config, lengths, trial), 50 * tokens(tiny_config, lengths, 99)
        before = module(x, layout(lengths))[0].split(lengths)
        for i, kept in enumerate(before):
            changed = [*others.split(lengths)]
            changed[i] = x.split(lengths)[i]
            after = module(torch.cat(changed), layout(lengths))[0].split(lengths)
            torch.testing.assert_close(after[i], kept, atol=1e-6, rtol=1e-6)
            assert all((after[j] - before[j]).abs().max() > 0.01 for j in range(len(lengths)) if j != i)


class Identity(nn.Module):
    """In place of the value projection: each token of a sequence has a one-hot value, so the output is the row of
    probabilities after dropout, whichever backend computes it."""

    def __init__(self, lengths: list[int], heads: int):
        super().__init__()
        self.values = torch.cat([torch.eye(max(lengths))[:length] for length in lengths]).repeat(1, heads)

    def forward(self, hidden_states):
        return self.values


@pytest.mark.parametrize("layout", [pack, left_padded])
@pytest.mark.parametrize("backend", DROPPING, indirect=True)
def test_each_probability_is_dropped_alone_with_the_rate_set_and_the_rest_scaled(tiny_config, backend, layout):
    lengths, p, draws = [16, 9, 12], 0.3, 60
    tiny_config.hidden_size, heads = 64, tiny_config.num_attention_heads
    module = attention(tiny_config, backend, dropout=p)
    module.value = Identity(lengths, heads)
    x = tokens(tiny_config, lengths)
    with torch.no_grad():
        expected = module.eval()(x, layout(lengths))[0].unflatten(1, (heads, -1))
        torch.manual_seed(0)
        found = torch.stack([module.train()(x, layout(lengths))[0].unflatten(1, (heads, -1)) for _ in range(draws)])
    real = expected > 0
    assert real.sum() == heads * sum(n * n for n in lengths)  # premise: one value for each probability, no more
    kept = found != 0
    assert torch.allclose(found, torch.where(kept, expected / (1 - p), 0), rtol=1e-4)
    kept = kept[:, real].double()
    count = kept[0].numel()

    def close(rate, expectation: float, samples: int) -> bool:
        spread = (expectation * (1 - expectation) / samples) ** 0.5
        return bool(((torch.as_tensor(rate) - expectation).abs() < 5.5 * spread).all())

    assert close(kept.mean(), 1 - p, kept.numel())
    assert close(kept.mean(0), 1 - p, draws)  # every single probability
    assert close(kept.mean(1), 1 - p, count)  # every draw
    together = (1 - p) ** 2  # two that are independent are both kept
    assert close((kept[1:] * kept[:-1]).mean(), together, kept[1:].numel())  # from draw to draw
    assert close((kept[:, 1:] * kept[:, :-1]).mean(), together, draws * (count - 1))  # of neighbours
    by_head = (found != 0).double().transpose(2, 1)[:, :, real[:, 0]]
    assert close((by_head[:, 1:] * by_head[:, :-1]).mean(), together, by_head[:, 1:].numel())  # of heads
    assert torch.allclose(found.mean(0), expected, atol=5.5 * expected.max() * (p / (1 - p) / draws) ** 0.5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, "autocast"])
@pytest.mark.parametrize("backend", ON_CPU, indirect=True)
def test_half_precision_stays_near_the_formula_and_trains(tiny_config, backend, dtype):
    module = attention(tiny_config, backend)
    x = tokens(tiny_config)
    expected = per_sequence(module, x, LENGTHS).float()
    if dtype != "autocast":
        module, x = module.to(dtype), x.to(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "autocast"):
        for learns in (True, False):
            with torch.set_grad_enabled(learns):
                found = module(x, pack())[0]
            assert found.dtype == torch.bfloat16
            assert (found - expected).abs().max() < 0.02 * expected.abs().max()
        module.config.attention_probs_dropout_prob = 0.1
        module.train()(x, pack())[0].float().square().mean().backward()
    assert all(p.grad.isfinite().all() for p in module.parameters())
    assert module.value.weight.grad.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("length", [1, 31, 32, 40])
def test_softmax_is_the_formula_in_its_dtype(dtype, length):
    scores = torch.randn(3, 5, length).to(dtype)
    found = softmax(scores)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), scores.double().softmax(-1), rtol=torch.finfo(dtype).eps, atol=1e-7)


@pytest.mark.parametrize("lengths", [[64, 50, 64], [64, *[2] * 8]])
def test_half_precision_trains_on_the_cpu_to_the_gradients_of_the_formula(tiny_config, monkeypatch, lengths):
    monkeypatch.setattr(attention_on_cpu, "COST_OF_A_GROUP", 0)
    module = attention(tiny_config, "sdpa").train()
    x = tokens(tiny_config, lengths)
    per_sequence(module, x, lengths).square().mean().backward()
    expected = {name: p.grad.clone() for name, p in module.named_parameters()}
    module.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        module(x, pack(lengths))[0].float().square().mean().backward()
    for name, parameter in module.named_parameters():
        if name != "key.bias":  # which changes no probability: rounding alone
            assert (parameter.grad - expected[name]).norm() < 0.05 * expected[name].norm(), name


def test_a_row_that_sees_nothing_stays_what_it_is_for_bert_in_half_precision():
    """Its mask in float32, as under autocast, whose least number is infinite in 16 bits."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 5, 8).unbind()
    mask = torch.zeros(2, 1, 5, 5)
    mask[0, :, 1] = mask[1, :, :, 3:] = torch.finfo(torch.float32).min
    module = nn.Module().eval()
    expected, _ = bert_attention_forward(module, query, key, value, mask, scaling=0.3)
    halves = (x.bfloat16() for x in (query, key, value))
    found, _ = attention_mybert.eager_attention_forward(module, *halves, mask, scaling=0.3)
    torch.testing.assert_close(found.float(), expected, atol=0.03, rtol=0.03)


@pytest.mark.parametrize("backend", DROPPING, indirect=True)
def test_checkpointed_gradients_are_the_same_under_dropout(tiny_config, backend):
    tiny_config._attn_implementation = backend
    model = MyBertForPreTraining(tiny_config).train()
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            checkpoint_layers(model)
        model.zero_grad()
        torch.manual_seed(0)
        model(**training_batch(LENGTHS)).loss.backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def training_batch(lengths: list[int]) -> dict:
    layout, total = pack(lengths), sum(lengths)
    ids = torch.randint(5, 99, (1, total), generator=torch.Generator().manual_seed(total))
    positions = torch.arange(0, total, 5)
    labels = torch.full_like(ids, -100)
    labels[0, positions] = ids[0, positions]
    return {
        "input_ids": ids,
        "position_ids": torch.cat([torch.arange(n) for n in lengths])[None],
        "cu_seq_lens_q": layout.cu_seq_lens,
        "max_length_q": max(lengths),
        "labels": labels,
        "masked_lm_positions": positions,
        "next_sentence_label": torch.arange(len(lengths)) % 2,
    }


@pytest.mark.parametrize("backend", ["eager", "flex_attention"])  # the latter by way of sdpa, with its warning
def test_a_compiled_training_step_is_one_graph_with_any_number_of_tokens(tiny_config, backend):
    tiny_config._attn_implementation = backend
    tiny_config.num_hidden_layers = 1
    tiny_config.hidden_dropout_prob = tiny_config.attention_probs_dropout_prob = 0.0
    model = MyBertForPreTraining(tiny_config).train()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for lengths in (LENGTHS, [9, 17, 3], [30, 2], [5, 8, 13, 21, 2, 3, 4]):
        losses, gradients = [], []
        for form in (compiled, model):
            model.zero_grad()
            losses.append(form(**training_batch(lengths)).loss)
            losses[-1].backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
        torch.testing.assert_close(*losses)
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*gradients, strict=True))
    assert not torch._dynamo.utils.counters["graph_break"]
    # The first batch is compiled for its own size, the second for any; the rest find that graph.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


def test_compiled_layers_drop_and_recompute_as_one_graph(tiny_config):
    """Dropout and gradient checkpointing, through the autograd of the compiler."""
    tiny_config.num_hidden_layers = 1
    model = MyBertModel(tiny_config).train()
    checkpoint_layers(model)
    torch._dynamo.reset()
    compiled = torch.compile(model.encoder, backend="aot_eager", fullgraph=True)
    x = tokens(tiny_config).requires_grad_()
    first, second = (compiled(x, pack())[0] for _ in range(2))
    assert not torch.equal(first, second)
    first.square().sum().backward()
    assert x.grad.isfinite().all() and x.grad.any()


@torch.no_grad()
def test_flex_attention_compiles_into_a_layer_without_a_break(tiny_config, monkeypatch):
    monkeypatch.setattr(attention_mybert, "resolve_backend", lambda backend, *args: backend)
    module = attention(tiny_config, "flex_attention").eval()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(module, backend="eager", fullgraph=True, dynamic=True)
    for lengths in ([7, 1, 19], [9, 17, 3, 2], [50, 3, 4, 60, 5], [8, 7]):
        x = tokens(tiny_config, lengths)
        expected = per_sequence(module, x, lengths).float()
        torch.testing.assert_close(compiled(x, pack(lengths))[0], expected, atol=1e-5, rtol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernels themselves need CUDA")
@pytest.mark.parametrize("backend", ["eager", "sdpa", "flex_attention", "varlen_attn", "flash_attention_2"])
def test_a_backend_gives_the_formula_and_its_gradient_on_cuda(tiny_config, backend):
    if backend == "flash_attention_2" and not is_flash_attn_2_available():
        pytest.skip("flash-attn is not installed")
    tiny_config.hidden_size, lengths = 256, [100, 60, 140, 1, 50]
    module = attention(tiny_config, backend)
    with torch.no_grad():  # smaller scores: rounding a score of hundreds to bfloat16 changes which key is seen
        for parameter in module.parameters():
            parameter.mul_(0.25)
    x = tokens(tiny_config, lengths).requires_grad_()
    expected = per_sequence(module, x, lengths)
    (gradient,) = torch.autograd.grad(expected.square().sum(), x)
    module, on_device = module.cuda().bfloat16(), x.detach().cuda().bfloat16().requires_grad_()
    bounds = pack(lengths).cu_seq_lens.cuda()
    with CaptureLogger(attention_mybert.logger) as captured:
        found, _ = module(on_device, packed_layout(bounds, max(lengths), sum(lengths)))
    found.float().square().sum().backward()
    assert not captured.out  # it is this backend that computed
    assert (found.cpu() - expected).abs().max() < 0.03 * expected.abs().max()
    assert (on_device.grad.cpu() - gradient).abs().max() < 0.05 * gradient.abs().max()
