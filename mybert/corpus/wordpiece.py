"""Any WordPiece tokenizer, as the corpus needs it: plain ids of plain text."""

from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from mybert.common.errors import UserError

_NEEDED = ("cls_token", "sep_token", "mask_token", "pad_token", "unk_token")


class PlainTokenizer(NamedTuple):
    """A tokenizer that adds, truncates and pads nothing, to which `[SEP]` in a text is a bracket, a word, a bracket.

    Attributes:
        backend: of the tokenizers library.
        cls_id, sep_id, unk_id: ids of the special tokens.
    """

    backend: Tokenizer
    cls_id: int
    sep_id: int
    unk_id: int


def load_wordpiece(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or Hub name, by transformers' own code alone.

    Raises:
        UserError: it cannot be loaded, is not WordPiece, or lacks a special token that BERT needs.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # OSError, ValueError, KeyError, JSON errors and the Hub's own kinds, by cause
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"--tokenizer {name} cannot be loaded ({reason}); make one by `mybert tokenizer`") from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not isinstance(backend.model, WordPiece):
        kind = type(tokenizer if backend is None else backend.model).__name__
        raise UserError(f"--tokenizer {name} is {kind}, not WordPiece; make one by `mybert tokenizer`")
    missing = [role for role in _NEEDED if backend.token_to_id(str(getattr(tokenizer, role))) is None]
    if missing:
        raise UserError(f"--tokenizer {name} has no {', '.join(missing)}; make one by `mybert tokenizer`")
    return tokenizer


def plain_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PlainTokenizer:
    """`tokenizer` without truncation, padding and recognition of special tokens; `tokenizer` itself is not changed."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    return PlainTokenizer(backend, tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.unk_token_id)


def load_plain_tokenizer(folder: str | Path) -> PlainTokenizer:
    return plain_tokenizer(load_wordpiece(str(folder)))
