"""The Python call: `Embedder` gives vectors of texts, and of words in their context.

Shapes: `T` tokens of a packed batch, `N` its sequences, `H` hidden size, `R` vectors asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mybert.common.errors import UserError
from mybert.common.text_windows import cut_windows
from mybert.embedding.checkpoint import load_checkpoint, window_length
from mybert.embedding.settings import EncodingSettings

_NOWHERE = -1


class Words(NamedTuple):
    """The words of one text: runs of letters, digits and marks, single punctuation marks, single CJK ideographs.

    Attributes:
        words: as they stand in the text.
        spans: (words, 2) characters from where to where: `text[start:end]` is the word.
        vectors: (words, H) float32.
    """

    words: list[str]
    spans: np.ndarray
    vectors: np.ndarray


class _Sequence(NamedTuple):
    """What the model reads at once: a text or a window of it.

    Attributes:
        ids: (length,) token ids, special tokens included.
        rows: (length,) the vector that each token counts for, or -1.
        begins: whether a text begins here; other windows of it do not.
    """

    ids: np.ndarray
    rows: np.ndarray
    begins: bool


class Embedder:
    """A checkpoint that turns texts into vectors.

    Nothing in a text is a control token: `[MASK]` is a bracket, a word, a bracket.

    Args:
        settings: the checkpoint, and how it is used.

    Attributes:
        width: `H`, the length of every vector.
        max_length: tokens of a text or window at most, special tokens included.
        tokens: how many went through the model so far, special tokens included.

    Raises:
        UserError: the checkpoint cannot be used, or a setting does not fit it.

    Example:
        >>> embedder = Embedder(EncodingSettings("all-MiniLM-L6-v2", normalize=True))
        >>> embedder.texts(["I ate an apple.", "Apple sued."]).shape
        (2, 384)
        >>> fruit, firm = embedder.words(["I ate an apple.", "Apple sued."])
        >>> fruit.words[3], firm.words[0], float(fruit.vectors[3] @ firm.vectors[0])
        ('apple', 'Apple', 0.784)
    """

    def __init__(self, settings: EncodingSettings):
        self.settings = settings
        self.model, tokenizer = load_checkpoint(settings)
        self.backend = tokenizer.plain_text_backend()
        self.special_ids = tokenizer.cls_token_id, tokenizer.sep_token_id
        self.width = self.model.config.hidden_size
        self.max_length = window_length(settings, self.model, tokenizer)
        self.overlap = (self.max_length - 2) // 2 if settings.overlap is None else settings.overlap
        self.batch_tokens = settings.batch_tokens or (2048 if self.model.device.type == "cpu" else 16384)
        self.tokens = 0

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens included, before any is read in windows."""
        return [len(encoding) + 2 for encoding in self.backend.encode_batch_fast(texts, add_special_tokens=False)]

    def texts(
        self, texts: Sequence[str], pooling: str = "mean", progress: Callable[[int], object] | None = None
    ) -> np.ndarray:
        """One vector for each text.

        Args:
            pooling: `mean` over all tokens of a text, [CLS] and [SEP] among them, as sentence-transformers does it;
                `cls`: the hidden state of [CLS]; `pooler`: the trained layer on it. Of a text read in windows, `mean`
                takes each piece once, `cls` and `pooler` are averaged over its windows.
            progress: called after each batch with how many texts began in it.

        Returns:
            (texts, H) float32, in the order of `texts`.

        Raises:
            UserError: a text is too long, or the checkpoint has no pooler.
        """
        if pooling not in ("mean", "cls", "pooler"):
            raise UserError(f"pooling: expected mean, cls or pooler, found {pooling!r}")
        if pooling == "pooler" and self.model.pooler is None:
            raise UserError(f"{self.settings.checkpoint} has no trained pooler; take mean or cls")
        if pooling == "pooler" and self.settings.layers != [-1]:
            raise UserError("layers have no effect on the pooler, which is of the last layer; leave them out")
        sequences = []
        for text, encoding in enumerate(self.backend.encode_batch_fast(_listed(texts), add_special_tokens=False)):
            windows = self._cut(text, np.array(encoding.ids, dtype=np.int64), np.full(len(encoding), text))
            if pooling == "mean":
                windows[0].rows[0] = windows[-1].rows[-1] = text
            else:
                for window in windows:
                    window.rows[0], window.rows[1:] = text, _NOWHERE
            sequences += windows
        return self._pool(sequences, len(texts), pooling == "pooler", progress)

    def words(self, texts: Sequence[str], progress: Callable[[int], object] | None = None) -> list[Words]:
        """A vector for each word of each text: the mean over its pieces, in the context of the text.

        Args:
            progress: called after each batch with how many texts began in it.

        Returns:
            The words of each text, in the order of `texts`.

        Raises:
            UserError: a text is too long.
        """
        sequences, spans, bounds = [], [], [0]
        for text, encoding in enumerate(self.backend.encode_batch(_listed(texts), add_special_tokens=False)):
            _, first, word = np.unique(np.array(encoding.word_ids, dtype=np.int64), True, True)
            ends = np.append(first[1:], len(word)) - 1
            offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
            spans.append(np.stack([offsets[first, 0], offsets[ends[: len(first)], 1]], axis=1))
            sequences += self._cut(text, np.array(encoding.ids, dtype=np.int64), word + bounds[-1])
            bounds.append(bounds[-1] + len(first))
        vectors = self._pool(sequences, bounds[-1], False, progress)
        return [
            Words([text[start:end] for start, end in span.tolist()], span, vectors[begin:end])
            for text, span, begin, end in zip(texts, spans, bounds, bounds[1:], strict=False)
        ]

    def _cut(self, text: int, ids: np.ndarray, rows: np.ndarray) -> list[_Sequence]:
        """The pieces `ids` of a text, counting for `rows`, between special tokens that count for nothing yet."""
        size = self.max_length - 2
        if len(ids) > size and self.settings.long_texts == "refuse":
            raise UserError(
                f"text {text}: {len(ids) + 2} tokens, more than {self.max_length}; read long texts in windows by "
                "long_texts='window', or split them"
            )
        sequences = []
        for start, end, kept_start, kept_end in cut_windows(len(ids), size, self.overlap):
            cls, sep = self.special_ids
            of = np.full(end - start + 2, _NOWHERE)
            of[1 + kept_start - start : 1 + kept_end - start] = rows[kept_start:kept_end]
            sequences.append(_Sequence(np.concatenate([[cls], ids[start:end], [sep]]), of, start == 0))
        return sequences

    @torch.inference_mode()
    def _pool(
        self, sequences: list[_Sequence], count: int, pooler: bool, progress: Callable[[int], object] | None
    ) -> np.ndarray:
        """(count, H) the mean of what counts for each row."""
        device = self.model.device
        sums, counts = torch.zeros(count, self.width, device=device), torch.zeros(count, 1, device=device)
        for batch in self._batches(sequences):
            vectors, rows = self._encode(batch, pooler)
            sums.index_add_(0, rows, vectors)
            counts.index_add_(0, rows, torch.ones_like(vectors[:, :1]))
            if progress:
                progress(sum(sequence.begins for sequence in batch))
        means = sums / counts
        if not means.isfinite().all():
            raise UserError(f"{self.settings.checkpoint} gives vectors that are no numbers; its weights are damaged")
        return (torch.nn.functional.normalize(means) if self.settings.normalize else means).cpu().numpy()

    def _batches(self, sequences: list[_Sequence]) -> Iterator[list[_Sequence]]:
        """Sequences of like length, the longest first, so that too large a batch fails at once."""
        batch, total = [], 0
        for sequence in sorted(sequences, key=lambda sequence: -len(sequence.ids)):
            if batch and total + len(sequence.ids) > self.batch_tokens:
                yield batch
                batch, total = [], 0
            batch.append(sequence)
            total += len(sequence.ids)
        if batch:
            yield batch

    def _encode(self, batch: list[_Sequence], pooler: bool) -> tuple[Tensor, Tensor]:
        """
        Returns:
            (K, H) float32 hidden states that count, or of the pooler; (K,) the row that each counts for.
        """
        lengths = np.array([len(sequence.ids) for sequence in batch])
        ends = lengths.cumsum()
        self.tokens += int(ends[-1])
        positions = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
        packed = [np.concatenate([sequence.ids for sequence in batch]), positions]
        device = self.model.device
        input_ids, position_ids = (torch.from_numpy(x)[None].to(device) for x in packed)
        last = all(layer in (-1, self.model.config.num_hidden_layers) for layer in self.settings.layers)
        output = self.model(
            input_ids=input_ids,
            position_ids=position_ids,
            cu_seq_lens_q=torch.from_numpy(np.append(0, ends).astype(np.int32)).to(device),
            max_length_q=int(lengths.max()),
            output_hidden_states=False if last else self.settings.layers,
        )
        rows = np.concatenate([sequence.rows for sequence in batch])
        kept = np.flatnonzero(rows != _NOWHERE)
        rows = torch.from_numpy(rows[kept]).to(device)
        if pooler:
            return output.pooler_output.float(), rows
        states = [output.last_hidden_state] if last else [output.hidden_states[i] for i in self.settings.layers]
        indices = torch.from_numpy(kept).to(device)
        return torch.stack([state[0, indices].float() for state in states]).mean(0), rows


def _listed(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise UserError("texts: expected a list of texts, found one; put it in brackets")
    return list(texts)
