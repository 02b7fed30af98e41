"""question-answering: the span of a context that answers a question, or no answer."""

import functools
import itertools
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from modeling_mybert import MyBertForQuestionAnswering
from modeling_mybert.answer_decoding_mybert import (
    NO_ANSWER,
    Answers,
    WindowLogits,
    decode_answers,
    encode_windows,
    windows_to_read,
)
from mybert.common.quantities import counted
from mybert.common.text_windows import window_count
from mybert.io.files import file_format
from mybert.rows.splits import Problem, text_problem
from mybert.rows.squad import answer_messages, answers_of, read_nested
from mybert.rows.tables import with_column
from mybert.tasks.base import ColumnNames, Prediction, Task
from mybert.tasks.bootstrap_scores import Scorer, best_cut, means
from mybert.tasks.features import ROW, map_rows
from mybert.tasks.options import QuestionAnsweringOptions

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, eq=False)
class QuestionAnswering(Task):
    """Spans of a context, as in SQuAD 1.1 and 2.0 (Devlin et al. 2019, 4.2 and 4.3).

    A long context is split into windows. The target of a window that does not contain the whole answer is [CLS]. If
    training rows have questions without an answer, "no answer" is predicted where its score exceeds that of the best
    span by more than `config.no_answer_threshold`, which is tuned on the validation rows.
    """

    options: QuestionAnsweringOptions

    name = "question-answering"
    head = MyBertForQuestionAnswering
    Options = QuestionAnsweringOptions
    inputs: ClassVar[ColumnNames] = {"question": ("question", "query"), "context": ("context", "passage")}
    targets: ClassVar[ColumnNames] = {"answers": ("answers",)}
    grouped_by = ("context",)
    row_shares = frozenset({"exact_match"})
    main_metric = "f1"

    # Rows

    def read(self, path: Path) -> tuple[Dataset, None, str] | None:
        rows = read_nested(path) if file_format(path).kind == ".json" else None
        return None if rows is None else (rows, None, "")

    def prepare(self, rows: Dataset) -> Dataset:
        """Reads answers in cells of a table and in lists."""
        answers = rows["answers"][:] if "answers" in rows.column_names else ()
        if all(isinstance(one, dict | None) for one in answers):
            return rows
        return with_column(rows.remove_columns("answers"), "answers", list(map(answers_of, answers)))

    def check_rows(self, rows: Dataset, training: bool) -> list[Problem]:
        problems = []
        for number, row in enumerate(rows):
            messages = [message for name in self.inputs if (message := text_problem(f"the {name}", row[name]))]
            if "answers" in row and not messages:
                messages = answer_messages(row["answers"], row["context"])
            problems += [Problem(number, message) for message in messages]
        return problems

    def problems(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> list[Problem]:
        """With the questions that leave no room for context."""
        problems, length = self.check_rows(rows, training), self.options.length
        bad = {problem.row for problem in problems}
        good = [row for row in range(len(rows)) if row not in bad]
        if not good:
            return problems
        questions = rows.select(good)["question"][:]
        asked = tokenizer(questions, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        too_long = [
            Problem(
                row,
                f"the question has {len(ids)} tokens and leaves no room for context in --max-length {length}; "
                "shorten it or raise --max-length",
            )
            for row, ids in zip(good, asked, strict=True)
            if len(ids) > length - 4  # [CLS], two [SEP], one token of context
        ]
        return [*problems, *too_long]

    def label_distribution(self, rows: Dataset) -> Counter[str]:
        return Counter("answer" if answers else "no answer" for answers in self.references(rows))

    def summary(self, rows: Dataset) -> str:
        counts = self.label_distribution(rows)
        questions = f"{self.name}: {counted(counts['answer'], 'question')} with an answer"
        without = counts["no answer"]
        return f"{questions}, {without:,} without" if without else questions

    # Model

    def fitted(self, rows: Dataset) -> Self:
        """With a threshold of 0 if there are questions without an answer; validation rows tune it."""
        return self.with_config(no_answer_threshold=None if all(self.references(rows)) else 0.0)

    def features(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> Dataset:
        """A feature for each window that is read: for `training` all, else those of `windows_to_read`.

        Unless `training`, with the columns of `WindowLogits` that the tokenizer defines: `begin` is the index of the
        window's first token in the context, `first` its index in the window, `offsets` the characters of the window's
        tokens of the context.
        """
        self.options.stride_below(self.options.length - 4)  # or `encode_windows` would raise

        def encode(batch: Mapping[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
            columns: dict[str, list[Any]] = {}
            for i, row in enumerate(indices):
                answers = batch["answers"][i] if "answers" in batch else None
                for window in self._windows(batch["question"][i], batch["context"][i], answers, tokenizer, training):
                    if training:  # not needed, and most of the memory
                        del window["begin"], window["first"], window["offsets"]
                    for name, value in {**window, ROW: row}.items():
                        columns.setdefault(name, []).append(value)
            return columns

        return map_rows(rows, encode)

    def tokens_read(self, row: Mapping[str, Any], length: Callable[[str], int]) -> int:
        """Of all windows of the context, which are tokenised before some are read, see `encode_windows`."""
        size, tokens = self.options.length, length(row["context"])
        room = size - 3 - length(row["question"])
        stride = size // 3 if self.options.stride is None else self.options.stride
        shared = min(max(stride, self.options.number("max_answer_length") - 1), room - 1)
        windows = window_count(tokens, room, shared)
        return size - room + tokens if windows == 1 else windows * size

    def _windows(
        self,
        question: str,
        context: str,
        answers: dict[str, Any] | None,
        tokenizer: PreTrainedTokenizerBase,
        training: bool,
    ) -> Iterator[dict[str, Any]]:
        given = self.options
        encoded, step, question_tokens = encode_windows(
            tokenizer, question, context, given.length, given.stride, given.number("max_answer_length")
        )
        first = question_tokens + 2  # after [CLS] question [SEP]
        most = len(encoded["input_ids"]) if training else given.number("max_windows")
        for number in windows_to_read(encoded, most):
            offsets = encoded["offset_mapping"][number][first:-1]
            window = {name: encoded[name][number] for name in tokenizer.model_input_names}
            window |= {"begin": number * step, "first": first, "offsets": offsets}
            if answers is not None:
                start, end = _span(answers, offsets) or (-first, -first)
                window |= {"start_positions": first + start, "end_positions": first + end}
            yield window

    # Results

    def decode(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> list[Prediction]:
        """The prediction of each row.

        `answer` is `context[start:end]`, empty for no answer. `score` is the sum of its two logits, `no_answer_score`
        the score of "no answer" minus that of the best span, `n_best` the best spans.
        """
        threshold = getattr(self.config, "no_answer_threshold", None)
        predictions = []
        for answers in self._answers(logits, features, rows):
            empty = {**NO_ANSWER, "score": answers.no_answer}
            best = empty if answers.is_unanswered(threshold) else answers.spans[0]
            predictions.append({**best, "no_answer_score": answers.no_answer_score, "n_best": answers.spans})
        return predictions

    def _answers(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> Iterator[Answers]:
        """The answers of each row."""
        columns = [features[name][:] for name in (ROW, "begin", "first", "offsets")]
        windows: list[list[WindowLogits]] = [[] for _ in range(len(rows))]
        for row, begin, first, offsets, scores in zip(*columns, logits, strict=True):
            scores = torch.from_numpy(scores).double()
            start, end = scores[first : first + len(offsets)].T
            places = torch.tensor(offsets, dtype=torch.long).reshape(-1, 2)
            windows[row].append(WindowLogits(begin, places, start, end, scores[0].sum()))
        length, count = self.options.number("max_answer_length"), self.options.number("n_best")
        for some, context in zip(windows, rows["context"][:], strict=True):
            yield decode_answers(some, context, length, count)

    def tuned(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> dict[str, float]:
        """Tunes the threshold of "no answer" for F1, if some rows have no answer."""
        references = self.references(rows)
        if getattr(self.config, "no_answer_threshold", None) is None or all(references):
            return {}
        margins, answered, unanswered = [], [], []
        for decoded, answers in zip(self._answers(logits, features, rows), references, strict=True):
            if decoded.spans:
                margins.append(decoded.no_answer_score)
                answered.append(_f1(decoded.spans[0]["answer"], answers))
                unanswered.append(_f1("", answers))
        return {"no_answer_threshold": _best_threshold(margins, answered, unanswered)} if margins else {}

    def references(self, rows: Dataset) -> list[list[str]]:
        """The answers to each question; empty if it has none."""
        return [list(answers["text"]) for answers in rows["answers"][:]]

    def baseline_predictions(self, references: Sequence[Any]) -> list[list[Prediction]]:
        """No answer to all questions."""
        return [[{"answer": ""}] * len(references)]

    def scorer(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> Scorer:
        pairs = [(p["answer"], answers) for p, answers in zip(predictions, references, strict=True)]
        values = {"exact_match": itertools.starmap(_exact_match, pairs), "f1": itertools.starmap(_f1, pairs)}
        return functools.partial(means, {name: list(of_rows) for name, of_rows in values.items()})

    def errors(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> list[float]:
        """1 - F1."""
        return [1 - _f1(p["answer"], answers) for p, answers in zip(predictions, references, strict=True)]


# SQuAD's published scores (Rajpurkar et al. 2016 and 2018)


def _exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1 if the prediction equals one of `answers`, else 0. `answers` is empty or [""] for no answer."""
    return float(_words(prediction) in _words_of(answers))


def _f1(prediction: str, answers: Sequence[str]) -> float:
    """The highest F1 of the words of the prediction and of one of `answers`; two empty texts have 1."""
    return max(_overlap(_words(prediction), words) for words in _words_of(answers))


def _words_of(answers: Sequence[str]) -> list[list[str]]:
    """The words of the answers with more than articles and punctuation; no word if there are none."""
    return [words for words in map(_words, answers) if words] or [[]]


def _words(text: str) -> list[str]:
    """The words in lower case, without punctuation and articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def _overlap(predicted: list[str], true: list[str]) -> float:
    if not predicted or not true:
        return float(predicted == true)
    common = sum((Counter(predicted) & Counter(true)).values())
    return 2 * common / (len(predicted) + len(true))


def _best_threshold(margins: Sequence[float], answered: Sequence[float], unanswered: Sequence[float]) -> float:
    """The threshold nearest to 0 with the highest sum of scores. "No answer" is predicted if the margin exceeds it.

    Args:
        margins: for each question, the score of "no answer" minus that of the best span.
        answered, unanswered: for each question, the score of predicting the best span, and of "no answer".
    """
    order = np.argsort(margins, kind="stable")
    keys, gains = np.array(margins, dtype=float)[order], np.subtract(answered, unanswered)[order]
    sums = np.concatenate([[0.0], np.cumsum(gains)])  # entry i: the i smallest margins are answered
    return best_cut(keys, sums, (keys[0] - 1, keys[-1] + 1), nearest=0.0)


# Answers in training rows


def _span(answers: dict[str, Any], offsets: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """First and last token of the first answer; None if there is none, or not all of it is in the window."""
    if not answers["text"] or not offsets:
        return None
    text, start = answers["text"][0], answers["answer_start"][0]
    covered = [place for place, character in enumerate(text) if unicodedata.category(character)[0] not in "CMZ"]
    if not covered:
        return None
    start, end = start + covered[0], start + covered[-1] + 1  # no token covers spaces and marks at the edges
    if start < offsets[0][0] or end > offsets[-1][1]:
        return None
    touched = [place for place, (left, right) in enumerate(offsets) if left < end and right > start]
    return (touched[0], touched[-1]) if touched else None
