"""MyBertTokenizer: BERT's WordPiece tokenizer, saved as data files that transformers' own `BertTokenizer` reads."""

import copy
import json
import unicodedata
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from transformers import BatchEncoding, BertTokenizer

from .pair_merging import PREFIX

_CONTROL = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_OPTIONS = (
    *_CONTROL,
    *("do_lower_case", "tokenize_chinese_chars", "strip_accents"),
    *("padding_side", "truncation_side", "model_max_length"),
)

Vocabulary = str | PathLike[str] | Mapping[str, int] | Iterable[str]


class MyBertTokenizer(BertTokenizer):
    """BERT's tokenizer, with checks of the vocabulary and with both vocabulary files on disk.

    Ids, offsets and segment ids are those of transformers' `BertTokenizer`. In addition, this class takes
    `vocab_file=`, refuses vocabularies that would silently give wrong ids, saves `vocab.txt` beside `tokenizer.json`,
    and saves folders that `AutoTokenizer` reads as a `BertTokenizer` without remote code. Strings given to
    `add_tokens` that begin and end with a letter or digit match whole words only; pass an `AddedToken` for another
    rule.

    A literal `[MASK]` or `[SEP]` in a text is the special token, as fill-mask needs. For text in which it is ordinary
    text use `plain_text_backend`, or `split_special_tokens=True` in a call. Tokens that a user added, special ones
    too, are tokens in both.

    Args:
        vocab: path of a `vocab.txt` (one piece a line, in the order of the ids), or the pieces in that order, or a
            mapping from piece to id. Of a piece in several lines the last counts, and a blank line has no piece.
        do_lower_case: lower-case the text.
        unk_token, sep_token, pad_token, cls_token, mask_token: the special tokens; all must be in the vocabulary.
        tokenize_chinese_chars: split text around each CJK ideograph.
        strip_accents: remove combining marks; None: if lower-casing, as in the original BERT.
        vocab_file: older name of `vocab`.
        kwargs: other arguments of transformers' tokenizers, for example `model_max_length`.

    Raises:
        ValueError: no vocabulary, or one that is empty, not UTF-8, has large gaps, or lacks a special token.

    Example:
        >>> tokenizer = MyBertTokenizer("vocab.txt", do_lower_case=True)
        >>> tokenizer("A first sentence.", "And its continuation.")["token_type_ids"]
    """

    _plain: tuple[str, Tokenizer] | None = None  # the added tokens, and the backend in which they are ordinary

    def __init__(
        self,
        vocab: Vocabulary | None = None,
        do_lower_case: bool = True,
        unk_token: str = "[UNK]",
        sep_token: str = "[SEP]",
        pad_token: str = "[PAD]",
        cls_token: str = "[CLS]",
        mask_token: str = "[MASK]",
        tokenize_chinese_chars: bool = True,
        strip_accents: bool | None = None,
        vocab_file: str | PathLike[str] | None = None,
        **kwargs: Any,
    ) -> None:
        source = vocab_file if vocab is None else vocab
        if source is None and "tokenizer_object" in kwargs:  # from train_new_from_iterator
            source = kwargs["tokenizer_object"].get_vocab(with_added_tokens=False)
        if source is None:
            raise ValueError(
                "MyBertTokenizer needs a vocabulary: the path of a vocab.txt, or a list of pieces; load a folder with "
                "from_pretrained"
            )
        special_tokens = [str(t) for t in (pad_token, unk_token, cls_token, sep_token, mask_token)]
        super().__init__(
            vocab=_read_vocabulary(source, special_tokens, kwargs.get("added_tokens_decoder") or {}),
            do_lower_case=do_lower_case,
            unk_token=unk_token,
            sep_token=sep_token,
            pad_token=pad_token,
            cls_token=cls_token,
            mask_token=mask_token,
            tokenize_chinese_chars=tokenize_chinese_chars,
            strip_accents=strip_accents,
            **kwargs,
        )

    @classmethod
    def convert_to_native_format(cls, trust_remote_code: bool = False, **kwargs: Any) -> dict[str, Any]:
        """The arguments of `__init__`, read from the files of a folder.

        Options missing in `tokenizer_config.json` are read from the normaliser in `tokenizer.json`; transformers'
        `BertTokenizer` uses its defaults instead and lower-cases the text of a cased model.

        Raises:
            ValueError: there is no file, or `tokenizer.json` holds another tokenizer than BERT's WordPiece.
        """
        if not any(kwargs.get(name) for name in ("vocab", "vocab_file", "tokenizer_file", "tokenizer_object")):
            raise ValueError(f"{kwargs.get('name_or_path')} has neither tokenizer.json nor vocab.txt")
        path = kwargs.get("tokenizer_file")
        if path is not None and Path(path).is_file():
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            model, normalizer = content["model"], content.get("normalizer") or {}
            if "merges" in model or not isinstance(model.get("vocab"), dict):
                raise ValueError(f"{path} is a {model.get('type', 'non-WordPiece')} tokenizer; expected WordPiece")
            for name, found, expected in (  # what `BertTokenizer` replaces by BERT's, so that ids would differ
                ("normalizer", normalizer.get("type"), "BertNormalizer"),
                ("pre_tokenizer", (content.get("pre_tokenizer") or {}).get("type"), "BertPreTokenizer"),
                ("continuing_subword_prefix", model.get("continuing_subword_prefix", PREFIX), PREFIX),
                ("max_input_chars_per_word", model.get("max_input_chars_per_word", 100), 100),
                ("clean_text", normalizer.get("clean_text", True), True),
            ):
                if found != expected:
                    needed = f"MyBertTokenizer needs BERT's {expected!r}; load this folder with AutoTokenizer"
                    raise ValueError(f"{path}: {name} is {found!r}; {needed}")
            kwargs.setdefault("do_lower_case", normalizer["lowercase"])
            kwargs.setdefault("tokenize_chinese_chars", normalizer["handle_chinese_chars"])
            kwargs.setdefault("strip_accents", normalizer["strip_accents"])
        return super().convert_to_native_format(trust_remote_code=trust_remote_code, **kwargs)

    def difference_from(self, other: "MyBertTokenizer") -> str | None:
        """What gives texts other ids than `other` does: `vocabulary`, `normalisation`, or None."""
        if self.get_vocab() != other.get_vocab():
            return "vocabulary"
        return None if self.normalisation == other.normalisation else "normalisation"

    @property
    def normalisation(self) -> tuple[bool, bool, bool]:
        """Whether text is lower-cased, loses its accents, and is split around CJK ideographs."""
        return self.do_lower_case, self.strips_accents, self.tokenize_chinese_chars

    @property
    def strips_accents(self) -> bool:
        """Whether combining marks are removed."""
        return self.do_lower_case if self.strip_accents is None else self.strip_accents

    def plain_text_backend(self) -> Tokenizer:
        """A `tokenizers.Tokenizer` for text in which [PAD], [UNK], [CLS], [SEP] and [MASK] have no meaning.

        It has this tokenizer's normalisation, vocabulary and added tokens (special ones too), adds no special tokens,
        and gives the id of none of the five, except [UNK]. Encode many sentences with

            encodings = tokenizer.plain_text_backend().encode_batch_fast(sentences)
            ids = [encoding.ids for encoding in encodings]
        """
        content = json.loads(self.backend_tokenizer.to_str())
        control = self.control_tokens
        for token in content["added_tokens"]:
            token["special"] = token["content"] in control
        content |= {"truncation": None, "padding": None, "post_processor": None}
        backend = Tokenizer.from_str(json.dumps(content))
        backend.encode_special_tokens = True
        return backend

    @property
    def control_tokens(self) -> set[str]:
        """BERT's five special tokens; `all_special_tokens` has those that a user added, too."""
        return {getattr(self, name) for name in _CONTROL}

    def _encode_plus(self, *texts: Any, **options: Any) -> BatchEncoding:
        """As `BertTokenizer`, but `split_special_tokens` splits BERT's special tokens only, not those of a user."""
        if not options.get("split_special_tokens"):
            return super()._encode_plus(*texts, **options)
        control = self.control_tokens
        own = {i: token for i, token in self.added_tokens_decoder.items() if token.content not in control}
        if not any(token.special for token in own.values()):
            return super()._encode_plus(*texts, **options)
        if self._plain is None or self._plain[0] != repr(own):
            self._plain = repr(own), self.plain_text_backend()
        plain = copy.copy(self)
        plain._tokenizer = self._plain[1]
        plain._tokenizer.post_processor = self.backend_tokenizer.post_processor
        return BertTokenizer._encode_plus(plain, *texts, **options)

    def with_vocabulary(self, pieces: Iterable[str]) -> "MyBertTokenizer":
        """A tokenizer with another vocabulary and the same options, special tokens and words from `add_tokens`.

        Args:
            pieces: in the order of the ids, without the words from `add_tokens`.
        """
        tokenizer = MyBertTokenizer(pieces, **{name: getattr(self, name) for name in _OPTIONS})
        known = set(tokenizer.all_special_tokens)
        for _, token in sorted(self.added_tokens_decoder.items()):
            if token.content not in known:
                tokenizer.add_tokens([token], special_tokens=token.special)
        if self.extra_special_tokens:
            tokenizer.add_special_tokens({"extra_special_tokens": self.extra_special_tokens})
        return tokenizer

    def _add_tokens(self, new_tokens: list[str | AddedToken], special_tokens: bool = False) -> int:  # type: ignore[override]
        if not special_tokens:
            new_tokens = [AddedToken(x, single_word=_is_word(x)) if isinstance(x, str) else x for x in new_tokens]
        return super()._add_tokens(new_tokens, special_tokens=special_tokens)

    def save_vocabulary(  # type: ignore[override]  # the tuple may be empty
        self, save_directory: str | PathLike[str], filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Write `vocab.txt`, one piece a line in the order of the ids, and return its path in a tuple.

        With words from `add_tokens` the file would be inexact: they match whole words only, pieces of a `vocab.txt`
        match inside words too. None is then written, one of an earlier save is removed, and the tuple is empty.
        """
        path = Path(save_directory) / f"{filename_prefix + '-' if filename_prefix else ''}vocab.txt"
        vocab = self.backend_tokenizer.get_vocab(with_added_tokens=False)
        if len(vocab) != len(self):
            path.unlink(missing_ok=True)
            return ()
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{piece}\n" for piece in sorted(vocab, key=vocab.__getitem__))
        return (str(path),)

    def _save_pretrained(
        self,
        save_directory: str | PathLike[str],
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        # tokenizer.json would otherwise record the truncation and padding of the last call.
        self.backend_tokenizer.no_truncation()
        self.backend_tokenizer.no_padding()
        file_names = super()._save_pretrained(save_directory, file_names, legacy_format, filename_prefix)
        # A process without this class reads the folder as a BertTokenizer.
        config_file = Path(next(name for name in file_names if name.endswith("tokenizer_config.json")))
        config = json.loads(config_file.read_text(encoding="utf-8"))
        config["tokenizer_class"] = "BertTokenizer"
        config.pop("auto_map", None)
        config_file.write_text(
            json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n"
        )
        return file_names + self.save_vocabulary(save_directory, filename_prefix)


def _is_word(token: str) -> bool:
    """Whether a token begins and ends with a letter, a digit, or a mark of one."""
    return bool(token) and {unicodedata.category(character)[0] for character in (token[0], token[-1])} <= set("LMN")


def _read_vocabulary(
    source: Vocabulary, special_tokens: Iterable[str], added: Mapping[int, AddedToken]
) -> dict[str, int]:
    """A checked mapping from piece to id; see `MyBertTokenizer` for what `source` may be.

    Args:
        added: tokens of a saved tokenizer by id; a special token may be one of those after the vocabulary.
    """
    if isinstance(source, Mapping):
        name, pieces = "the vocabulary", _pieces_of_mapping(source)
    elif isinstance(source, (str, PathLike)):
        name, pieces = str(source), read_pieces(Path(source))
    else:
        name, pieces = "the vocabulary", _one_piece_per_id(list(source))
    if not pieces:
        raise ValueError(f"{name} is empty; expected one piece a line")
    vocab = {piece: index for index, piece in enumerate(pieces)}
    known = {*vocab, *(str(token) for number, token in added.items() if number >= len(vocab))}
    missing = [token for token in special_tokens if token not in known]
    if missing:
        raise ValueError(f"{name} (lines 1 to {len(vocab)}) lacks the special tokens {', '.join(missing)}; add them")
    return vocab


def _pieces_of_mapping(vocab: Mapping[str, int]) -> list[str]:
    pieces: list[str] = []
    for piece in sorted(vocab, key=vocab.__getitem__):
        gap = vocab[piece] - len(pieces)
        if not 0 <= gap <= len(vocab):  # a few ids are free where a vocab.txt has duplicate or blank lines
            raise ValueError(
                f"the vocabulary must use each id from 0 to {len(vocab) - 1} once; found {piece!r} with id "
                f"{vocab[piece]} where {len(pieces)} was expected"
            )
        pieces += [*[""] * gap, piece]
    return _one_piece_per_id(pieces)


def _one_piece_per_id(pieces: list[str]) -> list[str]:
    """The pieces in the order of their ids, with a name that no text contains for an id without a piece.

    An id has no piece if its line is blank or the piece stands again in a later line, which has the id that counts
    (as in `BertTokenizer`). All other ids stay as they are.
    """
    for index, piece in enumerate(pieces):
        if not isinstance(piece, str):
            raise ValueError(f"the vocabulary, line {index + 1}: expected a piece, found {piece!r}")
    ids = {piece: index for index, piece in enumerate(pieces)}
    return [
        piece if piece and ids[piece] == index else f"[unused line {index + 1}]" for index, piece in enumerate(pieces)
    ]


def read_pieces(path: Path) -> list[str]:
    """The piece of each id in a vocab.txt. Blank lines at the end are no lines.

    Raises:
        ValueError: the file does not exist, or a line is not UTF-8.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder; use MyBertTokenizer.from_pretrained, or pass the path of its vocab.txt")
    if not path.is_file():
        raise ValueError(f"vocabulary file {path} does not exist")
    content = path.read_bytes().removeprefix(BOM_UTF8)
    # Not str.splitlines: other characters at which it splits may be inside a piece, as in BertTokenizer.
    lines = [line.removesuffix(b"\r") for line in content.split(b"\n" if b"\n" in content else b"\r")]
    while lines and not lines[-1]:
        lines.pop()
    pieces = []
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8")
            pieces.append(text.rstrip() or text)  # as BertTokenizer: no text has a word with white space
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason}); save the file as UTF-8") from error
    return _one_piece_per_id(pieces)
