"""The question-answering pipeline, which transformers 5 no longer has, for extractive models with a fast tokenizer."""

import math
from typing import Any

import torch
from transformers import BatchEncoding, PreTrainedTokenizerBase
from transformers.pipelines.base import ChunkPipeline

from .answer_decoding_mybert import (
    MAX_ANSWER_LENGTH,
    MAX_LENGTH,
    MAX_WINDOWS,
    NO_ANSWER,
    WindowLogits,
    decode_answers,
    encode_windows,
    keep_added_tokens,
    windows_to_read,
)


class MyBertQuestionAnsweringPipeline(ChunkPipeline):
    """Finds the part of a context that answers a question.

    A long context is read in overlapping windows. The score of a span is the sum of its start and end logits, as in
    SQuAD, taken from the window with most context around it. Returned scores are probabilities among all spans of all
    windows that are read. The score of "no answer" is the minimum over these windows of the logits at [CLS] (Devlin et
    al. 2019, 4.3).

    Args, of the pipeline or of a call, named as in transformers 4:
        top_k: maximum number of answers, best first; `topk` is its old name.
        handle_impossible_answer: True: "no answer" is a possible answer, also if the model's configuration has no
            threshold, which is then 0; False: there is always an answer.
        no_answer_threshold: return an empty answer if "no answer" scores more than the best span by more than this.
            Default: `no_answer_threshold` of the model's configuration; without it there is always an answer.
        max_answer_len: maximum tokens of an answer (default: 30).
        max_question_len: cut a longer question after this number of tokens (default: no limit).
        max_seq_len: maximum tokens of a window, including question and special tokens (default: 384, or the number of
            positions if smaller).
        doc_stride: context tokens that a window shares with the next (default: a third of a window); see
            `encode_windows`.
        max_windows: of a context with more windows, read those with the best BM25 scores (default: 8). The defaults of
            `max_answer_len`, `max_seq_len`, `doc_stride` and `max_windows` come from `config.finetuned` if present
            (`max_answer_length`, `max_length`, `stride`, `max_windows`), since the threshold was tuned with them.
        align_to_words: extend an answer that begins or ends within a word to the whole word (default: False, as
            `mybert predict` and `evaluate`). The score is that of the best span that gives the answer.
        padding: no effect on the answers.
        batch_size: windows in a batch.

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
            raise ValueError("question answering needs a fast tokenizer, for the offsets of its tokens")
        self._reader = keep_added_tokens(self.tokenizer)

    def _sanitize_parameters(
        self,
        top_k: int | None = None,
        topk: int | None = None,
        handle_impossible_answer: bool | None = None,
        no_answer_threshold: float | None = None,
        max_answer_len: int | None = None,
        max_question_len: int | None = None,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        max_windows: int | None = None,
        align_to_words: bool | None = None,
        padding: bool | str | None = None,
    ) -> tuple[dict, dict, dict]:
        top_k = topk if top_k is None else top_k
        numbers = {
            "max_answer_len": max_answer_len,
            "max_question_len": max_question_len,
            "max_seq_len": max_seq_len,
            "doc_stride": doc_stride,
            "max_windows": max_windows,
        }
        for name, value in {"top_k": top_k, **numbers}.items():
            least = 0 if name == "doc_stride" else 1
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if handle_impossible_answer is False and no_answer_threshold is not None:
            raise ValueError("with handle_impossible_answer=False there is always an answer; omit no_answer_threshold")
        if handle_impossible_answer is not None and no_answer_threshold is None:
            tuned = getattr(self.model.config, "no_answer_threshold", None)
            no_answer_threshold = (0.0 if tuned is None else tuned) if handle_impossible_answer else math.inf
        after = {"max_answer_len": max_answer_len, "top_k": top_k, "no_answer_threshold": no_answer_threshold}
        return _given({**numbers, "align_to_words": align_to_words}), {}, _given(after)

    def __call__(self, inputs=None, *more, question=None, context=None, **kwargs):
        """
        Args:
            inputs, more: one `{"question": …, "context": …}`, or a list, generator or data set of them; or several
                dictionaries; or a question and its context, two strings.
            question, context: instead of `inputs`: two strings, or lists of equal length; one string serves all.
            kwargs: see the class.

        Returns:
            A dictionary per question, or a list of them if `top_k` is over 1: `answer`, equal to `context[start:end]`,
            empty for no answer; `start`; `end`; `score`, a probability; `no_answer_score`, the score of "no answer"
            minus that of the best span, comparable with a threshold.

        Raises:
            ValueError: question or context is missing or empty, or the question leaves no room for context.
        """
        if more:
            are_texts = len(more) == 1 and isinstance(inputs, str) and isinstance(more[0], str)
            inputs = _paired(inputs, *more) if are_texts else [inputs, *more]
        if inputs is None:
            inputs = _paired(question, context)
        elif question is not None or context is not None:
            raise ValueError("give either inputs, or question and context")
        if isinstance(inputs, list | tuple) and not inputs:
            return []
        if isinstance(inputs, tuple):
            inputs = list(inputs)
        elif not isinstance(inputs, dict | list | str | torch.utils.data.Dataset):
            inputs = (example for example in inputs)  # transformers would take a data set for one example
        return super().__call__(inputs, **kwargs)

    def preprocess(
        self,
        example,
        max_answer_len: int | None = None,
        max_question_len: int | None = None,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        max_windows: int | None = None,
        align_to_words: bool = False,
    ):
        """Yield the windows of one example as model inputs, with the values that `postprocess` needs."""
        question, context = _checked(example)
        length = self._window_length(max_seq_len)
        if doc_stride is not None and doc_stride > length:
            raise ValueError(f"doc_stride {doc_stride} is more than the {length} tokens of a window (max_seq_len)")
        longest = max_answer_len or self._remembered("max_answer_length", MAX_ANSWER_LENGTH)
        stride = self._remembered("stride", None, least=0) if doc_stride is None else doc_stride
        question = _first_tokens(self._reader, question, max_question_len)
        encoding, step, _ = encode_windows(self._reader, question, context, length, stride, longest)
        offsets = _word_offsets(encoding) if align_to_words else encoding["offset_mapping"]
        numbers = windows_to_read(encoding, max_windows or self._remembered("max_windows", MAX_WINDOWS))
        for number in numbers:
            places = [place for place, part in enumerate(encoding.sequence_ids(number)) if part == 1]
            if not places:
                raise ValueError(f"the context has no tokens: {context[:60]!r}")
            names = {*self.tokenizer.model_input_names, "attention_mask"}
            inputs = {name: torch.tensor([encoding[name][number]]) for name in names}
            inputs["window"] = {
                "context": context,
                "begin": number * step,
                "places": places,
                "offsets": torch.tensor([offsets[number][place] for place in places]),
                "cls": encoding["input_ids"][number].index(self.tokenizer.cls_token_id),
            }
            yield {**inputs, "is_last": number == numbers[-1]}

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
        # Real tokens first, since a tokenizer may pad on the left.
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
        """Answers of one example from its windows; see `__call__`."""
        if no_answer_threshold is None:
            no_answer_threshold = getattr(self.model.config, "no_answer_threshold", None)
        longest = max_answer_len or self._remembered("max_answer_length", MAX_ANSWER_LENGTH)
        context = windows[0]["window"]["context"]
        decoded = decode_answers([_window_logits(item) for item in windows], context, longest, top_k)
        total, no_answer = decoded.total, None
        if no_answer_threshold is not None and no_answer_threshold != math.inf:
            no_answer = torch.tensor(decoded.no_answer - no_answer_threshold, dtype=torch.float64)
            total = torch.logaddexp(total, no_answer)
        answers = [{**span, "score": float((span["score"] - total).exp())} for span in decoded.spans]
        if no_answer is not None:
            empty = {**NO_ANSWER, "score": float((no_answer - total).exp())}
            answers.insert(0 if decoded.is_unanswered(no_answer_threshold) else len(answers), empty)
            answers.sort(key=lambda answer: -answer["score"])
        answers = [{**answer, "no_answer_score": decoded.no_answer_score} for answer in answers[:top_k]]
        return answers[0] if top_k == 1 else answers


def _window_logits(item: dict[str, Any]) -> WindowLogits:
    """The output of `_forward` for one window, without padding and question."""
    window, real = item["window"], item["attention_mask"][0].bool()
    start, end = (item[name][0][real].double() for name in ("start_logits", "end_logits"))
    cls, places = window["cls"], window["places"]
    return WindowLogits(window["begin"], window["offsets"], start[places], end[places], start[cls] + end[cls])


def _first_tokens(tokenizer: PreTrainedTokenizerBase, text: str, most: int | None) -> str:
    """`text` up to the end of its token number `most`."""
    if most is None:
        return text
    encoding = tokenizer(text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True)
    places = encoding["offset_mapping"]
    return text if len(places) <= most else text[: places[most - 1][1]]


def _word_offsets(encoding: BatchEncoding) -> list[list[tuple[int, int]]]:
    """For each token of each window, first and last character of its word, which may go on in other windows."""
    words: dict[tuple[int | None, int | None], tuple[int, int]] = {}
    keys = [
        list(zip(encoding.sequence_ids(number), encoding.word_ids(number), strict=True))
        for number in range(len(encoding["input_ids"]))
    ]
    for window, offsets in zip(keys, encoding["offset_mapping"], strict=True):
        for key, (start, end) in zip(window, offsets, strict=True):
            first, last = words.get(key, (start, end))
            words[key] = min(first, start), max(last, end)
    return [[words[key] for key in window] for window in keys]


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
