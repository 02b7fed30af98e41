"""Extractive question answering: contexts cut into windows, and answers decoded from the logits of the windows.

Training, evaluation, prediction and the pipeline share these functions.
"""

import copy
import json
import unicodedata
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import BatchEncoding, PreTrainedTokenizerBase

NO_ANSWER = {"answer": "", "start": 0, "end": 0}
MAX_LENGTH, MAX_ANSWER_LENGTH = 384, 30  # default numbers of tokens
MAX_WINDOWS = 8  # default
_SATURATION = 0.9  # k1 of BM25


class Windows(NamedTuple):
    """
    Attributes:
        encoding: one row per window, with the question and a part of the context.
        step: number of context tokens from the start of a window to the start of the next.
        question_tokens: number of tokens of the question, without special tokens.
    """

    encoding: BatchEncoding
    step: int
    question_tokens: int


def keep_added_tokens(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer, or a copy of it whose calls with `split_special_tokens` split BERT's own special tokens only, not
    those that a user added. `MyBertTokenizer` does so by itself.
    """
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    control = {getattr(tokenizer, name) for name in names}
    if control >= {*tokenizer.all_special_tokens}:
        return tokenizer
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    for token in content["added_tokens"]:
        token["special"] = token["content"] in control
    tokenizer = copy.copy(tokenizer)
    tokenizer._tokenizer = type(tokenizer.backend_tokenizer).from_str(json.dumps(content))
    return tokenizer


def encode_windows(
    tokenizer: PreTrainedTokenizerBase,
    question: str,
    context: str,
    max_length: int,
    stride: int | None,
    max_answer_length: int,
) -> Windows:
    """Cut a context into overlapping windows.

    Args:
        max_length: tokens of a window, including question and special tokens.
        stride: context tokens that a window shares with the next; None: a third of a window. It is raised to
            `max_answer_length - 1`, so that every answer lies in one window, and kept below the window's length.

    Raises:
        ValueError: the question leaves no room for context.
    """
    tokens = len(tokenizer(question, add_special_tokens=False, split_special_tokens=True)["input_ids"])
    room = max_length - tokens - tokenizer.num_special_tokens_to_add(pair=True)
    if room < 1:
        raise ValueError(
            f"the question has {tokens} tokens and leaves no room for context in windows of {max_length}; shorten it"
            f" or raise max_seq_len: {question[:60]!r}"
        )
    shared = min(max(max_length // 3 if stride is None else stride, max_answer_length - 1), room - 1)
    side, tokenizer.truncation_side = tokenizer.truncation_side, "right"  # else the windows are in reverse order
    try:
        encoding = tokenizer(
            question,
            context,
            truncation="only_second",
            max_length=max_length,
            stride=shared,
            padding=False,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_attention_mask=True,
            split_special_tokens=True,  # a literal [SEP] in a text is ordinary text
        )
    finally:
        tokenizer.truncation_side = side
    return Windows(encoding, room - shared, tokens)


def windows_to_read(encoding: BatchEncoding, most: int) -> list[int]:
    """The windows in which the answer is looked for: all, or of more than `most` those with the best BM25 scores.

    The words of BM25 are the tokens of the question. Windows have equal lengths, except for the last, so that lengths
    have no weight.

    Returns:
        Indices of windows, in order.
    """
    count = len(encoding["input_ids"])
    if count <= most:
        return [*range(count)]
    texts: list[list[list[int]]] = [
        [
            [token for token, own in zip(ids, encoding.sequence_ids(number), strict=True) if own == part]
            for part in (0, 1)
        ]
        for number, ids in enumerate(encoding["input_ids"])
    ]
    question = sorted({*texts[0][0]})
    counts = torch.tensor([[context.count(token) for token in question] for _, context in texts], dtype=torch.float64)
    document_frequencies = (counts > 0).sum(0)
    weights = torch.log1p((count - document_frequencies + 0.5) / (document_frequencies + 0.5))
    scores = (weights * counts / (counts + _SATURATION)).sum(1)
    return sorted(scores.sort(descending=True, stable=True).indices[:most].tolist())


class WindowLogits(NamedTuple):
    """The logits of a window at its `n` context tokens.

    Attributes:
        begin: index of the window's first token among the tokens of the context.
        offsets: (n, 2) start and end of each token in the context, in characters.
        start, end: (n,) float64 logits of an answer that starts or ends at each token.
        no_answer: () sum of both logits at [CLS].
    """

    begin: int
    offsets: Tensor
    start: Tensor
    end: Tensor
    no_answer: Tensor


class Answers(NamedTuple):
    """The best answers to a question.

    Attributes:
        spans: the best spans, best first: `answer`, `start`, `end` and `score`, the sum of two logits.
        no_answer: the score of "no answer", the minimum over the windows.
        total: () float64 logsumexp of the scores of all spans.
    """

    spans: list[dict[str, Any]]
    no_answer: float
    total: Tensor

    @property
    def no_answer_score(self) -> float:
        """The score of "no answer" minus the score of the best span."""
        return self.no_answer - (self.spans[0]["score"] if self.spans else self.no_answer)

    def is_unanswered(self, threshold: float | None) -> bool:
        """Whether "no answer" scores more than the best span by more than `threshold`."""
        return not self.spans or (threshold is not None and self.no_answer_score > threshold)


def decode_answers(windows: list[WindowLogits], context: str, max_answer_length: int, count: int) -> Answers:
    """Find the best answers in the windows of one context.

    Args:
        windows: in order.
        max_answer_length: maximum number of tokens of an answer.
        count: maximum number of answers.
    """
    scores, offsets = _score_spans(windows, max_answer_length)
    spans: list[dict[str, Any]] = []
    seen = set()
    for index in scores.flatten().sort(descending=True, stable=True).indices.tolist():
        first, more = divmod(index, scores.shape[1])
        if len(spans) == count or scores[first, more] == -torch.inf:
            break
        start, end = int(offsets[first, 0]), int(offsets[first + more, 1])
        if (start, end) not in seen:  # one character may be several tokens
            seen.add((start, end))
            end = end_with_marks(context, end)
            answer = {"answer": context[start:end], "start": start, "end": end}
            spans.append({**answer, "score": float(scores[first, more])})
    no_answer = float(torch.stack([window.no_answer for window in windows]).min())
    return Answers(spans, no_answer, scores.logsumexp((0, 1)))


def end_with_marks(text: str, end: int) -> int:
    """`end`, moved behind the combining marks and joiners that follow a word: a token without accents lacks them."""
    while end < len(text) and (unicodedata.category(text[end])[0] == "M" or text[end] in "\u200c\u200d"):
        end += 1
    return end


def _score_spans(windows: list[WindowLogits], max_answer_length: int) -> tuple[Tensor, Tensor]:
    """
    Returns:
        scores: (tokens of the context, M) float64. Column m is the span of m + 1 tokens from each token, scored in
            the window that has most context on its shorter side; there, an end of the context counts as unlimited
            context. -inf if there is no such span.
        offsets: (tokens of the context, 2) characters of each token.
    """
    total = windows[-1].begin + len(windows[-1].start)
    longest = min(max_answer_length, total)
    scores = torch.full((total, longest), -torch.inf, dtype=torch.float64)
    most = torch.full((total, longest), -1.0)
    offsets = torch.zeros(total, 2, dtype=torch.long)
    for begin, places, start, end, _ in windows:
        count = len(start)
        here = slice(begin, begin + count)
        offsets[here] = places
        first = torch.arange(count)[:, None]
        last = first + torch.arange(longest)
        left = torch.full_like(last, total) if begin == 0 else first.expand_as(last)
        right = torch.full_like(last, total) if begin + count == total else count - 1 - last
        context = torch.minimum(left, right).float().masked_fill(last >= count, -1)
        better = context > most[here]
        most[here] = torch.where(better, context, most[here])
        scores[here] = torch.where(better, start[:, None] + end[last.clamp(max=count - 1)], scores[here])
    return scores, offsets
