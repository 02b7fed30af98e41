"""A WordPiece tokenizer as the corpus needs it: plain ids of plain text."""

from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from mybert.common.error_messages import cause
from mybert.common.errors import UserError
from mybert.common.hub import check_repository
from tokenization import MyBertTokenizer


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


def load_wordpiece(name: str, flag: str = "--tokenizer") -> MyBertTokenizer:
    """The tokenizer of a folder or Hub name, ours or a stock BERT's; no code of the folder is run.

    Args:
        flag: what it was named by.

    Raises:
        UserError: it cannot be loaded, is not BERT's WordPiece, or lacks a special token that BERT needs.
    """
    if not Path(name).exists():
        check_repository(name)
    try:
        return MyBertTokenizer.from_pretrained(name)
    except Exception as error:  # OSError, ValueError, KeyError, JSON errors and the Hub's own kinds, by cause
        reason = cause(error)
        if not Path(name).is_dir():
            reason = f"there is no such folder, and as a Hub name: {reason}"
        raise UserError(f"{flag} {name} cannot be used ({reason}); make one by `mybert tokenizer`") from error


def plain_tokenizer(tokenizer: MyBertTokenizer) -> PlainTokenizer:
    """What building needs of `tokenizer`, which itself is not changed."""
    return PlainTokenizer(
        tokenizer.plain_text_backend(), tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.unk_token_id
    )


def load_plain_tokenizer(folder: str | Path) -> PlainTokenizer:
    return plain_tokenizer(load_wordpiece(str(folder)))
