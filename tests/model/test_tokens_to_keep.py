"""Computing only the requested tokens in the last layer gives the outputs and gradients of computing all."""

import pytest
import torch
from labelled_batches import LENGTHS, batch, tokens_computed
from recomputation import checkpoint_layers
from torch.export import Dim
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from modeling_mybert import (
    MyBertForMaskedLM,
    MyBertForMultipleChoice,
    MyBertForNextSentencePrediction,
    MyBertForPreTraining,
    MyBertForSequenceClassification,
    MyBertModel,
)


def loss_and_gradients(model, **inputs) -> tuple[torch.Tensor, dict]:
    model.zero_grad()
    loss = model(**inputs).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("form", ["full", "right", "left", "packed"])
@pytest.mark.parametrize("head", [MyBertForPreTraining, MyBertForMaskedLM])
def test_masked_lm_gradients_of_requested_tokens_equal_those_of_all_tokens(tiny_config, head, form, attention):
    tiny_config._attn_implementation = attention
    model = head(tiny_config).eval()
    inputs, labels = batch(form, tiny_config.vocab_size)
    if head is MyBertForPreTraining:
        inputs["next_sentence_label"] = torch.tensor([0, 1, 1, 0])
    seen = tokens_computed(model, layer=-1)
    expected, found = (loss_and_gradients(model, **inputs, labels=labels, sparse_logits=x) for x in (False, True))
    whole, kept = seen
    assert whole == (48 if form == "full" else int(LENGTHS.sum()))
    labelled = int((labels != -100).sum())
    assert labelled < kept <= labelled + 4 < whole
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=1e-5)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        torch.testing.assert_close(found[1][name], gradient, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("form", ["full", "right", "left", "packed"])
@pytest.mark.parametrize(
    "head", [MyBertForSequenceClassification, MyBertForNextSentencePrediction, MyBertForMultipleChoice]
)
def test_pooled_heads_compute_first_tokens_only(tiny_config, head, form):
    model = head(tiny_config).eval()
    inputs, _ = batch(form, tiny_config.vocab_size)
    if head is MyBertForMultipleChoice:
        folded = {name: x.view(2, 2, -1) for name, x in inputs.items() if form != "packed"}
        inputs = folded or {**inputs, "num_choices": 2}
    seen = tokens_computed(model, layer=-1)
    found = model(**inputs).logits
    expected = model(**inputs, output_hidden_states=True)
    assert seen == [4, 48 if form == "full" else int(LENGTHS.sum())]
    assert len(expected.hidden_states) == tiny_config.num_hidden_layers + 1
    torch.testing.assert_close(found, expected.logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("asked", [[], [2], [5, 3, 40, 0], [13, 11, 30]])
@pytest.mark.parametrize("form", ["full", "right", "left"])
@torch.no_grad()
def test_any_places_in_any_order_are_returned_with_zeros_at_padding(tiny_config, form, asked):
    model = MyBertModel(tiny_config).eval()
    inputs, _ = batch(form, tiny_config.vocab_size)
    expected, found = model(**inputs), model(**inputs, tokens_to_keep=asked)
    torch.testing.assert_close(
        found.last_hidden_state, expected.last_hidden_state.flatten(0, 1)[asked], atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(found.pooler_output, expected.pooler_output, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_hidden_states_attentions_and_4d_masks_compute_all_tokens(tiny_config):
    model = MyBertModel(tiny_config).eval()
    inputs, _ = batch("right", tiny_config.vocab_size)
    expected = model(**inputs, tokens_to_keep=[0, 14]).last_hidden_state
    seen = tokens_computed(model, layer=-1)
    square = inputs["attention_mask"].bool()[:, None, None, :].expand(4, 1, 12, 12)
    for asked in ({"output_hidden_states": True}, {"output_attentions": True}, {"attention_mask": square}):
        found = model(**{**inputs, **asked}, tokens_to_keep=[0, 14]).last_hidden_state
        if "attention_mask" in asked:
            expected, found = expected[:1], found[:1]  # the second is padding, unknown from a 4-D mask
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert seen == [int(LENGTHS.sum())] * 2 + [48]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("form", ["right", "left"])
def test_labels_at_padding_count_as_they_do_among_all_tokens(tiny_config, unreadable, form, attention):
    unreadable()
    tiny_config._attn_implementation = attention
    model = MyBertForMaskedLM(tiny_config).double().eval()
    inputs, labels = batch(form, tiny_config.vocab_size)
    labels[0] = -100
    labels[1], labels[2, :6] = inputs["input_ids"][1], inputs["input_ids"][2, :6]  # more than the next sequence has
    expected, found = (loss_and_gradients(model, **inputs, labels=labels, sparse_logits=x) for x in (False, True))
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_masked_lm_positions_padded_with_zeros_have_no_effect(tiny_config, unreadable, on_gpu, attention):
    """As in the data of BERT's own code, with a fixed number of positions."""
    if on_gpu:
        unreadable()
    tiny_config._attn_implementation = attention
    model = MyBertForPreTraining(tiny_config).eval()
    inputs, labels = batch("packed", tiny_config.vocab_size)
    labels[0, 0] = -100
    places = (labels[0] != -100).nonzero().squeeze(1)
    filled = torch.cat([places, places.new_zeros(15)])
    inputs |= {"labels": labels, "next_sentence_label": torch.tensor([0, 1, 1, 0]), "sparse_logits": True}
    expected, found = (loss_and_gradients(model, **inputs, masked_lm_positions=x) for x in (places, filled))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_all_tokens_are_computed_if_all_are_labelled(tiny_config):
    model = MyBertForMaskedLM(tiny_config).train()
    seen = tokens_computed(model, layer=-1)
    inputs, _ = batch("right", tiny_config.vocab_size)
    model(**inputs, labels=inputs["input_ids"])
    assert seen == [int(LENGTHS.sum())]


def test_an_exported_classifier_takes_batches_of_any_shape(tiny_config):
    model = MyBertForSequenceClassification(tiny_config).eval()
    inputs, _ = batch("right", tiny_config.vocab_size)
    axes = {0: Dim("rows", min=2, max=64), 1: Dim("columns", min=2, max=40)}
    shapes = dict.fromkeys(inputs, axes)
    program = torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False).module()
    smaller = {name: x[1:, :9] for name, x in inputs.items()}
    for given in (inputs, smaller):
        torch.testing.assert_close(program(**given).logits, model(**given).logits, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_compiled_pooled_head_is_one_graph_for_packs_of_any_shape(tiny_config):
    model = MyBertForSequenceClassification(tiny_config).eval()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="eager")
    for lengths in ([7, 1, 12, 9], [5, 6, 7]):
        ids = torch.randint(5, tiny_config.vocab_size, (1, sum(lengths)))
        pack = {"input_ids": ids, "cu_seq_lens_q": torch.tensor([0, *lengths]).cumsum(0), "max_length_q": max(lengths)}
        torch.testing.assert_close(compiled(**pack).logits, model(**pack).logits, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_layer_used_twice_computes_all_tokens_in_its_first_use(tiny_config):
    model = MyBertForSequenceClassification(tiny_config).eval()
    model.bert.encoder.layer[1] = model.bert.encoder.layer[0]
    inputs, _ = batch("right", tiny_config.vocab_size)
    expected = model(**inputs, output_hidden_states=True).logits
    torch.testing.assert_close(model(**inputs).logits, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_custom_attention_function_gets_as_many_queries_as_keys(tiny_config):
    shapes = []

    def own(module, query, key, *arguments, **more):
        shapes.append((query.shape, key.shape))
        return sdpa_attention_forward(module, query, key, *arguments, **more)

    AttentionInterface.register("own_attention", own)
    tiny_config._attn_implementation = "own_attention"
    MyBertForSequenceClassification(tiny_config).eval()(**batch("right", tiny_config.vocab_size)[0])
    assert len(shapes) == tiny_config.num_hidden_layers and all(query == key for query, key in shapes)


def test_gradient_checkpointing_computes_requested_tokens_only(tiny_config):
    inputs, labels = batch("packed", tiny_config.vocab_size)
    tiny_config.hidden_dropout_prob = tiny_config.attention_probs_dropout_prob = 0.0
    model = MyBertForMaskedLM(tiny_config).train()
    expected = loss_and_gradients(model, **inputs, labels=labels, sparse_logits=True)
    checkpoint_layers(model)
    seen = tokens_computed(model, layer=-1)
    found = loss_and_gradients(model, **inputs, labels=labels, sparse_logits=True)
    assert len(set(seen)) == 1 and seen[0] < int(LENGTHS.sum())
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
