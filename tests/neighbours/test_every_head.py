"""All heads: double precision, and tuples with return_dict=False."""

import pytest
import torch

import modeling_mybert
from modeling_mybert import AUTO_MAP

ENCODERS = [name.split(".")[1] for name in AUTO_MAP.values() if name.split(".")[1].startswith(("MyBertM", "MyBertF"))]
CLOSE = 1e-10  # a single operation in float32 differs by more


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ENCODERS)
def test_double_precision_has_no_operation_in_float32(name, attention, pair, inputs_of):
    batch = inputs_of(name)
    batch["attention_mask"].fill_(1)
    ours, theirs = (model.double() for model in pair(name))
    ours.set_attn_implementation(attention)
    found, expected = ours(**batch), theirs(**batch)
    for key, value in expected.items():
        assert found[key].dtype == value.dtype == torch.float64
        assert (found[key] - value).abs().max() < CLOSE


def test_return_dict_false_gives_tuples(head, bert_folders, inputs_of):
    model_class, batch = getattr(modeling_mybert, head), inputs_of(head)
    named = model_class.from_pretrained(bert_folders(head)).eval()
    plain = model_class.from_pretrained(bert_folders(head), return_dict=False).eval()
    with torch.no_grad():
        expected, found = named(**batch), plain(**batch)
        assert isinstance(found, tuple)
        assert all(torch.equal(a, b) for a, b in zip(found, expected.to_tuple(), strict=True))
        assert torch.equal(plain(**batch, return_dict=True)[0], expected[0])
