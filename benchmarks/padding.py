"""Batches of pretraining in the form that transformers' BERT reads."""

from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence


def with_padding(packed: dict[str, Any], pad_token_id: int = 0) -> dict[str, Any]:
    """A batch of `PretrainingCollator` as rows that are padded on the right."""
    lengths = packed["cu_seq_lens_q"].diff().tolist()
    fills = {"input_ids": pad_token_id, "token_type_ids": 0, "labels": -100}
    rows = {
        name: pad_sequence(packed[name][0].split(lengths), batch_first=True, padding_value=fill)
        for name, fill in fills.items()
    }
    rows["attention_mask"] = pad_sequence([torch.ones(length).long() for length in lengths], batch_first=True)
    return rows | {name: packed[name] for name in ("next_sentence_label",) if name in packed}
