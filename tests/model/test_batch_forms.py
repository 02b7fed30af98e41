"""A sequence has the same outputs in padded and packed batches and alone."""

import pytest
import torch
from recomputation import checkpoint_layers
from transformers import BertConfig, BertModel, DataCollatorWithFlattening

from modeling_mybert import (
    MyBertForMaskedLM,
    MyBertForPreTraining,
    MyBertForQuestionAnswering,
    MyBertModel,
    backbone_mybert,
)
from modeling_mybert.padding_mybert import packed_layout

LENGTHS = [7, 1, 19, 12]


def sequences(vocabulary: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(5, vocabulary, (n,), generator=generator) for n in LENGTHS]


def packed(rows: list[torch.Tensor]) -> dict:
    lengths = torch.tensor([len(row) for row in rows])
    return {
        "input_ids": torch.cat(rows)[None],
        "cu_seq_lens_q": torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int(),
        "max_length_q": int(lengths.max()),
    }


def padded(rows: list[torch.Tensor], value: int = 0) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_a_packed_sequence_attends_to_itself_only(tiny_config, attention):
    tiny_config._attn_implementation = attention
    model = MyBertModel(tiny_config).eval()
    rows = sequences(tiny_config.vocab_size)
    pack = model(**packed(rows))
    assert pack.last_hidden_state.shape == (1, sum(LENGTHS), tiny_config.hidden_size)
    for i, (row, found) in enumerate(zip(rows, pack.last_hidden_state[0].split(LENGTHS), strict=True)):
        alone = model(row[None])
        assert torch.allclose(found, alone.last_hidden_state[0], atol=1e-6)
        assert torch.allclose(pack.pooler_output[i], alone.pooler_output[0], atol=1e-6)


@torch.no_grad()
def test_positions_that_restart_without_cu_seq_lens_warn(tiny_config, monkeypatch):
    """transformers' collator leaves out cu_seq_lens by default."""
    warnings = []
    monkeypatch.setattr(backbone_mybert.logger, "warning_once", warnings.append)
    model, rows = MyBertModel(tiny_config).eval(), [{"input_ids": row.tolist()} for row in sequences(99)]
    whole = DataCollatorWithFlattening(return_flash_attn_kwargs=True)(rows)
    model(**{name: whole[name] for name in whole if name != "labels"})
    model(whole["input_ids"], attention_mask=torch.ones_like(whole["input_ids"]))
    assert not warnings
    model(whole["input_ids"], position_ids=whole["position_ids"])
    assert ["return_flash_attn_kwargs=True" in message for message in warnings] == [True]


@torch.no_grad()
def test_changing_one_packed_sequence_leaves_the_others_bit_for_bit(tiny_config):
    model = MyBertModel(tiny_config).eval()
    rows = sequences(tiny_config.vocab_size)
    before = model(**packed(rows)).last_hidden_state[0].split(LENGTHS)
    rows[2] = rows[2].flip(0)
    after = model(**packed(rows)).last_hidden_state[0].split(LENGTHS)
    assert not torch.equal(before[2], after[2])
    assert all(torch.equal(before[i], after[i]) for i in (0, 1, 3))


@torch.no_grad()
def test_the_ids_at_padding_have_no_effect(tiny_config):
    model = MyBertModel(tiny_config).eval()
    rows = sequences(tiny_config.vocab_size)
    mask = padded([torch.ones_like(row) for row in rows])
    with_zeros, with_junk = (model(padded(rows, value), attention_mask=mask) for value in (0, 77))
    assert torch.equal(with_zeros.last_hidden_state, with_junk.last_hidden_state)


def test_packed_and_padded_batches_give_the_same_losses_and_gradients(tiny_config):
    model = MyBertForPreTraining(tiny_config).eval()
    rows = sequences(tiny_config.vocab_size)
    labels = [torch.where(torch.arange(len(row)) % 3 == 0, row, -100) for row in rows]
    pairs = torch.tensor([0, 1, 1, 0])
    mask = padded([torch.ones_like(row) for row in rows])
    batches = [
        {"input_ids": padded(rows), "attention_mask": mask, "labels": padded(labels, -100)},
        {**packed(rows), "labels": torch.cat(labels)[None]},
    ]
    gradients = []
    for batch in batches:
        model.zero_grad()
        result = model(**batch, next_sentence_label=pairs, sparse_logits=True)
        result.loss.backward()
        gradients.append((result.loss.detach(), [p.grad.clone() for p in model.parameters()]))
    assert torch.allclose(gradients[0][0], gradients[1][0], rtol=1e-6)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(gradients[0][1], gradients[1][1], strict=True))


def test_training_projects_labelled_positions_only_and_inference_all(tiny_config):
    model = MyBertForMaskedLM(tiny_config)
    ids = sequences(tiny_config.vocab_size)[2][None]
    labels = torch.full_like(ids, -100)
    labels[0, [3, 8]] = ids[0, [3, 8]]
    model.train()
    assert model(ids, labels=labels).logits.shape == (2, tiny_config.vocab_size)
    model.eval()
    dense, sparse = model(ids, labels=labels), model(ids, labels=labels, sparse_logits=True)
    assert dense.logits.shape == (*ids.shape, tiny_config.vocab_size)
    assert torch.allclose(dense.logits[0, [3, 8]], sparse.logits, atol=1e-6)
    assert torch.allclose(dense.loss, sparse.loss, rtol=1e-6)
    known = model(ids, labels=labels, sparse_logits=True, masked_lm_positions=torch.tensor([3, 8]))
    assert torch.equal(known.loss, sparse.loss)


def test_each_kind_of_label_gives_its_loss_alone_and_both_their_sum(tiny_config):
    model = MyBertForPreTraining(tiny_config).eval()
    ids = torch.stack([row[:7] for row in sequences(tiny_config.vocab_size) if len(row) >= 7])
    pairs = torch.tensor([0, 1, 0])
    both = model(ids, labels=ids, next_sentence_label=pairs)
    assert torch.allclose(both.loss, both.mlm_loss + both.nsp_loss)
    assert torch.equal(model(ids, labels=ids).loss, both.mlm_loss)
    assert torch.equal(model(ids, next_sentence_label=pairs).loss, both.nsp_loss)
    assert model(ids).loss is None


@pytest.mark.parametrize("count", [None, 0, torch.tensor(0)])
def test_a_batch_with_nothing_labelled_has_a_finite_loss_and_gradient(tiny_config, count):
    """Trainer counts the labels of a whole step; there may be none."""
    model = MyBertForPreTraining(tiny_config).train()
    ids = sequences(tiny_config.vocab_size)[0][None]
    pair = torch.tensor([1])
    result = model(ids, labels=torch.full_like(ids, -100), next_sentence_label=pair, num_items_in_batch=count)
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


def test_contradicting_arguments_are_refused_with_the_numbers(tiny_config):
    model = MyBertModel(tiny_config)
    ids = torch.ones(1, 10, dtype=torch.long)
    with pytest.raises(ValueError, match="attention_mask"):
        model(ids, attention_mask=ids, cu_seq_lens_q=torch.tensor([0, 10]))
    with pytest.raises(ValueError, match=r"from 0 to the 10 tokens.*\[0, 4, 9\]"):
        model(ids, cu_seq_lens_q=torch.tensor([0, 4, 9]), max_length_q=5)
    tiny_config.num_attention_heads = 5
    with pytest.raises(ValueError, match=r"hidden_size .32.*num_attention_heads .5."):
        MyBertModel(tiny_config)


def test_chunked_feed_forward_and_gradient_checkpointing_change_nothing(tiny_config):
    rows = sequences(tiny_config.vocab_size)
    model = MyBertForPreTraining(tiny_config).eval()
    expected = model(**packed(rows)).prediction_logits
    tiny_config.chunk_size_feed_forward = 5
    chunked = MyBertForPreTraining(tiny_config).eval()
    chunked.load_state_dict(model.state_dict())
    assert torch.allclose(chunked(**packed(rows)).prediction_logits, expected, atol=1e-6)

    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            checkpoint_layers(model)
        model.train().zero_grad()
        torch.manual_seed(0)
        model(**packed(rows), labels=packed(rows)["input_ids"]).loss.backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8])
def test_an_integer_4d_mask_hides_where_it_is_zero(tiny_config, attention, dtype):
    """Only floating point masks are added to the scores."""
    tiny_config._attn_implementation = attention
    model, bert = MyBertModel(tiny_config).eval(), BertModel(BertConfig(**tiny_config.to_dict())).eval()
    bert.load_state_dict(model.state_dict())
    ids = torch.randint(5, tiny_config.vocab_size, (2, 9))
    mask = torch.arange(9) < torch.tensor([[9], [4]])
    with torch.no_grad():
        expected = bert(ids, attention_mask=mask).last_hidden_state[mask]
        found = model(ids, attention_mask=mask[:, None, None, :].expand(2, 1, 9, 9).to(dtype)).last_hidden_state[mask]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
