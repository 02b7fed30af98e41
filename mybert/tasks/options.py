"""Options of the tasks. They are apart from the tasks, which take seconds to import."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mybert.common.errors import UserError
from mybert.common.text_windows import stride_below, window_count
from mybert.rows.labels import PROBLEMS, READINGS, label_name
from mybert.settings import declare
from mybert.settings.declare import ROWS, TEXTS, Options

_ROLES = {"word": "tokens", "token": "tokens", "words": "tokens", "tag": "tags"}
ANSWER_LENGTH, ANSWER_WINDOW, ANSWER_WINDOWS = 30, 384, 8
"""MAX_ANSWER_LENGTH, MAX_LENGTH, MAX_WINDOWS of `modeling_mybert.answer_decoding_mybert`: its import takes seconds."""


@dataclass(kw_only=True)
class TaskOptions(Options):
    """Options of every task. A fine-tuned checkpoint stores them.

    None means the checkpoint's value, else the task's default.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"max_length": 128}

    columns: list[str] = declare.data(
        default_factory=list,
        help="Columns without a usual name, as ROLE=COLUMN, such as text=body label=gold; label=a,b,c reads one-hot "
        "columns. Files without names have numbers: word=2 tag=3.",
        pairs=True,
    )
    max_length: int | None = declare.data(
        None,
        "Tokens per sequence, special tokens included (default: 128, or 384 for question-answering; where longer rows "
        "are truncated, as many as 99 of 100 training rows have; at most the length that the checkpoint was trained "
        "on).",
        least=8,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.given_columns()

    def number(self, name: str) -> int:
        """An option that is a number, or its default."""
        return getattr(self, name) or int(self.defaults[name])

    @property
    def length(self) -> int:
        """Tokens of a sequence."""
        return self.number("max_length")

    @property
    def has_windows(self) -> bool:
        """Whether the model reads a long text in several windows; otherwise the text is truncated."""
        return False

    def tokens_in_windows(self, tokens: int) -> int:
        """The number of tokens that the model reads of a text with `tokens` tokens, without truncation."""
        return tokens

    def given_columns(self) -> dict[str, str]:
        """The columns given by `--columns`, by role."""
        return pairs("columns", self.columns, "ROLE=COLUMN, such as text=body")

    @classmethod
    def of(cls, *sources: Mapping[str, Any]) -> Self:
        """Each option from the first of `sources` that has it, else the task's default."""
        values = {}
        for field in dataclasses.fields(cls):
            candidates = (source.get(field.name) for source in (*sources, cls.defaults))
            if (value := next((value for value in candidates if value not in (None, [])), None)) is not None:
                values[field.name] = value
        return cls(**values)


@dataclass(kw_only=True)
class WindowOptions(TaskOptions):
    """Options of tasks that split long inputs into windows."""

    stride: int | None = declare.data(
        None, "Overlap of consecutive windows of a long input, in tokens (default: a third of --max-length).", least=0
    )

    @property
    def has_windows(self) -> bool:
        return True

    def stride_below(self, room: int) -> int:
        """The stride of windows with `room` tokens of text; raises a UserError if it is `room` or more."""
        return stride_below(room, self.stride, default=self.length // 3)

    def tokens_in_windows(self, tokens: int) -> int:
        if not self.has_windows:
            return tokens
        windows = window_count(tokens, self.length - 2, self.stride_below(self.length - 2))
        return tokens if windows == 1 else windows * self.length


@dataclass(kw_only=True)
class TextClassificationOptions(WindowOptions):
    """Options of text-classification."""

    defaults: ClassVar[Mapping[str, Any]] = {"max_length": 128, "long_texts": "truncate"}

    problem: str | None = declare.task(
        None,
        "text-classification: kind of labels (default: lists are multi-label; numbers, at least half of them with a "
        "decimal fraction, are regression; others are single-label).",
        choices=PROBLEMS,
    )
    label_separator: str | None = declare.task(
        None, "text-classification: separator between several labels in one cell, such as ';' (default: none)."
    )
    label_names: list[str] = declare.task(
        default_factory=list,
        help="text-classification: new names of classes, as CLASS=NAME, such as 0=negative 1=positive; classes with "
        "one name are merged.",
        pairs=True,
    )
    long_texts: str | None = declare.data(
        None,
        "text-classification: truncate texts of more than --max-length tokens, or split them into windows and average "
        "the logits (default: truncate).",
        choices=("truncate", "window"),
    )

    threshold: list[str] = declare.task(
        default_factory=list,
        help="text-classification: probability above which a label is predicted, as LABEL=NUMBER, such as spam=0.9, "
        "or one NUMBER for all labels (default: for several labels as tuned on the validation rows; for one label "
        "none: the most probable label is predicted).",
        pairs=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.given_thresholds()

    @property
    def has_windows(self) -> bool:
        return self.long_texts == "window"

    def given_thresholds(self) -> dict[str, float]:
        """Threshold by label, from `--threshold`; that of all labels under the name ""."""
        thresholds: dict[str, float] = {}
        for word in self.threshold:
            name, _, value = word.rpartition("=")
            name = label_name(name) if name else ""
            if name in thresholds:
                raise UserError(
                    f"--threshold {' '.join(self.threshold)}: {name or 'that of all labels'} is given twice"
                )
            try:
                thresholds[name] = float(value)
            except ValueError:
                thresholds[name] = math.nan
            if not 0 <= thresholds[name] <= 1:
                raise UserError(f"--threshold {word}: expected LABEL=NUMBER or NUMBER, a probability from 0 to 1")
        return thresholds

    def given_names(self) -> dict[str, str]:
        """Name by class, from `--label-names`."""
        given = pairs("label-names", self.label_names, "CLASS=NAME, such as 0=negative")
        return {label_name(label): label_name(name) for label, name in given.items()}


@dataclass(kw_only=True)
class TokenClassificationOptions(WindowOptions):
    """Options of token-classification."""

    defaults: ClassVar[Mapping[str, Any]] = {"max_length": 128, "label_all_tokens": False, "plain_tags": False}

    label_all_tokens: bool | None = declare.task(
        None, "token-classification: label all tokens of a word instead of only the first (default: false)."
    )
    plain_tags: bool | None = declare.task(
        None,
        "token-classification: score tags one by one also if they look like tags of entities, such as B-PER (default: "
        "false).",
    )

    def given_columns(self) -> dict[str, str]:
        """The columns given by `--columns`, by role; `word` and `tag` are also names of the roles."""
        return {_ROLES.get(role, role): column for role, column in super().given_columns().items()}


@dataclass(kw_only=True)
class QuestionAnsweringOptions(WindowOptions):
    """Options of question-answering."""

    defaults: ClassVar[Mapping[str, Any]] = {
        "max_length": ANSWER_WINDOW,
        "n_best": 20,
        "max_answer_length": ANSWER_LENGTH,
        "max_windows": ANSWER_WINDOWS,
    }

    n_best: int | None = declare.task(None, "question-answering: number of candidate spans (default: 20).", least=1)
    max_answer_length: int | None = declare.task(
        None, f"question-answering: maximum number of tokens in an answer (default: {ANSWER_LENGTH}).", least=1
    )
    max_windows: int | None = declare.task(
        None,
        "question-answering: maximum number of windows of a context that are read, those with the best BM25 scores "
        f"for the question (default: {ANSWER_WINDOWS}).",
        least=1,
    )


@dataclass(kw_only=True)
class MultipleChoiceOptions(TaskOptions):
    """Options of multiple-choice."""

    choice_labels: str | None = declare.task(
        None,
        "multiple-choice: what labels are: letters, numbers from 0 or from 1, or texts of the choices (default: "
        "decided by all labels).",
        choices=READINGS,
    )


@dataclass(kw_only=True)
class SearchTaskOptions(Options):
    """Options of retrieval and reranking."""

    documents: list[str] = declare.data(
        default_factory=list,
        help="Retrieval, reranking: documents in which queries and passages are found for training, with or without "
        "--train: .txt and .md files, one document each, or rows with the columns `text` and `title` (or --columns "
        "text=… title=…).",
        reads=TEXTS,
    )
    mined_pairs: int | None = declare.data(
        None,
        "Retrieval, reranking: maximum number of pairs found in --documents (default: 12000, 2000 for "
        "reranking; 0 with --judgements). They train a reranker; a retriever reads its words from them.",
        least=0,
    )
    queries: str | None = declare.data(
        None, "Retrieval, reranking: queries with an id and a text, for --judgements.", reads=TEXTS
    )
    judgements: str | None = declare.data(
        None,
        "Retrieval, reranking: grades of --documents for --queries to train on (qrels), as in BEIR or TREC.",
        reads=ROWS,
    )
    hard_negatives: int | None = declare.data(
        None,
        "Passages per pair that do not answer the query, of those that BM25 and the model rank high (default: 1 for "
        "retrieval, 4 for reranking).",
        least=0,
    )
    dimensions: list[int] = declare.task(
        default_factory=list,
        help="retrieval: smaller sizes to which vectors may be cut, such as 256 128 64 (Matryoshka; with --documents "
        "alone principal components; default: none).",
        within="[1, inf)",
    )


def pairs(flag: str, words: list[str], expected: str, names: Collection[str] = ()) -> dict[str, str]:
    """The words `NAME=VALUE` of a flag as a dictionary; `names` are the known ones, if not all are."""
    for word in words:
        if "=" not in word.strip("="):
            raise UserError(f"--{flag}: expected {expected}, found {word!r}")
    by_name = dict(word.split("=", 1) for word in words)
    if len(by_name) < len(words):
        raise UserError(f"--{flag} {' '.join(words)}: a name before = is given twice")
    if unknown := [name for name in by_name if names and name not in names]:
        raise UserError(f"--{flag} {unknown[0]}={by_name[unknown[0]]}: expected one of {', '.join(names)} before =")
    return by_name
