"""Hidden states and attention probabilities equal those of transformers' BERT with real weights."""

import pytest
import torch
from transformers import BertModel

from modeling_mybert import MyBertModel


@pytest.fixture(scope="module", params=["eager", "sdpa"])
def encoders(request, minilm_folder):
    return [
        cls.from_pretrained(minilm_folder, attn_implementation=request.param).eval()
        for cls in (BertModel, MyBertModel)
    ]


def batch(padding: str, sequences: int = 4, length: int = 48, vocabulary: int = 30522) -> dict[str, torch.Tensor]:
    """Random ids in two segments, padded as named."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.ones(sequences, length, dtype=torch.long)
    for row in range(sequences):
        gap = 0 if padding == "none" else 5 * row
        mask[row, length - gap :] = 0
    if padding == "left":
        mask = mask.flip(1)
    return {
        "input_ids": torch.randint(5, vocabulary, mask.shape, generator=generator) * mask,
        "token_type_ids": (torch.arange(length) > length // 2).long().expand_as(mask).contiguous(),
        "attention_mask": mask,
    }


@pytest.mark.parametrize("padding", ["none", "right", "left"])
@torch.no_grad()
def test_hidden_states_and_pooled_output_equal_berts(encoders, padding):
    theirs, ours = encoders
    inputs = batch(padding)
    expected = theirs(**inputs, output_hidden_states=True)
    found = ours(**inputs, output_hidden_states=True)
    real = inputs["attention_mask"].bool()
    assert len(found.hidden_states) == len(expected.hidden_states) == 7
    for a, b in zip(found.hidden_states, expected.hidden_states, strict=True):
        assert (a - b)[real].abs().max() < 2e-5
    # On the left-padded rows transformers pools the padding in column 0; ours pools the first real token.
    first = expected.last_hidden_state[torch.arange(len(real)), real.int().argmax(1)]
    assert (found.pooler_output - theirs.pooler(first[:, None])).abs().max() < 2e-5
    assert not found.last_hidden_state[~real].any()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_attention_probabilities_equal_berts_whichever_backend_is_set(minilm_folder, attention):
    theirs = BertModel.from_pretrained(minilm_folder, attn_implementation="eager").eval()
    ours = MyBertModel.from_pretrained(minilm_folder, attn_implementation=attention).eval()
    inputs = batch("right")
    real = inputs["attention_mask"].bool()
    found, expected = (model(**inputs, output_attentions=True).attentions for model in (ours, theirs))
    assert len(found) == len(expected) == 6
    for a, b in zip(found, expected, strict=True):
        assert (a - b).transpose(1, 2)[real].abs().max() < 2e-5
