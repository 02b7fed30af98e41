"""Small versions of test classes that the tests of the source distribution import but that it lacks.

The distribution has the files directly in `tests/`, but no folders in it. Each class has the name of one in a missing
folder; see `tree.py`.
"""

# tests/utils/test_configuration_utils.py: values that differ from every default of a configuration.
config_common_kwargs = {
    "architectures": ["OneArchitecture"],
    "chunk_size_feed_forward": 3,
    "dtype": "float16",
    "id2label": {0: "only"},
    "is_encoder_decoder": True,
    "label2id": {"only": 0},
    "output_attentions": True,
    "output_hidden_states": True,
    "problem_type": "multi_label_classification",
    "return_dict": False,
    "tie_word_embeddings": False,
}


class ExportTesterMixin:
    """tests/exporters/test_export.py; tests/model covers export."""


class GenerationTesterMixin:
    """tests/generation/test_utils.py; tests/model/test_decoder.py covers generation."""
