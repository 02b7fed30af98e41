"""transformers' common model tests and configuration tests, on BERT and on MyBERT.

Runs in the source distribution, where this folder is the package `tests.conformance`; see `run.py`.
"""

import unittest

import torch

from ..generation.test_utils import GenerationTesterMixin
from ..test_configuration_common import ConfigTester
from ..test_modeling_common import ModelTesterMixin, ids_tensor, random_attention_mask
from .families import BERT, MYBERT, Family


class ModelTester:
    """A tiny configuration and a batch, as the common tests require them."""

    batch_size = 7
    seq_length = 9
    is_training = True
    vocab_size = 99
    hidden_size = 32
    num_hidden_layers = 2
    num_attention_heads = 4
    intermediate_size = 37
    max_position_embeddings = 64
    type_vocab_size = 3
    num_labels = 3
    num_choices = 4

    def __init__(self, family: Family):
        self.family = family

    def get_config(self):
        sizes = (
            *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
            *("max_position_embeddings", "type_vocab_size"),
        )
        return self.family.config(**{name: getattr(self, name) for name in sizes})

    def prepare_config_and_inputs_for_common(self):
        shape = [self.batch_size, self.seq_length]
        inputs = {
            "input_ids": ids_tensor(shape, self.vocab_size),
            "token_type_ids": ids_tensor(shape, self.type_vocab_size),
            "attention_mask": random_attention_mask(shape),
        }
        return self.get_config(), inputs


class _Tests(ModelTesterMixin, GenerationTesterMixin):
    family: Family
    test_resize_position_embeddings = False
    # The test of initialisation skips models from before 2023 by default.
    test_can_init_all_missing_weights_before_2023 = True

    def setUp(self):
        self.model_tester = ModelTester(self.family)

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        if return_labels and model_class is self.family.heads["ForPreTraining"]:
            inputs["labels"] = torch.zeros_like(inputs["input_ids"])
            inputs["next_sentence_label"] = torch.zeros(self.model_tester.batch_size, dtype=torch.long)
        return inputs

    def test_configuration(self):
        ConfigTester(self, config_class=self.family.config, hidden_size=37).run_common_tests()


class BertModelTest(_Tests, unittest.TestCase):
    family = BERT
    all_model_classes = tuple(BERT.heads.values())


class MyBertModelTest(_Tests, unittest.TestCase):
    family = MYBERT
    all_model_classes = tuple(MYBERT.heads.values())
