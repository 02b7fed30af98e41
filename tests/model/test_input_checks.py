"""Messages for wrong input name the argument and the numbers."""

import pytest
import torch

import modeling_mybert
from modeling_mybert import MyBertModel

IDS = torch.full((2, 5), 7)
PACK = {"input_ids": IDS[:1], "cu_seq_lens_q": torch.tensor([0, 3, 5])}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": IDS + 92}, r"input_ids holds 99, outside 0 to 98 \(vocab_size=99\).*tokenizer"),
        ({"input_ids": IDS - 8}, r"input_ids holds -1"),
        ({"input_ids": IDS, "token_type_ids": IDS}, r"token_type_ids holds 7, outside 0 to 1 \(type_vocab_size=2\)"),
        ({"input_ids": IDS, "position_ids": IDS + 60}, r"position_ids holds 67.*max_position_embeddings=64"),
        ({"input_ids": IDS[:1].repeat(1, 13)}, r"65 positions, more than max_position_embeddings=64"),
        ({"input_ids": IDS, "attention_mask": IDS[:, :4]}, r"attention_mask has shape \(2, 4\), expected \(2, 5\)"),
        ({"input_ids": IDS, "token_type_ids": IDS[:, :4] * 0}, r"token_type_ids has shape \(2, 4\).*\(2, 5\)"),
        ({"input_ids": IDS, "attention_mask": torch.tensor([[1] * 5, [0] * 5])}, r"no real token in row 1"),
        ({"input_ids": IDS[:0]}, r"input_ids has shape \(0, 5\): the batch is empty"),
        ({"input_ids": IDS[:, :0]}, r"input_ids has shape \(2, 0\): the batch is empty"),
        ({"input_ids": IDS, "tokens_to_keep": [3, 10]}, r"tokens_to_keep holds 10, outside 0 to 9"),
        ({"input_ids": IDS[0]}, r"input_ids has shape \(5,\), expected \(batch, sequence\)"),
        ({"inputs_embeds": torch.zeros(2, 32)}, r"inputs_embeds has shape \(2, 32\)"),
        ({}, r"exactly one of input_ids and inputs_embeds"),
        ({**PACK, "attention_mask": IDS[:1]}, r"a packed batch .cu_seq_lens_q. has no padding"),
        ({**PACK, "input_ids": IDS}, r"input_ids of shape \(1, total_tokens\), got \(2, 5\)"),
        ({**PACK, "max_length_q": 1}, r"from 0 to the 5 tokens.*of 1 to max_length_q=1, got \[0, 3, 5\]"),
        ({**PACK, "cu_seq_lens_q": torch.tensor([0, 2, 4])}, r"from 0 to the 5 tokens.*\[0, 2, 4\]"),
        ({**PACK, "cu_seq_lens_q": torch.tensor([0])}, r"cu_seq_lens_q has shape \(1,\), expected"),
        ({**PACK, "cu_seq_lens_q": torch.tensor([[0, 3, 5]])}, r"cu_seq_lens_q has shape \(1, 3\), expected"),
        ({"input_ids": IDS, "is_causal": True}, "attends in both directions"),
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_wrong_input_is_named(tiny_config, inputs, message, training):
    with pytest.raises(ValueError, match=message):
        MyBertModel(tiny_config).train(training)(**inputs)


ONES, BEFORE = torch.ones(10, dtype=torch.bool), {"start_positions": -IDS[0, :2], "end_positions": IDS[0, :2]}
PLACES, SHAPE = "masked_lm_positions", r"of shape \(1, 2\), expected integers of shape"
LABELS = [
    ("SequenceClassification", {"labels": torch.tensor([0, 3])}, r"labels holds 3, .*0 to 2 \(num_labels\)"),
    ("SequenceClassification", {"labels": torch.tensor([0, -1])}, r"labels holds -1"),
    ("SequenceClassification", {"labels": torch.tensor([0])}, r"labels has shape \(1,\): 1 labels.*2"),
    ("SequenceClassification", {"labels": torch.zeros(2, 2)}, r"labels has shape \(2, 2\), .*num_labels=3"),
    ("TokenClassification", {"labels": IDS}, r"labels holds 7"),
    ("MaskedLM", {"labels": IDS + 100}, r"labels holds 107, .*vocab_size"),
    ("PreTraining", {"next_sentence_label": torch.tensor([0, 2])}, r"next_sentence_label holds 2"),
    ("QuestionAnswering", BEFORE, "start_positions holds -7"),
    ("MaskedLM", {"labels": IDS, PLACES: torch.tensor([[1, 2]])}, rf"{PLACES} is torch.int64 {SHAPE}"),
    ("MaskedLM", {"labels": IDS, PLACES: ONES}, f"{PLACES} is torch.bool"),
    ("MaskedLM", {"labels": IDS, PLACES: torch.tensor([1, 10])}, f"{PLACES} holds 10, outside 0 to 9"),
    ("MultipleChoice", {}, r"shape \(2, 5\), expected \(batch, choices, sequence"),
]


@pytest.mark.parametrize(("head", "labels", "message"), LABELS)
def test_wrong_labels_are_named(tiny_config, head, labels, message):
    tiny_config.num_labels = 3
    with pytest.raises(ValueError, match=message):
        getattr(modeling_mybert, f"MyBertFor{head}")(tiny_config)(input_ids=IDS, **labels)
