"""Loading a WordPiece tokenizer, and its form for plain text."""

import functools
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from mybert.common.error_messages import cause
from mybert.common.errors import UserError
from mybert.common.hub import check_repository
from tokenization import MyBertTokenizer


class PlainTokenizer(NamedTuple):
    """A tokenizer without special tokens, truncation and padding: `[SEP]` in a text is a bracket, a word, a bracket.

    Attributes:
        backend: a tokenizer of the tokenizers library.
        cls_id, sep_id, unk_id: ids of the special tokens.
    """

    backend: Tokenizer
    cls_id: int
    sep_id: int
    unk_id: int


def load_wordpiece(name: str, flag: str = "--tokenizer") -> MyBertTokenizer:
    """Loads the tokenizer of a folder or Hub name, MyBERT's or a stock BERT's. No code of the folder is run.

    Args:
        flag: the option that named it, for the error message.

    Raises:
        UserError: it cannot be loaded, is not a WordPiece tokenizer, or lacks a special token of BERT.
    """
    if not Path(name).exists():
        check_repository(name)
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
