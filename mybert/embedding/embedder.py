"""Embedder: a checkpoint that turns texts into vectors of texts, or of words in context.

Shapes: `T` tokens of a packed batch, `N` its sequences, `H` hidden size, `R` number of vectors.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Sequence
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np
import torch
from tokenizers import normalizers
from torch import Tensor

from modeling_mybert import MyBertModel
from modeling_mybert.answer_decoding_mybert import end_with_marks
from mybert.common.errors import UserError, cause
from mybert.common.text_windows import cut_windows
from mybert.embedding.settings import EncodingSettings
from mybert.inference.batches import batches, packed_inputs, token_limit
from mybert.inference.checkpoint import (
    Checkpoint,
    check_max_length,
    explain_unreadable,
    open_checkpoint,
    trained_tokens,
)
from mybert.inference.sentence_modules import SentenceModules, module_entries, modules_folder, read_sentence_modules
from mybert.settings.calls import settings_of, text_list
from mybert.settings.shared import POOLING_MODES

if TYPE_CHECKING:
    from mybert.settings.keywords import EmbedderKeywords

logger = logging.getLogger(__name__)

_NO_ROW = -1


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


class _Sequence(NamedTuple):
    """One sequence for the model: a text or a window of it.

    Attributes:
        ids: (length,) token ids, special tokens included.
        rows: (length,) the vector that each token contributes to, or -1.
        start: number of tokens of its text before it.
    """

    ids: np.ndarray
    rows: np.ndarray
    start: int


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
        modules: what follows the encoder; None: nothing does.
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
        self.modules, encoder, self._refusal = _read_modules(model.model)
        try:
            opened = checkpoint or _load(model, encoder)
        except UserError as error:
            raise self._refusal or error from error
        self.model, self.tokenizer = opened.model.base_model, opened.tokenizer
        config, tokenizer = self.model.config, self.tokenizer
        self.backend = tokenizer.plain_text_backend()
        if self.modules and self.modules.lower_case:
            normalizer = [self.backend.normalizer] if self.backend.normalizer else []
            self.backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *normalizer])
        self.special_ids = tokenizer.cls_token_id, tokenizer.sep_token_id
        self.keeps_end = tokenizer.truncation_side == "left"
        self._cls, self._sep = (np.array([token]) for token in self.special_ids)
        self.width = config.hidden_size if self.modules is None else self._width(self.modules)
        own, dtype = (self.modules.max_length, self.modules.dtype) if self.modules else (None, None)
        if dtype not in (None, "auto", "float32") and model.dtype == "float32":
            logger.warning(
                "%s asks for %s, in which sentence-transformers rounds; these vectors are computed in float32",
                *(model.model, dtype),
            )
        self.max_length = self.settings.max_length or (
            min(own, config.max_position_embeddings) if own else trained_tokens(config, tokenizer)
        )
        self.long_texts = self.settings.long_texts or ("refuse" if self.modules is None else "truncate")
        self.default_prompt = self.prompt()
        room = self.max_length - 2
        self.stride = room // 2 if self.settings.stride is None else self.settings.stride
        if self.settings.stride is not None and self.stride >= room:
            raise UserError(f"--stride {self.stride}: expected less than the {room} tokens of a window's text")
        self.max_tokens_per_batch = token_limit(model.max_tokens_per_batch, self.model.device)
        self.tokens = self.truncated = 0

    @torch.inference_mode()
    def _width(self, modules: SentenceModules) -> int:
        pooled = len(modules.poolings) * self.model.config.hidden_size
        try:
            return modules.apply(torch.zeros(1, pooled)).shape[1]
        except RuntimeError as error:
            raise UserError(f"the modules of {self.settings.model} do not fit each other ({cause(error)})") from error

    def check_modules(self) -> None:
        """Raises the error that says which module of the checkpoint is not supported."""
        if self._refusal is not None:
            raise self._refusal

    def prompt(self, name: str | None = None) -> str:
        """The text that is put before each text.

        Args:
            name: of a prompt of the checkpoint; None: the settings choose it, or the checkpoint's default.

        Raises:
            UserError: the checkpoint has no such prompt.
        """
        name = name or self.settings.prompt_name
        if self.settings.prompt is not None:
            return self.settings.prompt
        return (self.modules or SentenceModules(Path())).prompt(name)

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
        start = [id_ for part in first for id_ in self._prompt_ids(part)]
        prompted = [last + text for text in text_list(texts)] if last else text_list(texts)
        encodings = self.backend.encode_batch_fast(prompted, add_special_tokens=False)
        return [np.array([*start, *encoding.ids], dtype=np.int64) for encoding in encodings]

    def _prompt_ids(self, part: str) -> list[int]:
        """The ids of a control token, or of the text between two."""
        if part in self.tokenizer.control_tokens:
            return [self.tokenizer.convert_tokens_to_ids(part)]
        return self.backend.encode(part, add_special_tokens=False).ids

    def vectors(
        self,
        ids: Sequence[np.ndarray],
        pooling: str | None = None,
        progress: Callable[[int], object] | None = None,
        prompt: str | None = None,
    ) -> np.ndarray:
        """As `texts`, for the token ids that `encode` gives for these texts and this prompt."""
        if pooling not in (None, "pooler", *POOLING_MODES):
            raise UserError(f"pooling: expected {', '.join(POOLING_MODES)} or pooler, found {pooling!r}")
        if pooling is None:
            self.check_modules()
        modules = SentenceModules(Path(), poolings=(pooling or "mean",))
        if pooling is None and self.modules is not None:
            modules = self.modules
        if pooling == "pooler" and self.model.pooler is None:
            raise UserError(f"{self.settings.model} has no trained pooler; use mean or cls")
        if pooling == "pooler" and self.settings.layers != [-1]:
            raise UserError("layers have no effect on the output of the pooler; leave them out")
        unpooled = 0
        if not modules.pools_prompt and (prompt := self.default_prompt if prompt is None else prompt):
            unpooled = min(1 + len(self.encode([""], prompt)[0]), self.max_length - 1)
        parts, room = [], self.max_length - 2
        if self.long_texts == "truncate":
            self.truncated += sum(len(of_text) > room for of_text in ids)
            ids = [self.cut(of_text) for of_text in ids]
        for mode in modules.poolings:
            sequences = list(chain.from_iterable(self._rows(*text, mode, unpooled) for text in enumerate(ids)))
            parts.append(self._pool(sequences, len(ids), mode, None if parts else progress))
        with torch.inference_mode():
            pooled = torch.cat(parts, dim=1)
            return self._finished(modules.apply(pooled.cpu() if modules.layers else pooled))

    def cut(self, ids: np.ndarray) -> np.ndarray:
        """The token ids of a text, truncated on the side that the tokenizer says."""
        room = self.max_length - 2
        return ids[max(len(ids) - room, 0) :] if self.keeps_end else ids[:room]

    def _rows(self, text: int, ids: np.ndarray, mode: str, unpooled: int) -> list[_Sequence]:
        """The windows of a text, whose rows name the tokens that are pooled.

        Args:
            unpooled: number of tokens at the start of the text, [CLS] included, that are left out.
        """
        windows = self._windows(text, ids, np.full(len(ids), text))
        first, last = windows[0].rows, windows[-1].rows
        if mode in ("cls", "pooler"):
            for window in windows:
                window.rows[:] = _NO_ROW
                window.rows[unpooled if window.start == 0 and len(window.rows) > unpooled else 0] = text
        elif mode == "lasttoken":
            for window in windows:
                window.rows[:] = _NO_ROW
            last[-1] = text
        else:
            first[0] = last[-1] = text
            first[:unpooled] = _NO_ROW
        return windows

    def words(self, texts: Sequence[str], progress: Callable[[int], object] | None = None) -> list[Words]:
        """Computes one vector for each word of each text: the mean over its tokens, in the context of the text.

        Args:
            progress: called after each batch with the number of texts that began in it.

        Returns:
            The words of each text, in the order of `texts`. Texts that would be truncated are split into windows.

        Raises:
            UserError: a text is too long.
        """
        texts, sequences, spans, bounds = text_list(texts), [], [], [0]
        for text, encoding in enumerate(self.backend.encode_batch(texts, add_special_tokens=False)):
            _, first, word = np.unique(np.array(encoding.word_ids, dtype=np.int64), True, True)
            ends = np.append(first[1:], len(word)) - 1
            offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
            spans.append(_whole_words(texts[text], offsets[first, 0], offsets[ends[: len(first)], 1]))
            sequences += self._windows(text, np.array(encoding.ids, dtype=np.int64), word + bounds[-1])
            bounds.append(bounds[-1] + len(first))
        vectors = self._finished(self._pool(sequences, bounds[-1], "mean", progress))
        return [
            Words([text[start:end] for start, end in span.tolist()], span, vectors[begin:end])
            for text, span, begin, end in zip(texts, spans, bounds, bounds[1:], strict=False)
        ]

    def _windows(self, text: int, ids: np.ndarray, rows: np.ndarray) -> list[_Sequence]:
        """Windows over the tokens `ids` of a text; special tokens contribute to no row yet."""
        size = self.max_length - 2
        if len(ids) > size and self.long_texts == "refuse":
            raise UserError(
                f"text {text}: {len(ids) + 2} tokens, more than {self.max_length}; set long_texts='window' "
                "(--long-texts window) or split the text"
            )
        sequences = []
        for start, end, kept_start, kept_end in cut_windows(len(ids), size, self.stride):
            of = np.full(end - start + 2, _NO_ROW)
            of[1 + kept_start - start : 1 + kept_end - start] = rows[kept_start:kept_end]
            sequences.append(_Sequence(np.concatenate([self._cls, ids[start:end], self._sep]), of, start))
        return sequences

    @torch.inference_mode()
    def _pool(
        self, sequences: list[_Sequence], count: int, mode: str, progress: Callable[[int], object] | None
    ) -> Tensor:
        """(count, H) float32: the tokens that contribute to each row, pooled as sentence-transformers does."""
        device, hidden = self.model.device, self.model.config.hidden_size
        pooled = torch.full((count, hidden), float("-inf") if mode == "max" else 0.0, device=device)
        totals = torch.zeros(count, 1, device=device)
        for batch in batches(sequences, lambda sequence: len(sequence.ids), self.max_tokens_per_batch):
            vectors, rows, positions = self._encode(batch, mode == "pooler")
            if mode == "max":
                pooled.scatter_reduce_(0, rows[:, None].expand_as(vectors), vectors, "amax")
            else:
                weights = (positions + 1.0 if mode == "weightedmean" else torch.ones_like(positions)).float()[:, None]
                pooled.index_add_(0, rows, vectors * weights if mode == "weightedmean" else vectors)
                totals.index_add_(0, rows, weights)
            if progress:
                progress(sum(sequence.start == 0 for sequence in batch))
        if mode == "max":
            return pooled
        return pooled / (totals.sqrt() if mode == "mean_sqrt_len_tokens" else totals)

    def _finished(self, vectors: Tensor) -> np.ndarray:
        if not vectors.isfinite().all():
            raise UserError(
                f"{self.settings.model} gives vectors with NaN or infinite values; its weights are damaged"
            )
        return (torch.nn.functional.normalize(vectors) if self.settings.normalize else vectors).cpu().numpy()

    def _encode(self, batch: list[_Sequence], pooler: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states of the tokens that contribute to a row, or pooler outputs.

        Returns:
            (K, H) float32; (K,) their rows; (K,) their positions in the text.
        """
        inputs = packed_inputs([sequence.ids for sequence in batch], self.model.device)
        self.tokens += inputs["input_ids"].numel()
        last = all(layer in (-1, self.model.config.num_hidden_layers) for layer in self.settings.layers)
        output = self.model(**inputs, output_hidden_states=False if last else self.settings.layers)
        rows = np.concatenate([sequence.rows for sequence in batch])
        kept = np.flatnonzero(rows != _NO_ROW)
        rows = torch.from_numpy(rows[kept]).to(self.model.device)
        positions = np.concatenate([sequence.start + np.arange(len(sequence.ids)) for sequence in batch])[kept]
        positions = torch.from_numpy(positions).to(self.model.device)
        if pooler:
            return output.pooler_output.float(), rows, positions
        states = [output.last_hidden_state] if last else [output.hidden_states[i] for i in self.settings.layers]
        if len(kept) < output.last_hidden_state.shape[1]:
            indices = torch.from_numpy(kept).to(self.model.device)
            states = [state[:, indices] for state in states]
        means = states[0] if len(states) == 1 else torch.stack([state.float() for state in states]).mean(0)
        return means[0].float(), rows, positions


def _whole_words(text: str, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """(words, 2) start and end of each word, with its last combining marks."""
    if not text.isascii():
        ends = np.array([end_with_marks(text, end) for end in ends.tolist()], dtype=np.int64)
        ends[:-1] = np.minimum(ends[:-1], starts[1:])  # after punctuation, a mark may be a word: the keycap of #
    return np.stack([starts, ends], axis=1)


def _read_modules(name: str) -> tuple[SentenceModules | None, str, UserError | None]:
    """The modules of a sentence encoder; the name of what to load; why modules cannot be used, which matters only
    without another pooling."""
    with contextlib.nullcontext() if Path(name).is_dir() else explain_unreadable(name):
        folder = modules_folder(name)
    if folder is None:
        return None, name, None
    try:
        modules = read_sentence_modules(folder)
        return modules, str(modules.encoder), None
    except UserError as error:
        with contextlib.suppress(UserError, IndexError):
            return None, str(folder / module_entries(folder)[0]["path"]), error
        return None, name, error


def _load(settings: EncodingSettings, name: str) -> Checkpoint:
    opened = open_checkpoint(name, MyBertModel, device=settings.device, dtype=settings.dtype)
    check_max_length(settings.max_length, opened.model.config, name)
    layers = opened.model.config.num_hidden_layers
    for layer in settings.layers:
        if not -layers - 1 <= layer <= layers:
            raise UserError(f"--layers: expected {-layers - 1} to {layers}, found {layer}")
    return opened
