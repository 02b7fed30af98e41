"""The choice of the attention backend, and the warning when sdpa replaces it."""

import re

import pytest
import torch
from transformers.testing_utils import CaptureLogger

from modeling_mybert import MyBertForPreTraining, MyBertModel, attention_mybert
from modeling_mybert.attention_mybert import resolve_backend
from modeling_mybert.padding_mybert import RaggedLayout, packed_layout, padded_layout
from mybert.inference.cuda import varlen_attention_forward


def pack() -> RaggedLayout:
    return packed_layout(torch.tensor([0, 7, 8, 27]), 19, 27)


def left_padded() -> RaggedLayout:
    return padded_layout((2, 3), torch.tensor([[0, 1, 1], [1, 1, 1]]), torch.device("cpu"))


def own_mask() -> RaggedLayout:
    return padded_layout((2, 3), torch.ones(2, 1, 3, 3, dtype=torch.bool).tril(), torch.device("cpu"))


@pytest.mark.parametrize(
    ("backend", "device", "dtype", "layout", "dropout", "reason"),
    [
        ("flex_attention", "meta", torch.float32, pack, 0.0, None),
        ("flex_attention", "meta", torch.float32, pack, 0.1, "has no dropout .attention_probs_dropout_prob is 0.1"),
        ("flex_attention", "meta", torch.float32, own_mask, 0.0, "no mask except that of padding"),
        ("flex_attention", "cpu", torch.float32, pack, 0.0, "needs a GPU"),
        ("varlen_attn", "meta", torch.bfloat16, left_padded, 0.0, None),
        ("varlen_attn", "meta", torch.float32, pack, 0.0, "float16 and bfloat16, not torch.float32"),
        ("varlen_attn", "meta", torch.float16, pack, 0.2, None),
        ("varlen_attn", "cpu", torch.bfloat16, pack, 0.0, "needs a GPU"),
        ("flash_attention_2", "meta", torch.bfloat16, pack, 0.1, None),
        ("kernels-community/flash-attn2", "meta", torch.bfloat16, pack, 0.1, None),
        ("flash_attention_2", "meta", torch.bfloat16, own_mask, 0.0, "no mask except that of padding"),
        ("flash_attention_3", "meta", torch.bfloat16, pack, 0.1, "has no dropout"),
        ("flash_attention_3", "meta", torch.bfloat16, pack, 0.0, None),
        ("eager", "cpu", torch.float32, own_mask, 0.1, None),
        ("sdpa", "cpu", torch.float32, own_mask, 0.1, None),
    ],
)
def test_sdpa_replaces_a_backend_that_lacks_a_feature_with_one_warning(
    backend, device, dtype, layout, dropout, reason
):
    attention_mybert.logger.warning_once.__func__.cache_clear()
    query = torch.empty(0, 2, 64, dtype=dtype, device=device)
    with CaptureLogger(attention_mybert.logger) as captured:
        chosen = [resolve_backend(backend, query, layout(), dropout) for _ in range(3)]
    assert chosen == [backend if reason is None else "sdpa"] * 3
    if reason is None:
        assert not captured.out
    else:
        assert captured.out.count(f"attn_implementation={backend!r} ") == 1
        assert re.search(reason, captured.out)


@pytest.mark.parametrize(
    ("backend", "able"),
    [
        ("flex_attention", {8: False, 16: True, 20: True, 320: True}),
        ("varlen_attn", {8: True, 20: False, 64: True, 320: False}),
        ("flash_attention_2", {8: True, 20: True, 256: True, 320: False}),  # it pads heads to whole words itself
    ],
)
def test_sdpa_computes_heads_of_sizes_that_a_kernel_does_not_support(backend, able):
    for size, fits in able.items():
        query = torch.empty(0, 2, size, dtype=torch.bfloat16, device="meta")
        assert resolve_backend(backend, query, pack(), 0.0) == (backend if fits else "sdpa"), size


def test_varlen_attention_refuses_masks():
    query = torch.zeros(1, 2, 3, 4)
    bounds = {"cu_seq_lens_q": None, "cu_seq_lens_k": None, "max_length_q": 3, "max_length_k": 3}
    with pytest.raises(ValueError, match="varlen_attn"):
        varlen_attention_forward(None, query, query, query, torch.ones(1, 1, 1, 3), scaling=0.5, **bounds)


@pytest.mark.parametrize("backend", ["sdpa", "flex_attention", "varlen_attn"])
@torch.no_grad()
def test_4d_masks_and_output_attentions_work_on_every_backend(tiny_config, backend):
    model = MyBertModel(tiny_config).eval()
    ids = torch.randint(5, 99, (2, 9), generator=torch.Generator().manual_seed(0))
    triangle = torch.ones(2, 1, 9, 9, dtype=torch.bool).tril()
    results = []
    for name in ("eager", backend):
        model.set_attn_implementation(name)
        masked = model(ids, attention_mask=triangle).last_hidden_state
        attentions = model(ids, output_attentions=True).attentions
        results.append((masked, *attentions))
    assert len(results[0]) == 1 + tiny_config.num_hidden_layers
    assert not torch.allclose(results[0][0], model(ids).last_hidden_state, atol=1e-3)  # premise: the mask matters
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_backends_are_chosen_when_loading_and_changed_before_and_after(tiny_config, tmp_path):
    model = MyBertForPreTraining(tiny_config).eval()
    ids = torch.randint(5, 99, (1, 9), generator=torch.Generator().manual_seed(0))
    expected = model(ids).prediction_logits
    model.set_attn_implementation("flex_attention")
    assert model.bert.encoder.layer[0].attention.self.config._attn_implementation == "flex_attention"
    torch.testing.assert_close(model(ids).prediction_logits, expected)
    model.save_pretrained(tmp_path)
    assert MyBertForPreTraining.from_pretrained(tmp_path).config._attn_implementation == "sdpa"  # not saved
    for backend in ("eager", "sdpa", "flex_attention", "varlen_attn"):
        loaded = MyBertForPreTraining.from_pretrained(tmp_path, attn_implementation=backend).eval()
        assert loaded.bert.config._attn_implementation == backend
        torch.testing.assert_close(loaded(ids).prediction_logits, expected)
        loaded.set_attn_implementation("eager")
        assert loaded.bert.encoder.layer[1].attention.self.config._attn_implementation == "eager"
    with pytest.raises(ValueError, match="flash_attention_7"):
        model.set_attn_implementation("flash_attention_7")
    with pytest.raises(ValueError, match="no_such_backend"):
        MyBertModel.from_pretrained(tmp_path, attn_implementation="no_such_backend")
