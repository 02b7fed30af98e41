"""Outputs, losses and gradients equal those of transformers' BERT with real weights."""

import pytest
import torch
from transformers import BertForMaskedLM, BertForNextSentencePrediction, BertForPreTraining, BertModel

from modeling_mybert import (
    MyBertForMaskedLM,
    MyBertForNextSentencePrediction,
    MyBertForPreTraining,
    MyBertModel,
)

HEADS = [
    (BertForPreTraining, MyBertForPreTraining),
    (BertForMaskedLM, MyBertForMaskedLM),
    (BertForNextSentencePrediction, MyBertForNextSentencePrediction),
]


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


def labels_for(inputs: dict, share: float = 0.15) -> dict[str, torch.Tensor]:
    chosen = torch.rand(inputs["input_ids"].shape, generator=torch.Generator().manual_seed(1)) < share
    chosen &= inputs["attention_mask"].bool()
    pairs = torch.arange(len(chosen)) % 2
    return {"labels": torch.where(chosen, inputs["input_ids"], -100), "next_sentence_label": pairs}


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


CASES = [
    (pair, padding)
    for pair in HEADS
    for padding in ("none", "right", "left")
    # On left-padded rows transformers pools the padding in column 0: only the masked language model compares there.
    if padding != "left" or pair[0] is BertForMaskedLM
]


@pytest.mark.parametrize(("pair", "padding"), CASES, ids=lambda x: x if isinstance(x, str) else x[1].__name__)
def test_losses_and_gradients_equal_berts(minilm_folder, pair, padding):
    theirs, ours = (without_dropout(cls, minilm_folder) for cls in pair)
    missing = ours.load_state_dict(theirs.state_dict())  # the fresh heads too; strict: the same names and shapes
    assert not missing.missing_keys
    assert not missing.unexpected_keys
    inputs = batch(padding)
    labels = labels_for(inputs)
    if pair[0] is not BertForPreTraining:
        name = "labels" if pair[0] is BertForMaskedLM else "next_sentence_label"
        labels = {"labels": labels[name]}
    losses = []
    for model in (theirs, ours):
        loss = model.train()(**inputs, **labels).loss
        loss.backward()
        losses.append(loss.detach())
    assert torch.allclose(*losses, rtol=1e-5)
    expected = dict(theirs.named_parameters())
    largest = max(p.grad.norm() for p in expected.values())
    for name, parameter in ours.named_parameters():
        difference = (parameter.grad - expected[name].grad).norm()
        # Gradients of key biases are zero in exact arithmetic and rounding noise in both.
        assert difference < 1e-4 * expected[name].grad.norm() + 1e-6 * largest, name


def without_dropout(cls, folder):
    """The first two layers, which take less time."""
    torch.manual_seed(0)
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return cls.from_pretrained(folder, num_hidden_layers=2, **rates)
