"""Batches padded to a multiple of tokens for oneDNN have the same outputs and gradients."""

import pytest
import torch
from labelled_batches import LENGTHS, batch, tokens_computed

from modeling_mybert import MyBertForPreTraining, MyBertModel
from mybert.inference.cpu import attention as attention_on_cpu
from mybert.inference.cpu import onednn


@pytest.fixture(params=["one group", "several groups"])
def filled_up(request, monkeypatch):
    """Called, it makes models pad every batch to a multiple of tokens."""
    monkeypatch.setattr(attention_on_cpu, "COST_OF_A_GROUP", 0 if request.param == "several groups" else 10**9)

    def fill(multiple: int) -> None:
        monkeypatch.setattr(onednn, "row_multiple", lambda total, device, dtype: multiple)

    return fill


TOTALS = {1: 29, 16: 32, 14: 42, 1000: 48}
"""Of each multiple; 48 since the grid has no more padding."""


@pytest.mark.parametrize("form", ["right", "left", "packed"])
# In training, sdpa stands for a fused kernel in float32 and for products in float64.
@pytest.mark.parametrize(("attention", "dtype"), [("eager", "float32"), ("sdpa", "float32"), ("sdpa", "float64")])
def test_outputs_and_gradients_are_those_of_the_real_tokens(tiny_config, filled_up, attention, dtype, form):
    tiny_config._attn_implementation = attention
    tiny_config.hidden_dropout_prob = tiny_config.attention_probs_dropout_prob = 0.0
    model = MyBertForPreTraining(tiny_config).to(getattr(torch, dtype)).train()
    inputs, labels = batch(form, tiny_config.vocab_size)
    found = []
    seen = tokens_computed(model, layer=0)
    for multiple in (None, *TOTALS):
        if multiple:
            filled_up(multiple)
        model.zero_grad()
        out = model(**inputs, labels=labels, next_sentence_label=torch.arange(4) % 2)
        out.loss.backward()
        states = model.bert(**inputs, output_hidden_states=True)
        found.append(
            {
                "loss": out.loss,
                "sequences": out.seq_relationship_logits,
                "last": states.last_hidden_state,
                "first layer": states.hidden_states[1],
                "probabilities": torch.cat(model.bert(**inputs, output_attentions=True).attentions),
                **{name: parameter.grad.clone() for name, parameter in model.named_parameters()},
            }
        )
    assert seen == [total for total in (29, *TOTALS.values()) for _ in range(3)]
    real = torch.arange(12) < LENGTHS[:, None]
    real = (real.flip(1) if form == "left" else real)[:, None, :, None]
    for side in found:
        side["probabilities"] = side["probabilities"].unflatten(0, (-1, 4)) * real
    for filled in found[1:]:
        torch.testing.assert_close(filled, found[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("filled_up", ["one group"], indirect=True)
def test_given_embeddings_and_positions_are_padded_too(tiny_config, filled_up):
    model = MyBertModel(tiny_config).eval()
    inputs, _ = batch("packed", tiny_config.vocab_size)
    given = {
        "cu_seq_lens_q": inputs["cu_seq_lens_q"],
        "inputs_embeds": torch.randn(1, 29, tiny_config.hidden_size, requires_grad=True),
        "position_ids": torch.cat([torch.arange(n) for n in LENGTHS])[None].flip(1),
        "token_type_ids": torch.ones(1, 29, dtype=torch.long),
    }
    seen, found = tokens_computed(model, layer=0), []
    for fill in (False, True):
        if fill:
            filled_up(16)
        last = model(**given).last_hidden_state
        found += [last, *torch.autograd.grad(last.sin().sum(), given["inputs_embeds"])]
    assert seen == [29, 32]
    torch.testing.assert_close(found[2:], found[:2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, 1e30])
def test_values_at_padding_have_no_effect(tiny_config, filled_up, poison):
    filled_up(16)
    model = MyBertModel(tiny_config).eval()
    inputs, _ = batch("left", tiny_config.vocab_size)
    mask = inputs["attention_mask"]
    found = []
    for value in (0.0, poison):
        given = torch.randn(4, 12, tiny_config.hidden_size, generator=torch.Generator().manual_seed(0))
        given = given.masked_fill(mask[..., None] == 0, value).requires_grad_()
        last = model(inputs_embeds=given, attention_mask=mask).last_hidden_state
        found.append((last, *torch.autograd.grad(last.sin().sum(), (given, *model.encoder.parameters()))))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


@pytest.mark.parametrize("how", ["autocast", "weights", "oneDNN"])
@torch.no_grad()
def test_only_half_precision_and_onednn_batches_are_padded_to_a_multiple(tiny_config, monkeypatch, how):
    monkeypatch.setattr(onednn, "onednn_is_faster", lambda: how == "oneDNN")
    tiny_config.max_position_embeddings = 512
    model = MyBertModel(tiny_config).eval()
    seen = tokens_computed(model, layer=0)
    for total, expected in ((127, 127), (130, 144), (250, 256), (257, 288), (513, 576)):
        inputs = {
            "input_ids": torch.full((1, total), 7),
            "cu_seq_lens_q": torch.tensor([0, total // 5, total]),  # in a grid of 2 × 4/5 of them
        }
        with torch.backends.mkldnn.flags(enabled=False):
            model.float()(**inputs)
        if how == "weights":
            model.bfloat16()
        with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
            out = model(**inputs).last_hidden_state
        assert out.shape[1] == total
        assert seen[-2:] == [total, expected]
