"""A sequence has the same outputs in padded and packed batches and alone."""

import pytest
import torch
from labelled_batches import LENGTHS, batch
from transformers import DataCollatorWithFlattening
from twins import twins

from modeling_mybert import (
    MyBertForMaskedLM,
    MyBertForPreTraining,
    MyBertForQuestionAnswering,
    MyBertModel,
)
from modeling_mybert.padding_mybert import packed_layout
from mybert.inference import checks

PAIRS = torch.tensor([0, 1, 1, 0])


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_a_packed_sequence_attends_to_itself_only(tiny_config, attention):
    tiny_config._attn_implementation = attention
    model = MyBertModel(tiny_config).eval()
    pack, _ = batch("packed", tiny_config.vocab_size)
    found = model(**pack)
    alone = [model(row) for row in pack["input_ids"].split(LENGTHS.tolist(), dim=1)]
    assert found.last_hidden_state.shape == (1, LENGTHS.sum(), tiny_config.hidden_size)
    expected = torch.cat([one.last_hidden_state for one in alone], dim=1)
    torch.testing.assert_close(found.last_hidden_state, expected, atol=1e-6, rtol=1e-5)
    expected = torch.cat([one.pooler_output for one in alone])
    torch.testing.assert_close(found.pooler_output, expected, atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_positions_that_restart_without_cu_seq_lens_warn(tiny_config, monkeypatch):
    """transformers' collator leaves out cu_seq_lens by default."""
    warnings = []
    monkeypatch.setattr(checks.logger, "warning_once", warnings.append)
    model = MyBertModel(tiny_config).eval()
    whole = DataCollatorWithFlattening(return_flash_attn_kwargs=True)([{"input_ids": [7] * n} for n in (7, 1, 9)])
    model(**{name: whole[name] for name in whole if name != "labels"})
    model(whole["input_ids"], attention_mask=torch.ones_like(whole["input_ids"]))
    assert not warnings
    model(whole["input_ids"], position_ids=whole["position_ids"])
    assert ["return_flash_attn_kwargs=True" in message for message in warnings] == [True]


@pytest.mark.parametrize("training", [False, True])
def test_logits_are_those_of_all_positions_unless_labelled_ones_are_asked_for(tiny_config, training):
    tiny_config.hidden_dropout_prob = tiny_config.attention_probs_dropout_prob = 0.0
    model = MyBertForMaskedLM(tiny_config).train(training)
    ids = torch.arange(5, 24)[None]
    labels = torch.full_like(ids, -100)
    labels[0, [3, 8]] = ids[0, [3, 8]]
    dense, sparse = model(ids, labels=labels), model(ids, labels=labels, sparse_logits=True)
    assert dense.logits.shape == (*ids.shape, tiny_config.vocab_size)
    torch.testing.assert_close(dense.logits[0, [3, 8]], sparse.logits)
    torch.testing.assert_close(dense.loss, sparse.loss)
    places = {"masked_lm_positions": torch.tensor([3, 8])}
    assert torch.equal(model(ids, labels=labels, **places).logits, sparse.logits)
    assert torch.equal(model(ids, labels=labels, sparse_logits=False, **places).logits, dense.logits)


def test_each_kind_of_label_gives_its_loss_alone_and_both_their_sum(tiny_config):
    model = MyBertForPreTraining(tiny_config).eval()
    inputs, labels = batch("right", tiny_config.vocab_size)
    both = model(**inputs, labels=labels, next_sentence_label=PAIRS)
    torch.testing.assert_close(both.loss, both.mlm_loss + both.nsp_loss)
    assert torch.equal(model(**inputs, labels=labels).loss, both.mlm_loss)
    assert torch.equal(model(**inputs, next_sentence_label=PAIRS).loss, both.nsp_loss)
    assert model(**inputs).loss is None


@pytest.mark.parametrize("count", [None, 0, torch.tensor(0)])
def test_a_batch_with_nothing_labelled_has_a_finite_loss_and_gradient(tiny_config, count):
    """Trainer counts the labels of a whole step; there may be none."""
    model = MyBertForPreTraining(tiny_config).train()
    inputs, labels = batch("right", tiny_config.vocab_size)
    unlabelled = torch.full_like(labels, -100)
    result = model(**inputs, labels=unlabelled, next_sentence_label=PAIRS, num_items_in_batch=count)
    result.loss.backward()
    assert result.mlm_loss == 0 and result.loss == (0 if count is not None else result.nsp_loss)
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_a_pack_without_gaps_is_computed_without_a_mask_to_the_same_numbers(tiny_config, backend):
    model = MyBertModel(tiny_config).eval()
    model.set_attn_implementation(backend)
    ids = torch.randint(5, tiny_config.vocab_size, (3, 7), generator=torch.Generator().manual_seed(0))
    bounds = torch.tensor([0, 7, 14, 21])
    assert packed_layout(bounds, 7, 21).mask is None and packed_layout(bounds, 8, 21).mask is not None
    full, roomy = (model(ids.view(1, 21), cu_seq_lens_q=bounds, max_length_q=longest) for longest in (7, 8))
    expected = model(ids)
    for found in (full, roomy):
        assert torch.allclose(found.last_hidden_state.view(3, 7, -1), expected.last_hidden_state, atol=1e-5)
        assert torch.allclose(found.pooler_output, expected.pooler_output, atol=1e-5)
    head = MyBertForQuestionAnswering(tiny_config).eval()
    answers = {"start_positions": torch.tensor([0, 1, 2]), "end_positions": torch.tensor([1, 6, 2])}
    found = head(ids.view(1, 21), cu_seq_lens_q=bounds, max_length_q=7, **answers)
    assert torch.allclose(found.loss, head(ids, **answers).loss, atol=1e-5)


def test_a_row_of_padding_is_refused_on_every_device_while_training(tiny_config, unreadable):
    """Finding the real tokens has synchronised already, so the check costs nothing."""
    unreadable()
    with pytest.raises(ValueError, match="no real token in row 1"):
        MyBertModel(tiny_config).train()(torch.ones(2, 4).long(), torch.tensor([[1, 1, 0, 0], [0] * 4]))


@pytest.mark.parametrize("training", [False, True])
def test_the_default_device_need_not_be_that_of_the_batch(tiny_config, training):
    model = MyBertModel(tiny_config).train(training)
    inputs, _ = batch("right", tiny_config.vocab_size)
    found = []
    for device in ("cpu", "meta"):
        torch.manual_seed(0)
        with torch.device(device):
            found.append(model(**inputs).last_hidden_state)
    torch.testing.assert_close(*found)


def test_a_chunked_feed_forward_layer_changes_nothing(tiny_config):
    pack, _ = batch("packed", tiny_config.vocab_size)
    model = MyBertModel(tiny_config).eval()
    tiny_config.chunk_size_feed_forward = 5
    chunked = MyBertModel(tiny_config).eval()
    chunked.load_state_dict(model.state_dict())
    torch.testing.assert_close(chunked(**pack).last_hidden_state, model(**pack).last_hidden_state)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8])
def test_an_integer_4d_mask_hides_where_it_is_zero(tiny_config, attention, dtype):
    """Only floating point masks are added to the scores."""
    tiny_config._attn_implementation = attention
    bert, model = twins(tiny_config)
    ids = torch.randint(5, tiny_config.vocab_size, (2, 9))
    mask = torch.arange(9) < torch.tensor([[9], [4]])
    with torch.no_grad():
        expected = bert(ids, attention_mask=mask).last_hidden_state[mask]
        found = model(ids, attention_mask=mask[:, None, None, :].expand(2, 1, 9, 9).to(dtype)).last_hidden_state[mask]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
