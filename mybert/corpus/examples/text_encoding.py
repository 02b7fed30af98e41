"""Load a WordPiece tokenizer, and encode plain text with it."""

import functools
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from mybert.common.errors import UserError, cause
from tokenization import MyBertTokenizer

_MOST_STRINGS = 300_000  # remembered at the start of a call, about 50 MB


class PlainTokenizer:
    """A tokenizer without special tokens, truncation and padding: it reads `[SEP]` as a bracket, a word, a bracket.

    It encodes each distinct string between spaces once and remembers its ids. This is exact: BERT's normalisation and
    splitting never reach across a space.
    """

    def __init__(self, backend: Tokenizer, cls_id: int, sep_id: int, unk_id: int):
        self.backend, self.cls_id, self.sep_id, self.unk_id = backend, cls_id, sep_id, unk_id
        is_bert = isinstance(backend.normalizer, BertNormalizer) and isinstance(
            backend.pre_tokenizer, BertPreTokenizer
        )
        added = backend.get_added_tokens_decoder().values()
        self._is_separable = is_bert and not any(map(str.isspace, "".join(token.content for token in added)))
        self._forget()

    def _forget(self) -> None:
        self._numbers = _Numbers()
        self._ids, self._lengths = np.empty(0, np.int32), np.empty(0, np.int64)

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """
        Returns:
            ids: (tokens,) int32, those of `backend.encode` for each text, one text after the other.
            lengths: (texts,) int64, the number of tokens of each text.
        """
        if len(self._numbers) > _MOST_STRINGS:
            self._forget()
        strings = [text.split(" ") for text in texts] if self._is_separable else [[text] for text in texts]
        numbers = np.fromiter(map(self._numbers.__getitem__, chain.from_iterable(strings)), np.int64)
        self._encode_new()
        lengths = self._lengths[numbers]
        ids = self._ids[ranges((self._lengths.cumsum() - self._lengths)[numbers], lengths)]
        firsts = np.cumsum([0, *map(len, strings)])
        return ids, np.diff(np.concatenate([[0], lengths.cumsum()])[firsts])

    def _encode_new(self) -> None:
        token_ids = [one.ids for one in self.backend.encode_batch_fast(self._numbers.new, add_special_tokens=False)]
        self._numbers.new.clear()
        self._lengths = np.concatenate([self._lengths, np.fromiter(map(len, token_ids), np.int64)])
        self._ids = np.concatenate([self._ids, np.fromiter(chain.from_iterable(token_ids), np.int32)])


class _Numbers(dict[str, int]):
    """Numbers of strings in the order of their first use; `new` are those without ids."""

    def __init__(self) -> None:
        super().__init__()
        self.new: list[str] = []

    def __missing__(self, string: str) -> int:
        self.new.append(string)
        return self.setdefault(string, len(self))


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The concatenation of `arange(start, start + length)` for each start and length."""
    before = lengths.cumsum() - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def load_wordpiece(name: str, flag: str = "--tokenizer") -> MyBertTokenizer:
    """Loads the tokenizer of a folder or Hub name, MyBERT's or a stock BERT's. No code of the folder is run."""
    try:
        return MyBertTokenizer.from_pretrained(name)
    except Exception as error:  # OSError, ValueError, KeyError, and errors of the JSON and Hub libraries
        reason = cause(error)
        if not Path(name).is_dir():
            reason = f"there is no such folder, and as a Hub name: {reason}"
        raise UserError(f"{flag} {name} cannot be used ({reason}); make one by `mybert tokenizer`") from error


@functools.cache
def plain_tokenizer(folder: str) -> PlainTokenizer:
    """The tokenizer of `folder` for plain text; loaded once per process."""
    tokenizer = load_wordpiece(folder)
    return PlainTokenizer(
        tokenizer.plain_text_backend(), tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.unk_token_id
    )
