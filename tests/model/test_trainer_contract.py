"""What transformers' Trainer reads off the signatures of our models."""

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
    """Trainer evaluates a loss only where all that it takes for labels are in the batch."""
    assert find_labels(getattr(modeling_mybert, name)) == EXPECTED[name]
