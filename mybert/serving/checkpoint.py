"""The loaded checkpoint of a service: its functions, and the number of tokens of a row."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from modeling_mybert import (
    MyBertForMaskedLM,
    MyBertForNextSentencePrediction,
    MyBertForPreTraining,
    MyBertPreTrainedModel,
)
from mybert.common.errors import UserError
from mybert.embedding.embedder import Embedder
from mybert.embedding.settings import EncodingSettings
from mybert.explanation.similarity import is_encoder
from mybert.finetuning.evaluation.predictor import Predictor
from mybert.finetuning.settings import PredictSettings
from mybert.release.convert.full_checkpoint import load_checkpoint
from mybert.scoring.pretraining_heads import fill_masks, follow_probabilities
from mybert.serving.batching import Function
from mybert.serving.settings import ServeSettings

MASK_CANDIDATES = 100
_CHARACTERS_PER_TOKEN = 16  # more than any language has on average
_LONGEST_WORD = 100  # characters, and at most tokens, of a word; a longer one is [UNK]


class ServedCheckpoint:
    """A checkpoint with the head of a task, or an encoder with or without pretraining heads.

    Attributes:
        task: name of the task; None for encoders.
        functions: `predict` for a task head; otherwise `embed`, and `fill-mask` and `next-sentence` if the checkpoint
            has these heads. Each takes rows and returns one result per row.
        predictor: the predictor of a task head; None for encoders.
        embedder: the embedder of an encoder; None for task heads.
    """

    def __init__(self, settings: ServeSettings):
        self.settings = settings
        self.functions: dict[str, Function] = {}
        self.predictor: Predictor | None = None
        self.embedder: Embedder | None = None
        self.task: str | None = None
        names = ("device", "dtype", "max_length", "max_tokens_per_batch")
        self._chosen = {name: getattr(settings, name) for name in names}
        if is_encoder(settings.model):
            self._load_encoder()
        else:
            self._load_task()
        self.backend = self.tokenizer.plain_text_backend()

    def _load_task(self) -> None:
        settings = self.settings
        for name in ("pooling", "long_texts"):
            if getattr(settings, name) != getattr(type(settings), name):
                raise UserError(f"--{name.replace('_', '-')} has no effect on a task head; remove it")
        self.predictor = Predictor(PredictSettings(model=settings.model, inputs=["-"], **self._chosen))
        self.tokenizer, self.task = self.predictor.tokenizer, self.predictor.task.name
        self.max_length = self.predictor.task.options.max_length
        self.max_tokens_per_batch = self._tokens_per_batch(self.predictor.model)
        self.functions["predict"] = partial(self.predictor, errors="skip")

    def _load_encoder(self) -> None:
        settings = self.settings
        long_texts = "window" if settings.long_texts == "window" else "refuse"
        self.embedder = embedder = Embedder(EncodingSettings(settings.model, long_texts=long_texts, **self._chosen))
        if settings.pooling == "pooler" and embedder.model.pooler is None:
            raise UserError(f"{settings.model} has no trained pooler; use --pooling mean or cls")
        self.max_length = embedder.max_length
        self.max_tokens_per_batch = self._tokens_per_batch(embedder.model)
        self.functions["embed"] = partial(embedder.vectors, pooling=settings.pooling)
        checkpoint = load_checkpoint(str(embedder.modules.encoder) if embedder.modules else settings.model)
        self.tokenizer, heads = checkpoint.tokenizer, checkpoint.model
        if isinstance(heads, (MyBertForMaskedLM, MyBertForPreTraining, MyBertForNextSentencePrediction)):
            heads.bert = embedder.model  # one copy of the weights
            heads.tie_weights()
            heads.to(embedder.model.device, embedder.model.dtype)
            fill = partial(fill_masks, heads, self.tokenizer, top_k=MASK_CANDIDATES, max_length=self.max_length)
            follows = partial(follow_probabilities, heads, self.tokenizer, max_length=self.max_length)
            if not isinstance(heads, MyBertForNextSentencePrediction):
                self.functions["fill-mask"] = fill
            if not isinstance(heads, MyBertForMaskedLM):
                self.functions["next-sentence"] = follows

    def _tokens_per_batch(self, model: MyBertPreTrainedModel) -> int:
        """Default: twice the batch of `Embedder`, which splits it by length: batches of similar lengths are faster."""
        return self.settings.max_tokens_per_batch or (4096 if model.device.type == "cpu" else 32768)

    @property
    def is_int8(self) -> bool:
        model = (self.predictor or self.embedder).model
        return model.config.int8_outliers is not None

    def token_ids(self, texts: Sequence[str | list[int]]) -> list[np.ndarray]:
        """Token ids without special tokens; token arrays lose [CLS] and [SEP] at their ends.

        Without windows, the end of a text far longer than `max_length` is not tokenised.
        """
        whole = [text for text in texts if isinstance(text, str)]
        if self.settings.long_texts == "window":
            encoded = self.embedder.encode(whole)
        else:
            encoded = self.embedder.encode([text[: _CHARACTERS_PER_TOKEN * self.max_length] for text in whole])
            for place, text in enumerate(whole):  # only the last word of a prefix can have other tokens
                is_cut = len(text) > _CHARACTERS_PER_TOKEN * self.max_length
                if is_cut and len(encoded[place]) <= self.max_length + _LONGEST_WORD:
                    encoded[place] = self.embedder.encode([text])[0]
        found = iter(encoded)
        return [next(found) if isinstance(text, str) else self._given_ids(text) for text in texts]

    def _given_ids(self, ids: list[int]) -> np.ndarray:
        most = self.embedder.model.config.vocab_size
        if not all(0 <= token < most for token in ids):
            raise UserError(f"token ids: expected 0 to {most - 1}; use the tokenizer of this model, or send texts")
        found = np.array(ids, dtype=np.int64)
        cls, sep = self.embedder.special_ids
        found = found[1:] if len(found) and found[0] == cls else found
        return found[:-1] if len(found) and found[-1] == sep else found

    def tokens_of(self, rows: Sequence[Any]) -> list[int]:
        """Number of tokens of each row, over all its texts, special tokens included."""
        texts = [list(_texts_in(row)) for row in rows]
        encodings = self.backend.encode_batch_fast([text for some in texts for text in some], add_special_tokens=False)
        lengths = iter(len(encoding) + 1 for encoding in encodings)
        return [1 + sum(next(lengths) for _ in some) for some in texts]


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts_in(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts_in(item)
