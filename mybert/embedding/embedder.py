"""Embedder: a checkpoint that turns texts into vectors of texts, or of words in context. `H` is the hidden size."""

import re
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np
import torch
from tokenizers import normalizers
from torch import Tensor

from modeling_mybert import MyBertModel
from modeling_mybert.answer_decoding_mybert import end_with_marks
from mybert.common.errors import NOT_FINITE, UserError, cause
from mybert.common.text_windows import stride_below
from mybert.embedding.pooling import Window, choose_tokens, pool, windows_of
from mybert.embedding.settings import EncodingSettings
from mybert.inference.batches import token_limit
from mybert.inference.checkpoint import Checkpoint, open_checkpoint
from mybert.inference.checkpoint_tokenizer import check_max_length, trained_tokens
from mybert.inference.sentence_modules import SentenceModules, find_modules
from mybert.settings.calls import settings_of, text_list
from mybert.settings.shared import POOLING_MODES

if TYPE_CHECKING:
    from mybert.settings.keywords import EmbedderKeywords


class Words(NamedTuple):
    """The words of one text: runs of letters, digits and marks; single punctuation marks; single CJK ideographs.

    Attributes:
        words: as spelled in the text.
        spans: (words, 2) character offsets: `text[start:end]` is the word.
        vectors: (words, H) float32.
    """

    words: list[str]
    spans: np.ndarray
    vectors: np.ndarray


class Embedder:
    """A checkpoint that turns texts into vectors.

    The vectors of a sentence encoder, a folder with `modules.json`, are those of sentence-transformers: with its
    pooling, dense layers, normalisation, maximum length and default prompt. Other checkpoints have the mean of the
    last hidden states.

    Texts contain no control tokens: `[MASK]` is read as a bracket, a word and a bracket. In a prompt it is the token.

    Args:
        model: folder or Hub name of a MyBERT or BERT checkpoint, or `EncodingSettings`.
        checkpoint: the same one, if it is open.
        options: fields of `EncodingSettings`, where `model` is a name.

    Attributes:
        modules: what follows the encoder.
        width: the length of the vector of a text; that of a word has `H`.
        max_length: maximum tokens of a text or window, special tokens included.
        keeps_end: whether truncation removes the start of a text.
        tokens: number of tokens read by the model so far, special tokens included.
        truncated: number of texts truncated so far.

    Raises:
        UserError: the checkpoint or device cannot be used, or a setting does not fit the model.

    Example:
        >>> embedder = Embedder("all-MiniLM-L6-v2", normalize=True)
        >>> embedder.texts(["I ate an apple.", "Apple sued."]).shape
        (2, 384)
        >>> fruit, firm = embedder.words(["I ate an apple.", "Apple sued."])
        >>> fruit.words[3], firm.words[0], float(fruit.vectors[3] @ firm.vectors[0])
        ('apple', 'Apple', 0.784)
    """

    def __init__(
        self,
        model: str | PathLike[str] | EncodingSettings,
        *,
        checkpoint: Checkpoint | None = None,
        **options: Unpack["EmbedderKeywords"],
    ):
        self.settings = model = settings_of(EncodingSettings, model, options)
        self.modules, self._refusal = find_modules(model.model)
        try:
            opened = checkpoint or _load(model, self.modules.encoder)
        except UserError as error:
            raise self._refusal or error from error
        self.model, self.tokenizer = opened.model.base_model, opened.tokenizer
        config, tokenizer = self.model.config, self.tokenizer
        self.backend = tokenizer.plain_text_backend()
        if self.modules.lower_case:
            normalizer = [self.backend.normalizer] if self.backend.normalizer else []
            self.backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *normalizer])
        self.special_ids = tokenizer.cls_token_id, tokenizer.sep_token_id
        self.keeps_end = tokenizer.truncation_side == "left"
        self.width = self._width()
        own = self.modules.max_length
        self.max_length = self.settings.max_length or (
            min(own, config.max_position_embeddings) if own else trained_tokens(config, tokenizer)
        )
        self.long_texts = self.settings.long_texts or ("truncate" if self.modules.names else "refuse")
        self.default_prompt = self.prompt()
        room = self.max_length - 2
        self.stride = stride_below(room, self.settings.stride, default=room // 2)
        self.max_tokens_per_batch = token_limit(model.max_tokens_per_batch, self.model.device)
        self.tokens = self.truncated = 0

    @torch.inference_mode()
    def _width(self) -> int:
        pooled = len(self.modules.poolings) * self.model.config.hidden_size
        try:
            return self.modules.apply(torch.zeros(1, pooled)).shape[1]
        except RuntimeError as error:
            raise UserError(f"the modules of {self.settings.model} do not fit each other ({cause(error)})") from error

    def check_pooling(self, pooling: str | None = None) -> None:
        """Raises a UserError if `texts` cannot pool so; None: by the modules of the checkpoint."""
        if pooling is None and self._refusal is not None:
            raise self._refusal
        if pooling not in (None, "pooler", *POOLING_MODES):
            raise UserError(f"pooling: expected {', '.join(POOLING_MODES)} or pooler, found {pooling!r}")
        if pooling == "pooler" and self.model.pooler is None:
            raise UserError(f"{self.settings.model} has no trained pooler; use mean or cls")
        if pooling == "pooler" and self.settings.layers != [-1]:
            raise UserError("layers have no effect on the output of the pooler; leave them out")

    def prompt(self, name: str | None = None) -> str:
        """The text that is put before each text.

        Args:
            name: of a prompt of the checkpoint; None: the settings choose it, or the checkpoint's default.

        Raises:
            UserError: the checkpoint has no such prompt.
        """
        if name is None and self.settings.prompt is not None:
            return self.settings.prompt
        return self.modules.prompt(name or self.settings.prompt_name)

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Number of tokens of each text, special tokens included."""
        return [len(ids) + 2 for ids in self.encode(texts)]

    def texts(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        progress: Callable[[int], object] | None = None,
        prompt_name: str | None = None,
    ) -> np.ndarray:
        """Computes one vector for each text.

        Args:
            pooling: a mode of sentence-transformers over all tokens of a text, [CLS] and [SEP] included (`mean`,
                `max`, `mean_sqrt_len_tokens`, `weightedmean`); `cls` or `lasttoken`, the vector of that token;
                `pooler`, the trained pooler output. It replaces the modules of a sentence encoder. None: these
                modules, else `mean`. `cls` and `pooler` of a text in several windows are averaged.
            progress: called after each batch with the number of texts that began in it.
            prompt_name: see `prompt`.

        Returns:
            (texts, width) float32, in the order of `texts`.

        Raises:
            UserError: a text is too long, the checkpoint has no pooler, or a module is not supported.
        """
        prompt = self.prompt(prompt_name)
        return self.vectors(self.encode(texts, prompt), pooling, progress, prompt)

    def encode(self, texts: Sequence[str], prompt: str | None = None) -> list[np.ndarray]:
        """Token ids of each text after its prompt (None: `default_prompt`), without [CLS] and [SEP] around them."""
        prompt = self.default_prompt if prompt is None else prompt
        *first, last = re.split(f"({'|'.join(map(re.escape, self.tokenizer.control_tokens))})", prompt)
        start: list[int] = []
        for part in first:
            if part in self.tokenizer.control_tokens:
                start.append(self.tokenizer.convert_tokens_to_ids(part))
            else:
                start += self.backend.encode(part, add_special_tokens=False).ids
        prompted = [last + text for text in text_list(texts)] if last else text_list(texts)
        encodings = self.backend.encode_batch_fast(prompted, add_special_tokens=False)
        return [np.array([*start, *encoding.ids], dtype=np.int64) for encoding in encodings]

    def vectors(
        self,
        ids: Sequence[np.ndarray],
        pooling: str | None = None,
        progress: Callable[[int], object] | None = None,
        prompt: str | None = None,
    ) -> np.ndarray:
        """As `texts`, for the token ids that `encode` gives for these texts and this prompt."""
        self.check_pooling(pooling)
        modules = self.modules if pooling is None else SentenceModules("", poolings=(pooling,))
        unpooled = 0
        if not modules.pools_prompt and (prompt := self.default_prompt if prompt is None else prompt):
            unpooled = min(1 + len(self.encode([""], prompt)[0]), self.max_length - 1)
        parts, room = list[Tensor](), self.max_length - 2
        if self.long_texts == "truncate":
            self.truncated += sum(len(of_text) > room for of_text in ids)
            ids = [self.cut(of_text) for of_text in ids]
        for mode in modules.poolings:
            windows: list[Window] = []
            for text, of_text in enumerate(ids):
                some = self._windows(text, of_text, np.full(len(of_text), text))
                choose_tokens(some, text, mode, unpooled)
                windows += some
            parts.append(self._pool(windows, len(ids), mode, None if parts else progress))
        with torch.inference_mode():
            pooled = torch.cat(parts, dim=1)
            return self._finished(modules.apply(pooled.cpu() if modules.layers else pooled))

    def cut(self, ids: np.ndarray) -> np.ndarray:
        """The token ids of a text, truncated on the side that the tokenizer says."""
        room = self.max_length - 2
        return ids[max(len(ids) - room, 0) :] if self.keeps_end else ids[:room]

    def words(self, texts: Sequence[str], progress: Callable[[int], object] | None = None) -> list[Words]:
        """Computes one vector for each word of each text: the mean over its tokens, in the context of the text.

        Args:
            progress: called after each batch with the number of texts that began in it.

        Returns:
            The words of each text, in the order of `texts`. Texts that would be truncated are split into windows.

        Raises:
            UserError: a text is too long.
        """
        texts, spans, bounds = text_list(texts), [], [0]
        windows: list[Window] = []
        for text, encoding in enumerate(self.backend.encode_batch(texts, add_special_tokens=False)):
            _, first, word = np.unique(np.array(encoding.word_ids, dtype=np.int64), True, True)
            ends = np.append(first[1:], len(word)) - 1
            offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
            spans.append(_whole_words(texts[text], offsets[first, 0], offsets[ends[: len(first)], 1]))
            windows += self._windows(text, np.array(encoding.ids, dtype=np.int64), word + bounds[-1])
            bounds.append(bounds[-1] + len(first))
        vectors = self._finished(self._pool(windows, bounds[-1], "mean", progress))
        return [
            Words([text[start:end] for start, end in span.tolist()], span, vectors[begin:end])
            for text, span, begin, end in zip(texts, spans, bounds, bounds[1:], strict=False)
        ]

    def _windows(self, text: int, ids: np.ndarray, rows: np.ndarray) -> list[Window]:
        """See `windows_of`; `text` is the number of the text."""
        size = self.max_length - 2
        if len(ids) > size and self.long_texts == "refuse":
            raise UserError(
                f"text {text}: {len(ids) + 2} tokens, more than {self.max_length}; set long_texts='window' "
                "(--long-texts window) or split the text"
            )
        return windows_of(ids, rows, self.special_ids, size, self.stride)

    def _pool(self, windows: list[Window], count: int, mode: str, progress: Callable[[int], object] | None) -> Tensor:
        self.tokens += sum(len(window.ids) for window in windows)
        return pool(self.model, windows, count, mode, self.settings.layers, self.max_tokens_per_batch, progress)

    def _finished(self, vectors: Tensor) -> np.ndarray:
        if not vectors.isfinite().all():
            raise UserError(f"{self.settings.model} gives vectors with NaN or infinite values; {NOT_FINITE}")
        return (torch.nn.functional.normalize(vectors) if self.settings.normalize else vectors).cpu().numpy()


def _whole_words(text: str, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """(words, 2) start and end of each word, with its last combining marks."""
    if not text.isascii():
        ends = np.array([end_with_marks(text, end) for end in ends.tolist()], dtype=np.int64)
        ends[:-1] = np.minimum(ends[:-1], starts[1:])  # after punctuation, a mark may be a word: the keycap of #
    return np.stack([starts, ends], axis=1)


def _load(settings: EncodingSettings, name: str) -> Checkpoint:
    opened = open_checkpoint(name, MyBertModel, device=settings.device, dtype=settings.dtype)
    check_max_length(settings.max_length, opened.model.config, name)
    layers = opened.model.config.num_hidden_layers
    for layer in settings.layers:
        if not -layers - 1 <= layer <= layers:
            raise UserError(f"--layers: expected {-layers - 1} to {layers}, found {layer}")
    return opened
