"""The label arguments that transformers' Trainer finds in the signatures of the models."""

import pytest
from transformers.utils.generic import find_labels

import modeling_mybert

EXPECTED = {
    "MyBertForPreTraining": ["labels", "next_sentence_label"],
    "MyBertForMaskedLM": ["labels"],
    "MyBertForNextSentencePrediction": ["labels"],
    "MyBertForSequenceClassification": ["labels"],
    "MyBertForTokenClassification": ["labels"],
    "MyBertForQuestionAnswering": ["start_positions", "end_positions"],
    "MyBertForMultipleChoice": ["labels"],
    "MyBertLMHeadModel": ["labels"],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_only_labels_count_as_labels(name):
    """Trainer computes an evaluation loss only if all of these are in the batch."""
    assert find_labels(getattr(modeling_mybert, name)) == EXPECTED[name]
