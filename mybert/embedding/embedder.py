"""Embedder: a checkpoint that turns texts into vectors of texts, or of words in context.

Shapes: `T` tokens of a packed batch, `N` its sequences, `H` hidden size, `R` number of vectors.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor

from modeling_mybert import MyBertModel
from mybert.common.checkpoint_loading import load_with_tokenizer, refuse_missing
from mybert.common.command_line import make_settings
from mybert.common.devices import choose_device
from mybert.common.errors import UserError
from mybert.common.packed_batches import batches_by_length, packed_inputs, tokens_per_batch
from mybert.common.python_values import text_list
from mybert.common.sequence_length import check_max_length, trained_tokens
from mybert.common.text_windows import cut_windows
from mybert.embedding.settings import EncodingSettings
from tokenization import MyBertTokenizer

if TYPE_CHECKING:
    from mybert.common.keywords import EmbedderKeywords

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
        is_first: whether it is the first window of its text.
    """

    ids: np.ndarray
    rows: np.ndarray
    is_first: bool


class Embedder:
    """A checkpoint that turns texts into vectors.

    Texts contain no control tokens: `[MASK]` is read as a bracket, a word and a bracket.

    Args:
        model: folder or Hub name of a MyBERT or BERT checkpoint, or `EncodingSettings`.
        options: fields of `EncodingSettings`, where `model` is a name.

    Attributes:
        width: `H`, the length of every vector.
        max_length: maximum tokens of a text or window, special tokens included.
        tokens: number of tokens read by the model so far, special tokens included.

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

    def __init__(self, model: str | PathLike[str] | EncodingSettings, **options: Unpack["EmbedderKeywords"]):
        if not isinstance(model, EncodingSettings):
            (model,) = make_settings([EncodingSettings], (model,), options)
        self.settings = model
        self.model, tokenizer = _load(self.settings)
        config = self.model.config
        self.backend = tokenizer.plain_text_backend()
        self.special_ids = tokenizer.cls_token_id, tokenizer.sep_token_id
        self._cls, self._sep = (np.array([token]) for token in self.special_ids)
        self.width = config.hidden_size
        self.max_length = self.settings.max_length or trained_tokens(config, tokenizer)
        room = self.max_length - 2
        self.stride = room // 2 if self.settings.stride is None else self.settings.stride
        if self.settings.stride is not None and self.stride >= room:
            raise UserError(f"--stride {self.stride}: expected less than the {room} tokens of a window's text")
        self.max_tokens_per_batch = tokens_per_batch(self.settings, self.model.device)
        self.tokens = 0

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Number of tokens of each text, special tokens included."""
        return [len(ids) + 2 for ids in self.encode(texts)]

    def texts(
        self, texts: Sequence[str], pooling: str = "mean", progress: Callable[[int], object] | None = None
    ) -> np.ndarray:
        """Computes one vector for each text.

        Args:
            pooling: `mean` over all tokens of a text, [CLS] and [SEP] included, as in sentence-transformers; `cls`,
                the vector of [CLS]; or `pooler`, the trained pooler output. `cls` and `pooler` of a text in several
                windows are averaged.
            progress: called after each batch with the number of texts that began in it.

        Returns:
            (texts, H) float32, in the order of `texts`.

        Raises:
            UserError: a text is too long, or the checkpoint has no pooler.
        """
        return self.vectors(self.encode(texts), pooling, progress)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each text, without special tokens."""
        encodings = self.backend.encode_batch_fast(text_list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]

    def vectors(
        self, ids: Sequence[np.ndarray], pooling: str = "mean", progress: Callable[[int], object] | None = None
    ) -> np.ndarray:
        """As `texts`, for the token ids of each text, without special tokens."""
        if pooling not in ("mean", "cls", "pooler"):
            raise UserError(f"pooling: expected mean, cls or pooler, found {pooling!r}")
        if pooling == "pooler" and self.model.pooler is None:
            raise UserError(f"{self.settings.model} has no trained pooler; use mean or cls")
        if pooling == "pooler" and self.settings.layers != [-1]:
            raise UserError("layers have no effect on the output of the pooler; leave them out")
        sequences = []
        for text, of_text in enumerate(ids):
            windows = self._windows(text, of_text, np.full(len(of_text), text))
            if pooling == "mean":
                windows[0].rows[0] = windows[-1].rows[-1] = text
            else:
                for window in windows:
                    window.rows[0], window.rows[1:] = text, _NO_ROW
            sequences += windows
        return self._pool(sequences, len(ids), pooling == "pooler", progress)

    def words(self, texts: Sequence[str], progress: Callable[[int], object] | None = None) -> list[Words]:
        """Computes one vector for each word of each text: the mean over its tokens, in the context of the text.

        Args:
            progress: called after each batch with the number of texts that began in it.

        Returns:
            The words of each text, in the order of `texts`.

        Raises:
            UserError: a text is too long.
        """
        sequences, spans, bounds = [], [], [0]
        for text, encoding in enumerate(self.backend.encode_batch(text_list(texts), add_special_tokens=False)):
            _, first, word = np.unique(np.array(encoding.word_ids, dtype=np.int64), True, True)
            ends = np.append(first[1:], len(word)) - 1
            offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
            spans.append(np.stack([offsets[first, 0], offsets[ends[: len(first)], 1]], axis=1))
            sequences += self._windows(text, np.array(encoding.ids, dtype=np.int64), word + bounds[-1])
            bounds.append(bounds[-1] + len(first))
        vectors = self._pool(sequences, bounds[-1], False, progress)
        return [
            Words([text[start:end] for start, end in span.tolist()], span, vectors[begin:end])
            for text, span, begin, end in zip(texts, spans, bounds, bounds[1:], strict=False)
        ]

    def _windows(self, text: int, ids: np.ndarray, rows: np.ndarray) -> list[_Sequence]:
        """Windows over the tokens `ids` of a text; special tokens contribute to no row yet."""
        size = self.max_length - 2
        if len(ids) > size and self.settings.long_texts == "refuse":
            raise UserError(
                f"text {text}: {len(ids) + 2} tokens, more than {self.max_length}; set long_texts='window' "
                "(--long-texts window) or split the text"
            )
        sequences = []
        for start, end, kept_start, kept_end in cut_windows(len(ids), size, self.stride):
            of = np.full(end - start + 2, _NO_ROW)
            of[1 + kept_start - start : 1 + kept_end - start] = rows[kept_start:kept_end]
            sequences.append(_Sequence(np.concatenate([self._cls, ids[start:end], self._sep]), of, start == 0))
        return sequences

    @torch.inference_mode()
    def _pool(
        self, sequences: list[_Sequence], count: int, pooler: bool, progress: Callable[[int], object] | None
    ) -> np.ndarray:
        """(count, H) float32: the mean over the tokens that contribute to each row."""
        device = self.model.device
        sums, counts = torch.zeros(count, self.width, device=device), torch.zeros(count, 1, device=device)
        for batch in batches_by_length(sequences, lambda sequence: len(sequence.ids), self.max_tokens_per_batch):
            vectors, rows = self._encode(batch, pooler)
            sums.index_add_(0, rows, vectors)
            counts.index_add_(0, rows, torch.ones_like(vectors[:, :1]))
            if progress:
                progress(sum(sequence.is_first for sequence in batch))
        means = sums / counts
        if not means.isfinite().all():
            raise UserError(
                f"{self.settings.model} gives vectors with NaN or infinite values; its weights are damaged"
            )
        return (torch.nn.functional.normalize(means) if self.settings.normalize else means).cpu().numpy()

    def _encode(self, batch: list[_Sequence], pooler: bool) -> tuple[Tensor, Tensor]:
        """(K, H) float32 hidden states of the tokens that contribute to a row, or pooler outputs; (K,) their rows."""
        inputs = packed_inputs([sequence.ids for sequence in batch], self.model.device)
        self.tokens += inputs["input_ids"].numel()
        last = all(layer in (-1, self.model.config.num_hidden_layers) for layer in self.settings.layers)
        output = self.model(**inputs, output_hidden_states=False if last else self.settings.layers)
        rows = np.concatenate([sequence.rows for sequence in batch])
        kept = np.flatnonzero(rows != _NO_ROW)
        rows = torch.from_numpy(rows[kept]).to(self.model.device)
        if pooler:
            return output.pooler_output.float(), rows
        states = [output.last_hidden_state] if last else [output.hidden_states[i] for i in self.settings.layers]
        if len(kept) < output.last_hidden_state.shape[1]:
            indices = torch.from_numpy(kept).to(self.model.device)
            states = [state[:, indices] for state in states]
        means = states[0] if len(states) == 1 else torch.stack([state.float() for state in states]).mean(0)
        return means[0].float(), rows


def _load(settings: EncodingSettings) -> tuple[MyBertModel, MyBertTokenizer]:
    """Loads the encoder in evaluation mode; its `pooler` is None if the checkpoint has no weights for it."""
    name = settings.model
    model, tokenizer, missing = load_with_tokenizer(MyBertModel, name, settings.dtype)
    refuse_missing(name, missing, new=("pooler.",))
    if missing:
        model.pooler = None
    check_max_length(settings.max_length, model.config, name)
    layers = model.config.num_hidden_layers
    for layer in settings.layers:
        if not -layers - 1 <= layer <= layers:
            raise UserError(f"--layers: expected {-layers - 1} to {layers}, found {layer}")
    device = choose_device(settings.device, model, settings.dtype)
    return model.eval().to(device).optimize_for_inference(), tokenizer
