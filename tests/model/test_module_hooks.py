"""Modules with a hook take and return padded tensors (B, S, H), and attribution tools give the values of BERT."""

import pytest
import torch
from torch import nn
from twins import twins

from modeling_mybert import MyBertForTokenClassification

MASK = torch.tensor([[1] * 9, [1] * 4 + [0] * 5, [1] * 6 + [0] * 3])
IDS = torch.randint(5, 99, (3, 9), generator=torch.Generator().manual_seed(0)) * MASK
SEGMENTS = (torch.arange(9) > 3).long().expand(3, 9) * MASK


@pytest.fixture
def classifiers(tiny_config) -> tuple[nn.Module, nn.Module]:
    """transformers' and ours."""
    return twins(tiny_config, "ForSequenceClassification", std=0.2)


def logits(model: nn.Module, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
    return model(ids, attention_mask=mask, token_type_ids=segments).logits


MODULES = [
    "bert.embeddings",
    "bert.embeddings.word_embeddings",
    "bert.embeddings.LayerNorm",
    "bert.encoder.layer.0",
    "bert.encoder.layer.0.attention.self.query",
    "bert.encoder.layer.0.attention.output",
    "bert.encoder.layer.1.intermediate",
    "bert.encoder.layer.1",
]


@pytest.mark.parametrize("name", MODULES)
def test_a_hooked_module_returns_what_berts_returns_and_the_logits_stay_the_same(classifiers, name):
    without_hook = logits(classifiers[1], IDS, MASK, SEGMENTS)
    outputs = []
    for model in classifiers:
        model.get_submodule(name).register_forward_hook(lambda module, args, output: outputs.append(output))
        found = logits(model, IDS, MASK, SEGMENTS)
        torch.testing.assert_close(found, without_hook, atol=1e-5, rtol=1e-4)
    theirs, ours = outputs
    assert ours.shape == theirs.shape and ours.dim() == 3
    torch.testing.assert_close(ours[MASK.bool()], theirs[MASK.bool()], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", MODULES)
def test_gradients_of_hooked_modules_are_berts(classifiers, name):
    gradients = []
    for model in classifiers:
        model.get_submodule(name).register_full_backward_hook(lambda module, given, taken: gradients.append(taken[0]))
        logits(model, IDS, MASK, SEGMENTS)[:, 0].sum().backward()
    assert gradients[1].dim() == 3
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-5, rtol=1e-3)


@torch.no_grad()
def test_a_hook_may_replace_an_output_with_one_of_the_same_form(classifiers):
    replaced = []
    for model in classifiers:
        hook = model.bert.embeddings.register_forward_hook(lambda module, args, output: output * 0.5)
        replaced.append(logits(model, IDS, MASK, SEGMENTS))
        hook.remove()
    torch.testing.assert_close(*replaced, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(replaced[1], logits(classifiers[1], IDS, MASK, SEGMENTS), atol=1e-3)


def test_padding_is_computed_only_while_a_hook_of_a_user_is_registered(classifiers):
    embeddings, shapes = classifiers[1].bert.embeddings, []
    forward = embeddings.forward
    embeddings.forward = lambda *args: shapes.append(args[0].shape) or forward(*args)
    classifiers[1].enable_input_require_grads()  # transformers' own hook, on the word embeddings
    logits(classifiers[1], IDS, MASK, SEGMENTS)
    hook = embeddings.register_forward_pre_hook(lambda module, args: None)
    logits(classifiers[1], IDS, MASK, SEGMENTS)
    hook.remove()
    logits(classifiers[1], IDS, MASK, SEGMENTS)
    assert shapes == [(19,), (3, 9), (19,)]


def test_layers_with_hooks_train_and_hand_out_attentions(tiny_config):
    tiny_config.hidden_dropout_prob = tiny_config.attention_probs_dropout_prob = 0.0
    model = MyBertForTokenClassification(tiny_config).train()
    labels = torch.where(MASK.bool(), IDS % 2, -100)
    expected = model(IDS, MASK, labels=labels, output_attentions=True, output_hidden_states=True)
    model.bert.encoder.layer[1].register_forward_hook(lambda *_: None)
    found = model(IDS, MASK, labels=labels, output_attentions=True, output_hidden_states=True)
    found.loss.backward()
    torch.testing.assert_close(found.loss, expected.loss)
    real = MASK.bool()
    for one, other in zip(found.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    for one, other in zip(found.attentions, expected.attentions, strict=True):
        torch.testing.assert_close(one.transpose(1, 2)[real], other.transpose(1, 2)[real], atol=1e-5, rtol=1e-4)


def test_captums_attributions_equal_those_of_bert(classifiers):
    attr = pytest.importorskip("captum.attr")
    integrated, activations, conductances = [], [], []
    for model in classifiers:

        def class_score(ids, mask, segments, model=model):
            return logits(model, ids, mask, segments)[:, 1]

        more = (MASK, SEGMENTS)
        layer = model.bert.encoder.layer[0]
        method = attr.LayerIntegratedGradients(class_score, model.bert.embeddings)
        integrated.append(method.attribute(IDS, baselines=IDS * 0 + 4, additional_forward_args=more, n_steps=8))
        activations.append(attr.LayerActivation(class_score, layer).attribute(IDS, additional_forward_args=more))
        gradient = attr.LayerGradientXActivation(class_score, layer)
        conductances.append(gradient.attribute(IDS, additional_forward_args=more))
    real = MASK.bool()
    for theirs, ours in (integrated, activations, conductances):
        assert ours.shape == (3, 9, 32)
        torch.testing.assert_close(ours[real], theirs[real], atol=1e-5, rtol=1e-3)
    assert integrated[1].abs().max() > 1e-3
