"""Predictions of the pretraining heads: masked tokens and next sentences."""

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mybert.common.text_windows import encode_pairs
from mybert.inference.batches import packed_inputs


@torch.inference_mode()
def fill_masks(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], top_k: int, max_length: int
) -> list[list[list[tuple[int, float]]]]:
    """The most probable tokens for each [MASK] of each text, computed in one batch without padding.

    Args:
        model: `MyBertForMaskedLM` or `MyBertForPreTraining`.
        max_length: tokens that are read of each text.

    Returns:
        For each text and each of its masks, `top_k` pairs of a token id and its probability, the best first.
    """
    encoded = tokenizer(list(texts), truncation=True, max_length=max_length)
    sequences = [np.array(ids, dtype=np.int64) for ids in encoded["input_ids"]]
    masks = [(ids == tokenizer.mask_token_id).sum() for ids in sequences]
    places = torch.from_numpy(np.flatnonzero(np.concatenate(sequences) == tokenizer.mask_token_id))
    states = model.bert(**packed_inputs(sequences, model.device), tokens_to_keep=places).last_hidden_state
    top = model.cls.predictions(states).float().softmax(-1).topk(min(top_k, model.config.vocab_size))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    found = (list(zip(ids, shares, strict=True)) for ids, shares in pairs)
    return [list(itertools.islice(found, number)) for number in masks]


@torch.inference_mode()
def follow_probabilities(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]], max_length: int
) -> list[float]:
    """The probability that the second text of each pair follows the first, computed in one batch without padding.

    Args:
        model: `MyBertForNextSentencePrediction` or `MyBertForPreTraining`.
        max_length: tokens that are read of each pair.
    """
    firsts, seconds = zip(*pairs, strict=True)
    encoded = encode_pairs(firsts, seconds, tokenizer, max_length)
    sequences = [np.array(ids, dtype=np.int64) for ids in encoded["input_ids"]]
    types = torch.from_numpy(np.concatenate(encoded["token_type_ids"]))[None].to(model.device)
    inputs = packed_inputs(sequences, model.device)
    pooled = model.bert(**inputs, token_type_ids=types, tokens_to_keep=()).pooler_output
    return model.cls.seq_relationship(pooled).float().softmax(-1)[:, 0].tolist()
