"""The loaded model of a service: the head of a task, an encoder or an index."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from mybert.common.errors import UserError
from mybert.common.hub import name_for_others
from mybert.embedding.embedder import Embedder
from mybert.embedding.settings import EncodingSettings
from mybert.explanation.similarity import is_encoder
from mybert.inference.batches import token_limit
from mybert.inference.logits import Model, logits_of_rows
from mybert.inference.predictor import Part, Predictor
from mybert.retrieval.index import Index
from mybert.retrieval.settings import is_index
from mybert.serving.settings import ServeSettings
from mybert.settings.declare import check_effect
from mybert.tasks.settings import PredictorSettings

MAX_COLUMNS, MAX_COLUMN_SETS = 256, 64  # of a row; of all rows of a request
MAX_SCORES = 250_000  # of an answer: rows × labels
_MAX_ROW_BATCHES = 8  # that a single row may fill, while all other requests wait
CHARACTERS_PER_TOKEN = 16  # more than any language has on average
_LONGEST_WORD = 100  # characters, and at most tokens, of a word; a longer one is [UNK]


class _Served(ABC):
    """What a service answers with: a model, and the limits of a request.

    Attributes:
        name: the Hub name, or the last part of the folder.
        task: name of the task; None without the head of one.
        max_tokens_per_batch: by default twice a batch of the model, which splits it by length: batches of similar
            lengths are faster.
    """

    task: str | None = None

    def __init__(self, settings: ServeSettings, model: Model, max_length: int):
        self.settings, self.name = settings, name_for_others(settings.model)
        self.max_length, self.is_int8 = max_length, model.config.int8_outliers is not None
        self.max_tokens_per_batch = settings.max_tokens_per_batch or 2 * token_limit(None, model.device)

    @property
    def max_row_tokens(self) -> int:
        return _MAX_ROW_BATCHES * self.max_tokens_per_batch

    @abstractmethod
    def compute(self, rows: list[Any], progress: Callable[[int], object]) -> Iterable[Any]:
        """The result of each row. `progress` is called after each batch."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What `/info` tells of it: TEI's `model_type`, and the size of an index."""

    def with_own_tokenizer(self) -> Self:
        """This model with another tokenizer, so that requests do not wait for the tokenization of large ones."""
        return self


class ServedTask(_Served):
    """A checkpoint with the head of a task; computes logits from features."""

    def __init__(self, settings: ServeSettings):
        check_effect(settings, "pooling long_texts", False, "on a task head; remove it")
        own = PredictorSettings(model=settings.model, **_chosen(settings, "max_length"))
        self.predictor = predictor = Predictor(own)
        super().__init__(settings, predictor.model, predictor.task.options.length)
        self.task, tokenizer = predictor.task.name, predictor.tokenizer
        self._backend, self._collate = tokenizer.plain_text_backend(), predictor.task.collator(tokenizer)

    def facts(self) -> dict[str, Any]:
        config = self.predictor.task.config
        name = "reranker" if config.num_labels == 1 else "classifier"
        return {"model_type": {name: {"id2label": config.id2label, "label2id": config.label2id}}}

    def with_own_tokenizer(self) -> Self:
        other = copy.copy(self)
        other.predictor = self.predictor.with_own_tokenizer()
        return other

    def compute(self, rows: list[Any], progress: Callable[[int], object]) -> Iterable[Any]:
        given = self.settings.max_tokens_per_batch
        return logits_of_rows(self.predictor.model, self._collate, rows, given, progress)

    def tokens_of(self, part: Part) -> int:
        """About the number of tokens that the model reads for rows; a long text without spaces has more, for its
        tokenization. Each text is tokenised once.
        """
        rows = [row for _, table in part.tables for row in table]
        texts = list(dict.fromkeys(text for row in rows for value in row.values() for text in _texts_in(value)))
        encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        tokens = (max(len(e), len(t) // CHARACTERS_PER_TOKEN) for e, t in zip(encodings, texts, strict=True))
        lengths = dict(zip(texts, tokens, strict=True))
        return sum(self.predictor.task.tokens_read(row, lambda text: lengths[text]) for row in rows)


class ServedEncoder(_Served):
    """An encoder; computes vectors from the token ids of texts."""

    def __init__(self, settings: ServeSettings):
        long_texts = "window" if settings.long_texts == "window" else "refuse"
        own = EncodingSettings(settings.model, long_texts=long_texts, **_chosen(settings, "max_length"))
        self.embedder = Embedder(own)
        self.embedder.check_pooling(settings.pooling)
        super().__init__(settings, self.embedder.model, self.embedder.max_length)

    def facts(self) -> dict[str, Any]:
        pooling = self.settings.pooling or "+".join(self.embedder.modules.poolings)
        return {"model_type": {"embedding": {"pooling": pooling}}}

    def compute(self, rows: list[Any], progress: Callable[[int], object]) -> Iterable[Any]:
        return self.embedder.vectors(rows, self.settings.pooling, progress)

    def token_ids(self, texts: Sequence[str | list[int]]) -> list[np.ndarray]:
        """Token ids without special tokens; token arrays lose [CLS] and [SEP] at their ends.

        Without windows, the end of a text far longer than `max_length` is not tokenised if truncation removes it.
        """
        whole = [text for text in texts if isinstance(text, str)]
        if self.settings.long_texts == "window" or self.embedder.keeps_end:
            encoded = self.embedder.encode(whole)
        else:
            encoded = self.embedder.encode([text[: CHARACTERS_PER_TOKEN * self.max_length] for text in whole])
            for place, text in enumerate(whole):  # only the last word of a prefix can have other tokens
                is_cut = len(text) > CHARACTERS_PER_TOKEN * self.max_length
                if is_cut and len(encoded[place]) <= self.max_length + _LONGEST_WORD:
                    encoded[place] = self.embedder.encode([text])[0]
        text_ids = iter(encoded)
        return [next(text_ids) if isinstance(text, str) else self._given_ids(text) for text in texts]

    def _given_ids(self, ids: list[int]) -> np.ndarray:
        most = self.embedder.model.config.vocab_size
        if not all(0 <= token < most for token in ids):
            raise UserError(f"token ids: expected 0 to {most - 1}; use the tokenizer of this model, or send texts")
        token_ids = np.array(ids, dtype=np.int64)
        cls, sep = self.embedder.special_ids
        token_ids = token_ids[1:] if len(token_ids) and token_ids[0] == cls else token_ids
        return token_ids[:-1] if len(token_ids) and token_ids[-1] == sep else token_ids


class ServedIndex(_Served):
    """An index with its encoder; computes the hits of searches."""

    def __init__(self, settings: ServeSettings):
        self.index = Index(settings.model, **_chosen(settings))
        self.embedder = self.index.encoder.embedder
        if settings.reranker:
            self.index.reranker(settings.reranker)
        super().__init__(settings, self.embedder.model, self.embedder.max_length)

    def facts(self) -> dict[str, Any]:
        counts = {"documents": len(self.index), "passages": self.index.passages}
        return {
            "model_type": {"embedding": {"pooling": "+".join(self.embedder.modules.poolings)}},
            "index": counts | {"reranker": self.settings.reranker and name_for_others(self.settings.reranker)},
        }

    def compute(self, rows: list[Any], progress: Callable[[int], object]) -> Iterable[Any]:
        """What the index finds for the arguments of each search; a search that cannot be answered has its error."""
        answers: list[list[dict[str, Any]] | UserError] = []
        for query in rows:
            try:
                answers.append([hit.record() for hit in self.index.search(*query)])
            except UserError as error:
                answers.append(error)
            progress(1)
        return answers


Served = ServedTask | ServedEncoder | ServedIndex


def open_served(settings: ServeSettings) -> Served:
    """Loads the index or the checkpoint of a service; raises a UserError if it cannot be used."""
    if is_index(settings.model):
        return ServedIndex(settings)
    return (ServedEncoder if is_encoder(settings.model) else ServedTask)(settings)


def _chosen(settings: ServeSettings, *more: str) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in ("device", "dtype", "max_tokens_per_batch", *more)}


def _texts_in(value: Any) -> Iterator[str]:
    """The texts in the value of a column: a text, or a list of them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts_in(item)
