"""Returned hidden states and their gradients, compared with transformers' BERT."""

import pytest
import torch
import transformers
from packaging.version import Version
from twins import twins


@pytest.fixture
def encoders(tiny_config):
    return twins(tiny_config)


def padded() -> dict[str, torch.Tensor]:
    ids = torch.randint(1, 99, (3, 10), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(10) < torch.tensor([10, 4, 7])[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask}


def test_hidden_states_receive_the_gradients_that_berts_receive(encoders):
    inputs, gradients = padded(), []
    for model in encoders:
        states = model(**inputs, output_hidden_states=True).hidden_states
        for state in states:
            state.retain_grad()
        states[-1][inputs["attention_mask"].bool()].pow(3).sum().backward()
        gradients.append([state.grad for state in states])
    real = inputs["attention_mask"].bool()
    for expected, found in zip(*gradients, strict=True):
        torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-4)
        assert not found[~real].any()


@pytest.mark.parametrize(("wanted", "given"), [([0, 2], {0, 2}), ([-1], {2}), (1, {1}), ([7], set())])
@torch.no_grad()
def test_output_hidden_states_may_name_layers_from_either_end(encoders, wanted, given):
    theirs, ours = encoders
    every = theirs(**padded(), output_hidden_states=True).hidden_states
    found = ours(**padded(), output_hidden_states=wanted).hidden_states
    assert [index for index, state in enumerate(found) if state is not None] == sorted(given)
    real = padded()["attention_mask"].bool()
    for index in given:
        torch.testing.assert_close(found[index][real], every[index][real], atol=1e-5, rtol=1e-4)
    native = theirs(**padded(), output_hidden_states=wanted).hidden_states
    if Version(transformers.__version__) >= Version("5.19"):  # earlier ones return other layers
        assert [state is None for state in found] == [state is None for state in native]


@torch.no_grad()
def test_an_exported_program_gives_zeros_at_padding_as_the_model_does(encoders):
    model, inputs = encoders[1], padded()
    program = torch.export.export(model, (), {**inputs, "output_hidden_states": True})
    found = program.module()(**inputs, output_hidden_states=True)
    expected = model(**inputs, output_hidden_states=True)
    assert not found.last_hidden_state[~inputs["attention_mask"].bool()].any()
    for one, other in zip(found.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
