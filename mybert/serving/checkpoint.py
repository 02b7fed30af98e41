"""The loaded checkpoint of a service: its functions, and the number of tokens of a row."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from modeling_mybert import MyBertPreTrainedModel
from mybert.common.errors import UserError
from mybert.common.hub import name_for_others
from mybert.embedding.embedder import Embedder
from mybert.embedding.settings import EncodingSettings
from mybert.explanation.similarity import is_encoder
from mybert.inference.batches import token_limit
from mybert.inference.logits import logits_of_rows
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


class ServedCheckpoint:
    """A checkpoint with the head of a task, an encoder, or an index with its encoder.

    Attributes:
        name: the Hub name, or the last part of the folder.
        task: name of the task; None for encoders.
        compute: what the model computes: vectors from the token ids of texts, or logits from features. It calls its
            second argument after each batch.
        predictor: the predictor of a task head; None for encoders.
        embedder: the embedder of an encoder; None for task heads.
        index: the index that is searched; None for a checkpoint.
    """

    def __init__(self, settings: ServeSettings):
        self.settings, self.name = settings, name_for_others(settings.model)
        self.compute: Callable[[list, Callable[[int], object]], Sequence]
        self.predictor: Predictor | None = None
        self.embedder: Embedder | None = None
        self.task: str | None = None
        names = ("device", "dtype", "max_length", "max_tokens_per_batch")
        self._chosen = {name: getattr(settings, name) for name in names}
        self.index: Index | None = None
        if is_index(settings.model):
            self._load_index()
        elif is_encoder(settings.model):
            self._load_encoder()
        else:
            self._load_task()

    @property
    def max_row_tokens(self) -> int:
        return _MAX_ROW_BATCHES * self.max_tokens_per_batch

    def beside(self) -> "ServedCheckpoint":
        """This checkpoint with another tokenizer, so that requests do not wait for the tokenization of large ones."""
        other = copy.copy(self)
        other.predictor = self.predictor and self.predictor.beside()
        return other

    def _load_index(self) -> None:
        options = {name: self._chosen[name] for name in ("device", "dtype", "max_tokens_per_batch")}
        self.index = index = Index(self.settings.model, **options)
        self.embedder = index.encoder.embedder
        if self.settings.reranker:
            index.reranker(self.settings.reranker)
        self.max_length = self.embedder.max_length
        self.max_tokens_per_batch = self._tokens_per_batch(self.embedder.model)
        self.compute = lambda queries, progress: _search(index, queries, progress)

    def _load_task(self) -> None:
        settings = self.settings
        check_effect(settings, "pooling long_texts", False, "on a task head; remove it")
        self.predictor = Predictor(PredictorSettings(model=settings.model, **self._chosen))
        model, tokenizer, task = self.predictor.model, self.predictor.tokenizer, self.predictor.task
        self.task, self.max_length = task.name, task.options.max_length
        self.max_tokens_per_batch, given = self._tokens_per_batch(model), settings.max_tokens_per_batch
        self._backend, collate = tokenizer.plain_text_backend(), task.collator(tokenizer)
        self.compute = lambda rows, progress: logits_of_rows(model, collate, rows, given, progress)

    def _load_encoder(self) -> None:
        settings = self.settings
        long_texts = "window" if settings.long_texts == "window" else "refuse"
        self.embedder = embedder = Embedder(EncodingSettings(settings.model, long_texts=long_texts, **self._chosen))
        embedder.check_pooling(settings.pooling)
        self.max_length = embedder.max_length
        self.max_tokens_per_batch = self._tokens_per_batch(embedder.model)
        self.compute = lambda ids, progress: embedder.vectors(ids, settings.pooling, progress)

    def _tokens_per_batch(self, model: MyBertPreTrainedModel) -> int:
        """Default: twice a batch of the model, which splits it by length: batches of similar lengths are faster."""
        return self.settings.max_tokens_per_batch or 2 * token_limit(None, model.device)

    @property
    def is_int8(self) -> bool:
        model = (self.predictor or self.embedder).model
        return model.config.int8_outliers is not None

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


def _texts_in(value: Any) -> Iterator[str]:
    """The texts in the value of a column: a text, or a list of them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts_in(item)


def _search(index: Index, queries: list[tuple], progress: Callable[[int], object]) -> list[list[dict] | UserError]:
    """What an index finds for the arguments of each search; a search that cannot be answered has its error."""
    answers: list[list[dict] | UserError] = []
    for query in queries:
        try:
            answers.append([hit.record() for hit in index.search(*query)])
        except UserError as error:
            answers.append(error)
        progress(1)
    return answers
