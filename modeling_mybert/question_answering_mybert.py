"""The question-answering pipeline that transformers 5 no longer has, for every extractive model with a fast tokenizer.

It travels with checkpoints: `pipeline("question-answering", model=folder, trust_remote_code=True)` finds it by the
`custom_pipelines` of their configuration.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from transformers import BatchEncoding
from transformers.pipelines.base import ChunkPipeline

NO_ANSWER = {"answer": "", "start": 0, "end": 0}
MAX_LENGTH, MAX_ANSWER_LENGTH = 384, 30  # tokens, where nothing else is said


class MyBertQuestionAnsweringPipeline(ChunkPipeline):
    """Finds the part of a context that answers a question.

    A long context is read in windows that overlap. A span of tokens scores the sum of its start and end logits, as in
    SQuAD, taken from the window that shows most context on its poorer side. Scores of all spans are compared across
    windows, and their softmax is what is returned. "No answer" scores the logits of [CLS], the least of all windows
    (Devlin et al. 2019, 4.3).

    Args, of the pipeline or of a call:
        top_k: how many answers, the best first; fewer when there are no more.
        no_answer_threshold: an empty answer is given where "no answer" scores more than the best span by more than
            this. None means the `no_answer_threshold` of the model's configuration, and if it has none, there is
            always an answer.
        max_answer_len: tokens of an answer at most; default 30.
        max_seq_len: tokens of a window at most, question and special tokens included; default 384, or the positions
            of the model if they are fewer.
        doc_stride: tokens of context that a window shares with the next; default a third of a window. At least
            `max_answer_len - 1` are shared, so that no answer falls between two windows, and less than a window.
            These three are first looked for in what `config.finetuned` remembers, as `max_answer_length`,
            `max_length` and `stride`: the threshold was tuned with them.
        batch_size: windows that go through the model at once.

    Example:
        >>> answer = pipeline("question-answering", model="folder", trust_remote_code=True)
        >>> answer(question="Who lives in Rome?", context="Ada lives in Rome, Bo in Oslo.")
        {'score': 0.93, 'start': 0, 'end': 3, 'answer': 'Ada', 'no_answer_score': -4.2}
    """

    _load_tokenizer = True
    _load_feature_extractor = False
    _load_image_processor = False
    _load_processor = False
    default_input_names = "question,context"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if "ForQuestionAnswering" not in type(self.model).__name__:
            raise ValueError(f"{type(self.model).__name__} has no question-answering head; load a model that has one")
        if not getattr(self.tokenizer, "is_fast", False):
            raise ValueError("question answering needs a fast tokenizer, which knows where its tokens stand in a text")

    def _sanitize_parameters(
        self,
        top_k: int | None = None,
        no_answer_threshold: float | None = None,
        max_answer_len: int | None = None,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
    ) -> tuple[dict, dict, dict]:
        for name, value, least in (
            ("top_k", top_k, 1),
            ("max_answer_len", max_answer_len, 1),
            ("max_seq_len", max_seq_len, 1),
            ("doc_stride", doc_stride, 0),
        ):
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        before = {"max_answer_len": max_answer_len, "max_seq_len": max_seq_len, "doc_stride": doc_stride}
        after = {"max_answer_len": max_answer_len, "top_k": top_k, "no_answer_threshold": no_answer_threshold}
        return _given(before), {}, _given(after)

    def __call__(self, inputs=None, *, question=None, context=None, **kwargs):
        """
        Args:
            inputs: `{"question": …, "context": …}`, a list of such, or a generator or data set of them.
            question, context: instead of `inputs`: two strings, or lists of equal length; a single one is for all.
            kwargs: see the class.

        Returns:
            For each question a dictionary, or with `top_k` over 1 a list of them: `answer`, which is
            `context[start:end]` and empty for no answer; `start`, `end`; `score`, its probability among all spans (and
            no answer, if a threshold is set, which is subtracted from it); `no_answer_score`, how far no answer scores
            above the best span, to be compared with a threshold.

        Raises:
            ValueError: question or context is missing or empty, or the question leaves no room for context.
        """
        if inputs is None:
            inputs = _paired(question, context)
        elif question is not None or context is not None:
            raise ValueError("give either inputs, or question and context")
        if isinstance(inputs, list | tuple) and not inputs:
            return []
        if isinstance(inputs, tuple):
            inputs = list(inputs)
        elif not isinstance(inputs, dict | list | str | torch.utils.data.Dataset):
            inputs = (example for example in inputs)  # else transformers takes a table of `datasets` for one example
        return super().__call__(inputs, **kwargs)

    def preprocess(
        self,
        example,
        max_answer_len: int | None = None,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
    ):
        """Yields the windows of one example as inputs of the model, with what `postprocess` must know of them."""
        question, context = _checked(example)
        length = self._window_length(max_seq_len)
        longest = max_answer_len or self._remembered("max_answer_length", MAX_ANSWER_LENGTH)
        old = self._remembered("overlap", None, least=0)  # name of `stride` in older checkpoints
        stride = self._remembered("stride", old, least=0) if doc_stride is None else doc_stride
        encoding, step, _ = encode_windows(self.tokenizer, question, context, length, stride, longest)
        count = len(encoding["input_ids"])
        for number in range(count):
            places = [place for place, part in enumerate(encoding.sequence_ids(number)) if part == 1]
            if not places:
                raise ValueError(f"the context has no token that the model knows of: {context[:60]!r}")
            names = {*self.tokenizer.model_input_names, "attention_mask"}
            inputs = {name: torch.tensor([encoding[name][number]]) for name in names}
            inputs["window"] = {
                "context": context,
                "begin": number * step,
                "places": places,
                "offsets": torch.tensor([encoding["offset_mapping"][number][place] for place in places]),
                "cls": encoding["input_ids"][number].index(self.tokenizer.cls_token_id),
            }
            yield {**inputs, "is_last": number == count - 1}

    def _window_length(self, max_seq_len: int | None) -> int:
        most = getattr(self.model.config, "max_position_embeddings", None) or self.tokenizer.model_max_length
        if max_seq_len is not None and max_seq_len > most:
            raise ValueError(f"max_seq_len {max_seq_len} is more than the {most} positions of the model")
        return min(self._remembered("max_length", MAX_LENGTH), most) if max_seq_len is None else max_seq_len

    def _remembered(self, name: str, default: int | None, least: int = 1) -> int | None:
        finetuned = getattr(self.model.config, "finetuned", None)
        value = finetuned.get(name) if isinstance(finetuned, dict) else None
        return value if isinstance(value, int) and value >= least else default

    def _forward(self, model_inputs):
        kept = {name: model_inputs.pop(name) for name in ("window", "is_last")}
        # A tokenizer may pad on the left; real tokens first, as each window has them when it is alone.
        order = model_inputs["attention_mask"].argsort(dim=1, descending=True, stable=True)
        model_inputs = {name: value.gather(1, order) for name, value in model_inputs.items()}
        output = self.model(**model_inputs)
        return {
            "start_logits": output["start_logits"],
            "end_logits": output["end_logits"],
            "attention_mask": model_inputs["attention_mask"],
            **kept,
        }

    def postprocess(
        self,
        windows,
        top_k: int = 1,
        max_answer_len: int | None = None,
        no_answer_threshold: float | None = None,
    ):
        """The answers in the windows of one example; see `__call__`."""
        if no_answer_threshold is None:
            no_answer_threshold = getattr(self.model.config, "no_answer_threshold", None)
        longest = max_answer_len or self._remembered("max_answer_length", MAX_ANSWER_LENGTH)
        context = windows[0]["window"]["context"]
        found = decode_answers([_window_logits(item) for item in windows], context, longest, top_k)
        total, no_answer = found.total, None
        if no_answer_threshold is not None:
            no_answer = torch.tensor(found.no_answer - no_answer_threshold, dtype=torch.float64)
            total = torch.logaddexp(total, no_answer)
        answers = [{**span, "score": float((span["score"] - total).exp())} for span in found.spans]
        if no_answer is not None:
            empty = {**NO_ANSWER, "score": float((no_answer - total).exp())}
            answers.insert(0 if found.is_unanswered(no_answer_threshold) else len(answers), empty)
            answers.sort(key=lambda answer: -answer["score"])
        answers = [{**answer, "no_answer_score": found.no_answer_score} for answer in answers[:top_k]]
        return answers[0] if top_k == 1 else answers


def _window_logits(item: dict) -> "WindowLogits":
    """The output of `_forward` for one window, without padding and question."""
    window, real = item["window"], item["attention_mask"][0].bool()
    start, end = (item[name][0][real].double() for name in ("start_logits", "end_logits"))
    cls, places = window["cls"], window["places"]
    return WindowLogits(window["begin"], window["offsets"], start[places], end[places], start[cls] + end[cls])


class Windows(NamedTuple):
    """
    Attributes:
        encoding: a row for each window: question and some of the context, between special tokens.
        step: tokens of the context from the first of a window to the first of the next.
        question_tokens: of the question, special tokens left out.
    """

    encoding: BatchEncoding
    step: int
    question_tokens: int


def encode_windows(
    tokenizer, question: str, context: str, max_length: int, overlap: int | None, max_answer_length: int
) -> Windows:
    """Cuts a context into windows, for training, evaluation and the pipeline alike.

    Args:
        max_length: tokens of a window, question and special tokens included.
        overlap: tokens of the context that a window shares with the next; None: a third of a window. At least
            `max_answer_length - 1` are shared, so that no answer falls between two windows, and less than a window.

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
    shared = min(max(max_length // 3 if overlap is None else overlap, max_answer_length - 1), room - 1)
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
        split_special_tokens=True,  # a literal [SEP] in a text is text
    )
    return Windows(encoding, room - shared, tokens)


class WindowLogits(NamedTuple):
    """The logits of a window at its `n` tokens of the context.

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
    """The answers to a question, in evaluation, prediction and the pipeline alike.

    Attributes:
        spans: the best spans, best first: `answer`, `start`, `end` and `score`, the sum of two logits.
        no_answer: the score of "no answer", the minimum over the windows.
        total: () float64 logsumexp of the scores of all spans.
    """

    spans: list[dict]
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
    """Finds the best answers in the windows of one context.

    Args:
        windows: in order; together they cover the context.
        max_answer_length: maximum number of tokens of an answer.
        count: maximum number of answers.
    """
    scores, offsets = _score_spans(windows, max_answer_length)
    spans, seen = [], set()
    for index in scores.flatten().sort(descending=True, stable=True).indices.tolist():
        first, more = divmod(index, scores.shape[1])
        if len(spans) == count or scores[first, more] == -torch.inf:
            break
        start, end = int(offsets[first, 0]), int(offsets[first + more, 1])
        if (start, end) not in seen:  # one character may be several tokens
            seen.add((start, end))
            answer = {"answer": context[start:end], "start": start, "end": end}
            spans.append({**answer, "score": float(scores[first, more])})
    no_answer = float(torch.stack([window.no_answer for window in windows]).min())
    return Answers(spans, no_answer, scores.logsumexp((0, 1)))


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


def _given(parameters: dict) -> dict:
    return {name: value for name, value in parameters.items() if value is not None}


def _paired(question, context) -> dict | list[dict]:
    """Question and context, or lists of them, as examples."""
    if question is None or context is None:
        raise ValueError("give question and context, or a dictionary with both")
    if isinstance(question, str) and isinstance(context, str):
        return {"question": question, "context": context}
    count = len(context if isinstance(question, str) else question)
    questions = [question] * count if isinstance(question, str) else list(question)
    contexts = [context] * count if isinstance(context, str) else list(context)
    if len(questions) != len(contexts):
        raise ValueError(f"there are {len(questions)} questions but {len(contexts)} contexts")
    return [{"question": q, "context": c} for q, c in zip(questions, contexts, strict=True)]


def _checked(example) -> tuple[str, str]:
    if not isinstance(example, dict):
        raise ValueError(f"an example is a dictionary of question and context, got {example!r:.60}")
    for name in ("question", "context"):
        if name not in example:
            raise ValueError(f"an example needs a question and a context; it has {sorted(example)}")
        if not isinstance(example[name], str) or not example[name].strip():
            raise ValueError(f"{name} must be a string with text in it, got {example[name]!r}")
    return example["question"], example["context"]
