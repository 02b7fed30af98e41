"""Attention of sequences of similar length together, on the CPU."""

import pytest
import torch
from torch import Tensor
from twins import twins

from modeling_mybert import MyBertModel
from modeling_mybert.padding_mybert import packed_layout, padded_layout
from mybert.inference.cpu.attention import LengthGroups, Queries, length_groups

HEADS, SIZE = 2, 4


def layout_of(lengths: list[int]):
    bounds = torch.tensor([0, *lengths]).cumsum(0)
    return packed_layout(bounds, max(lengths), int(bounds[-1]))


def lengths_like(kind: str) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    low, high, count = {"mixed": (1, 200, 64), "short": (1, 16, 40), "equal": (24, 25, 9), "one": (7, 8, 1)}[kind]
    return torch.randint(low, high, (count,), generator=generator).tolist()


def plain(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = query @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return (scores.softmax(-1) @ value).transpose(1, 2)


def alone(query: Tensor, key: Tensor, value: Tensor, lengths_q: list[int], lengths_k: list[int]) -> Tensor:
    parts = zip(query.split(lengths_q), key.split(lengths_k), value.split(lengths_k), strict=True)
    return torch.cat([plain(*(x.transpose(0, 1)[None] for x in part))[0] for part in parts])


@pytest.mark.parametrize("by_head", [False, True])
@pytest.mark.parametrize("tokens", ["all", "first", "some"])
@pytest.mark.parametrize("kind", ["mixed", "short", "equal", "one"])
@torch.no_grad()
def test_each_sequence_attends_to_itself(kind, tokens, by_head):
    lengths = lengths_like(kind)
    layout = layout_of(lengths)
    some = torch.arange(layout.total)[::3]
    queries = {"all": layout, "first": Queries(layout, layout.cu_seq_lens[:-1]), "some": Queries(layout, some)}[tokens]
    # Key and value are parts of one product, query is a tensor of its own, as in the last layer.
    product = torch.randn(layout.total, 2 * HEADS * SIZE, dtype=torch.float64)
    key, value = (x.unflatten(-1, (HEADS, SIZE)) for x in product.chunk(2, dim=-1))
    query = torch.randn(queries.total, HEADS, SIZE, dtype=torch.float64)
    found = LengthGroups(queries, layout, HEADS, by_head).attend(query, key, value, plain)
    torch.testing.assert_close(found, alone(query, key, value, queries.cu_seq_lens.diff().tolist(), lengths))


@pytest.mark.parametrize("by_head", [False, True])
@torch.no_grad()
def test_rows_may_have_any_strides(by_head):
    layout = layout_of(lengths := lengths_like("mixed"))
    rows, width = layout.total, HEADS * SIZE
    inputs = [
        torch.randn(rows, 2 * width + 1, dtype=torch.float64)[:, 1 : width + 1].unflatten(-1, (HEADS, SIZE)),
        torch.randn(rows, 2 * HEADS, SIZE, dtype=torch.float64)[:, ::2],
        torch.randn(rows, SIZE, HEADS, dtype=torch.float64).transpose(1, 2),
    ]
    found = LengthGroups(layout, layout, HEADS, by_head).attend(*inputs, plain)
    torch.testing.assert_close(found, alone(*inputs, *2 * [lengths]))


@pytest.mark.parametrize("by_head", [False, True])
def test_gradients_of_parts_of_one_product_are_those_of_each_sequence(by_head):
    layout = layout_of(lengths := lengths_like("mixed"))
    product = torch.randn(layout.total, 3 * HEADS * SIZE, dtype=torch.float64, requires_grad=True)
    inputs = [x.unflatten(-1, (HEADS, SIZE)) for x in product.chunk(3, dim=-1)]
    weights = torch.randn_like(inputs[0])
    found = LengthGroups(layout, layout, HEADS, by_head).attend(*inputs, plain)
    expected = alone(*inputs, *2 * [lengths])
    gradients = [torch.autograd.grad(context, product, weights)[0] for context in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("kind", ["mixed", "short", "equal"])
def test_little_is_computed_for_padding_in_few_groups(kind):
    lengths, computed = lengths_like(kind), []

    def count(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        computed.append(query.shape[0] * query.shape[2] * key.shape[2])
        return query.transpose(1, 2)

    rows = torch.zeros(sum(lengths), HEADS, SIZE)
    layout = layout_of(lengths)
    LengthGroups(layout, layout, HEADS, by_head=False).attend(rows, rows, rows, count)
    on_one_grid = len(lengths) * max(lengths) ** 2
    assert sum(computed) < {"mixed": 0.45, "short": 1.1, "equal": 1.34}[kind] * on_one_grid
    assert len(computed) <= max(lengths) / 16 + 1


def test_a_grid_without_padding_needs_no_groups_and_a_batch_makes_them_once():
    full, gaps = layout_of([32, 32]), layout_of([32, 9])
    assert length_groups(full, full, HEADS, by_head=False) is None
    groups = [length_groups(gaps, gaps, HEADS, by_head) for by_head in (False, True, False, True)]
    assert groups[0] is groups[2] and groups[1] is groups[3] and groups[0] is not groups[1]
    assert length_groups(Queries(gaps, gaps.cu_seq_lens[:-1]), gaps, HEADS, by_head=True) not in groups


MASKS = {
    "left": lambda lengths, columns: columns >= columns.numel() - lengths,
    "right": lambda lengths, columns: columns < lengths,
    "with holes": lambda lengths, columns: (columns < lengths) & ((columns % 3 != 1) | (lengths == 1)),
}


@pytest.mark.parametrize("side", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_outputs_of_mixed_lengths_are_those_of_bert(tiny_config, side, dtype):
    bert, model = twins(tiny_config)
    columns = torch.arange(tiny_config.max_position_embeddings)
    mask = MASKS[side](torch.tensor([len(columns), 1, 30, 29, 17, 3])[:, None], columns).long()
    ids = torch.randint(5, tiny_config.vocab_size, mask.shape, generator=torch.Generator().manual_seed(0))
    expected = bert(ids, attention_mask=mask).last_hidden_state * mask[..., None]
    found = model.to(dtype)(ids, attention_mask=mask).last_hidden_state.float()
    near = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 0.1, "rtol": 0.05}
    torch.testing.assert_close(found, expected, **near)


@torch.no_grad()
def test_a_sequence_with_nan_leaves_the_others_as_they_are(tiny_config):
    model = MyBertModel(tiny_config).eval()
    mask = (torch.arange(29) < torch.tensor([[29], [4], [11]])).long()
    assert length_groups(layout := padded_layout((3, 29), mask, mask.device), layout, HEADS, by_head=True)
    embeddings = torch.randn(3, 29, tiny_config.hidden_size, generator=torch.Generator().manual_seed(0))
    expected = model(inputs_embeds=embeddings, attention_mask=mask).last_hidden_state
    for bad in range(3):
        damaged = embeddings.clone()
        damaged[bad] = torch.nan
        found = model(inputs_embeds=damaged, attention_mask=mask).last_hidden_state
        others = [row for row in range(3) if row != bad]
        assert found[bad][mask[bad].bool()].isnan().all()
        torch.testing.assert_close(found[others], expected[others])
