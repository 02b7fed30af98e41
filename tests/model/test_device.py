"""A training step on a device whose values cannot be read: what would wait for a GPU fails.

On the meta device, tensors have shapes and data types only. Operations that need their values on the host, such as
`item` and `nonzero`, raise an error.
"""

import pytest
import torch
from labelled_batches import batch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import modeling_mybert

HEADS = {  # with the shapes of their labels
    "PreTraining": {"labels": None, "next_sentence_label": 4, "masked_lm_positions": 9},
    "MaskedLM": {"labels": None, "masked_lm_positions": 9},
    "NextSentencePrediction": {"labels": 4},
    "SequenceClassification": {"labels": 4},
    "TokenClassification": {"labels": None},
    "QuestionAnswering": {"start_positions": 4, "end_positions": 4},
    "MultipleChoice": {"labels": 2},
}


class OneDevice(TorchDispatchMode):
    """Refuses operations that read or write a tensor of another device, which is a copy from or to the host."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        found = operation(*args, **(kwargs or {}))
        for x in tree_leaves((args, kwargs, found)):
            assert not isinstance(x, torch.Tensor) or x.is_meta or not x.numel(), (operation, x.device)
        return found


@pytest.mark.parametrize("backend", ["eager", "sdpa", "varlen_attn"])
@pytest.mark.parametrize("head", HEADS)
def test_a_packed_training_step_neither_reads_values_nor_copies_to_the_device(tiny_config, head, backend):
    tiny_config.attention_probs_dropout_prob, tiny_config.num_labels = 0.0, 3
    with torch.device("meta"):
        model = getattr(modeling_mybert, f"MyBertFor{head}")(tiny_config).train()
    model.set_attn_implementation(backend)
    model.to(torch.bfloat16 if backend == "varlen_attn" else torch.float32)
    inputs, labels = batch("packed", tiny_config.vocab_size)
    for name, count in HEADS[head].items():
        inputs[name] = labels if count is None else torch.arange(count) % 2
    inputs = {name: x.to("meta") if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}
    with OneDevice():
        model(**inputs).loss.backward()
    assert all(p.grad.shape == p.shape for p in model.parameters())
