"""The grid on which attention computes on the CPU: wider than the longest sequence, tokens repeated at padding."""

import pytest
import torch
from twins import twins

from modeling_mybert import MyBertModel
from modeling_mybert.cpu_mybert import key_columns
from modeling_mybert.padding_mybert import RaggedLayout, packed_layout, padded_layout

CPU = torch.device("cpu")
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 0], [1, 1, 1, 1, 1]])
LAYOUTS = {
    "padded": lambda: padded_layout((4, 5), MASK, CPU),
    "full": lambda: padded_layout((4, 5), None, CPU),
    "packed": lambda: packed_layout(torch.tensor([0, 3, 4, 9]), 5, 9),
}


@pytest.mark.parametrize("length", [5, 8])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_place_holds_its_own_token_or_another_of_its_sequence(name, length):
    plain = LAYOUTS[name]()
    layout = plain.widened(length)
    assert isinstance(layout, RaggedLayout) and layout is plain.widened(length)
    rows = torch.arange(1.0, layout.total + 1)[:, None]
    with torch.no_grad():
        found = layout.to_attention_grid(rows)
    expected = plain.to_grid(rows)
    assert found.shape == (expected.shape[0], length, 1)
    hidden = torch.ones(found.shape[:2], dtype=torch.bool) if layout.mask is None else layout.mask[:, 0, 0]
    for row, (places, tokens, visible) in enumerate(zip(found[..., 0], expected[..., 0], hidden, strict=True)):
        own = set(tokens[tokens > 0].tolist())
        assert set(places.tolist()) == own, row
        assert torch.equal(places[:5].where(tokens > 0, 0), tokens)
        assert torch.equal(visible[:5], tokens > 0) and not visible[5:].any()
    assert torch.equal(layout.from_grid(found), rows)
    assert torch.equal(layout.from_grid(layout.to_grid(rows)), rows)


def test_columns_are_added_only_where_half_a_block_of_keys_is_missing_at_most():
    found = {length: key_columns(length, eager=False, learns=False) for length in (1, 7, 8, 16, 23, 24, 31, 33, 100)}
    assert found == {1: 1, 7: 7, 8: 16, 16: 16, 23: 23, 24: 32, 31: 32, 33: 33, 100: 100}
    assert key_columns(24, eager=True, learns=True) == 24


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("longest", [9, 24, 29])
@torch.no_grad()
def test_outputs_are_those_of_bert_with_a_wider_grid(tiny_config, longest, side):
    bert, model = twins(tiny_config)
    lengths = torch.tensor([longest, 1, longest // 2])[:, None]
    columns = torch.arange(longest)
    mask = (columns < lengths if side == "right" else columns >= longest - lengths).long()
    ids = torch.randint(5, tiny_config.vocab_size, mask.shape, generator=torch.Generator().manual_seed(0))
    expected, found = (x(ids, attention_mask=mask).last_hidden_state for x in (bert, model))
    torch.testing.assert_close(found, expected * mask[..., None], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_sequence_with_nan_leaves_the_others_as_they_are(tiny_config):
    model = MyBertModel(tiny_config).eval()
    mask = (torch.arange(29) < torch.tensor([[29], [4], [11]])).long()
    embeddings = torch.randn(3, 29, tiny_config.hidden_size, generator=torch.Generator().manual_seed(0))
    expected = model(inputs_embeds=embeddings, attention_mask=mask).last_hidden_state
    for bad in range(3):
        damaged = embeddings.clone()
        damaged[bad] = torch.nan
        found = model(inputs_embeds=damaged, attention_mask=mask).last_hidden_state
        others = [row for row in range(3) if row != bad]
        assert found[bad][mask[bad].bool()].isnan().all()
        torch.testing.assert_close(found[others], expected[others])
