"""Validation of the configuration, published sizes and weight initialisation."""

import pytest
import torch
from transformers import BertConfig

from modeling_mybert import NAMED_SIZES, MyBertConfig, MyBertForPreTraining, MyBertModel


@pytest.mark.parametrize(("size", "parameters"), [("base", 109_482_240), ("large", 335_141_888), ("tiny", 4_385_920)])
def test_published_sizes_have_the_published_parameter_counts(size, parameters):
    with torch.device("meta"):
        model = MyBertModel(MyBertConfig.from_size(size))
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_fields_have_berts_names_and_defaults():
    ours, theirs = MyBertConfig().to_dict(), BertConfig().to_dict()
    shared = set(ours) & set(theirs) - {"model_type"}
    assert {"hidden_size", "layer_norm_eps", "classifier_dropout"} <= shared
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_hidden_layers", -1),
        ("num_hidden_layers", 2.5),
        ("vocab_size", 0),
        ("hidden_dropout_prob", 1.5),
        ("attention_probs_dropout_prob", -0.1),
        ("hidden_act", "gelo"),
        ("layer_norm_eps", 0.0),
        ("pad_token_id", 30522),
        ("hidden_size", "768"),
        ("int8_outliers", -1),
    ],
)
def test_a_bad_value_is_refused_by_name(field, value):
    with pytest.raises(Exception, match=field):
        MyBertConfig(**{field: value})


def test_an_unknown_size_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"huge.*tiny, mini, small, medium, base, large"):
        MyBertConfig.from_size("huge")
    assert list(NAMED_SIZES) == ["tiny", "mini", "small", "medium", "base", "large"]


def test_relative_positions_of_a_bert_checkpoint_are_refused(tmp_path):
    BertConfig(position_embedding_type="relative_key").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="relative_key"):
        MyBertConfig.from_pretrained(tmp_path)


def test_weights_are_initialised_by_a_normal_truncated_at_two_standard_deviations(tiny_config):
    tiny_config.hidden_size = 64
    model = MyBertForPreTraining(tiny_config)
    std = tiny_config.initializer_range
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "LayerNorm" in name:
            assert (parameter == 1).all(), name
        else:
            assert 0 < parameter.abs().max() <= 2 * std, name
    words = model.bert.embeddings.word_embeddings.weight
    # the standard deviation of a standard normal truncated at ±2 is 0.8796
    assert words.std().item() == pytest.approx(0.8796 * std, rel=0.03)
