"""Words of raw text, split like the words of the training rows.

BERT splits at spaces, around punctuation and around Chinese characters. `WordSplitter` begins with these pieces and
joins those that are one word in the training rows: U.S., O'Neill, 1996-08-30. Training stores the rules in the
configuration (`word_rules`); prediction and the pipeline read them.
"""

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import PreTrainedTokenizerBase

SPACE, END = " ", "\n"  # what may stand beside a piece: a space, or the end of the text
LETTERS, LETTER, DIGIT, _REMOVED = "a", "x", "0", "\0"  # kinds of characters; a punctuation mark is its own
_ALONE, _INSIDE = "c", "i"  # a Chinese character, or the first one of an added token; the others of it
APOSTROPHE = "'"
_CHUNK = re.compile(f"{_ALONE}{_INSIDE}*|[^{SPACE}{_ALONE}]+")
_PIECE = re.compile(f"[{LETTERS}{DIGIT}{_REMOVED}]+|[^{LETTERS}{DIGIT}{_REMOVED}]")
_NORMALIZER = BertNormalizer(lowercase=False, strip_accents=False)
Place = tuple[int, int]  # start and end in the text


class _Kinds(dict[int, str]):
    """The kind of each character for `str.translate`, as BERT reads it; filled when a character occurs."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        cleaned = _NORMALIZER.normalize_str(letter)
        if cleaned.strip(SPACE) != cleaned:
            kind = _ALONE if cleaned.strip(SPACE) else SPACE
        elif not cleaned:
            kind = _REMOVED
        elif len(BertPreTokenizer().pre_tokenize_str(f"a{letter}a")) > 1:
            kind = APOSTROPHE if letter == "\u2019" else letter
        else:
            kind = DIGIT if letter.isdecimal() else LETTERS
        self[code] = kind
        return kind


_KINDS = _Kinds()


class AddedTokens:
    """Finds the tokens that a user added to a tokenizer, such as [E1] or <tag>, in texts."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        control = {getattr(tokenizer, f"{name}_token") for name in ("pad", "unk", "cls", "sep", "mask")}
        added = tokenizer.added_tokens_decoder.items()
        self._ids = {number for number, token in added if token.content not in control}
        self._backend = copy.deepcopy(tokenizer.backend_tokenizer)
        self._backend.no_truncation()
        self._backend.no_padding()

    def __call__(self, text: str) -> Iterator[Place]:
        """Start and end of each added token of two or more characters."""
        encoding = self._backend.encode(text, add_special_tokens=False) if self._ids else None
        if encoding is None or self._ids.isdisjoint(encoding.ids):
            return
        tokens = Counter(encoding.word_ids)  # an id of the vocabulary may also be a part of a word
        for number, word, (start, end) in zip(encoding.ids, encoding.word_ids, encoding.offsets, strict=True):
            token = text[start:end].strip()
            if number in self._ids and tokens[word] == 1 and len(token) > 1:
                start = text.index(token, start)
                yield start, start + len(token)


class Chunk(NamedTuple):
    """Pieces with no space between: the place of each, and the kinds of its first and last character."""

    places: list[Place]
    kinds: list[tuple[str, str]]


def chunks(text: str, find_added: Callable[[str], Iterator[Place]] | None = None) -> Iterator[Chunk]:
    """BERT's pieces of a text. An added token is one piece."""
    kinds = text.translate(_KINDS)
    for start, end in find_added(text) if find_added else ():
        ends, inside = (kinds[start], kinds[end - 1]), end - start - 2
        is_word = {*ends} <= {LETTERS, DIGIT}
        token = ends[0] + LETTERS * inside + ends[1] if is_word else _ALONE + _INSIDE * (inside + 1)
        kinds = kinds[:start] + token + kinds[end:]
    for chunk in _CHUNK.finditer(kinds):
        if chunk[0][0] == _ALONE:
            yield Chunk([chunk.span()], [(SPACE, SPACE)])
            continue
        places: list[Place] = []
        ends_of: list[tuple[str, str]] = []
        for match in _PIECE.finditer(kinds, *chunk.span()):
            if run := match[0].strip(_REMOVED):
                start = match.start() + match[0].index(run)
                inside = len(ends_of) > 1 and ends_of[-1] != (".", ".") and not is_mark(ends_of[-2][1])
                is_initial = run == LETTERS and not inside  # as in U.S., not in AT&T
                places.append((start, start + len(run)))
                ends_of.append((LETTER, LETTER) if is_initial else (run[0], run[-1]))
        if places:
            yield Chunk(places, ends_of)


def is_mark(kind: str) -> bool:
    """Whether a piece is a punctuation mark, by its kind."""
    return kind not in (LETTERS, LETTER, DIGIT, SPACE, END)


def folded(word: str) -> str:
    """A part of a word, such as L’ or N'T, as the rules store it."""
    return word.lower().replace("\u2019", APOSTROPHE)


class WordSplitter:
    """Splits texts into words.

    Args:
        rules: `left` and `right` say whether a punctuation mark stays with the piece before and after it. Their keys
            are the kinds of the character before, of the mark, and of the character after: `a-a`, `0,0`, `x. `;
            `others` says it of marks without a rule. `words` are always kept: abbreviations (Mr.), and parts of words
            that are words (`'s`, `n't`, `l'`, `-il`). `unspaced`: texts have no spaces between such words. None:
            BERT's pieces are the words.
        find_added: the places of added tokens, which are never split.
    """

    def __init__(
        self, rules: Mapping[str, Any] | None = None, find_added: Callable[[str], Iterator[Place]] | None = None
    ):
        rules = rules or {}
        try:
            self._left, self._right = (dict(rules.get(name, {})) for name in ("left", "right"))
            self._words = frozenset(map(str, rules.get("words", ())))
        except (AttributeError, TypeError, ValueError) as error:
            shown = str(rules)[:60]
            raise ValueError(f"word_rules must be an object with left, right and words, found {shown}") from error
        self._others, self.unspaced = bool(rules.get("others")), bool(rules.get("unspaced"))
        self._find_added = find_added
        self._has_rules = bool(self._left or self._right or self._others or self._words)
        self._longest = max(map(len, self._words), default=0)

    def __call__(self, text: str) -> list[Place]:
        """Start and end of each word, in characters."""
        pieces, words = list(chunks(text, self._find_added)), []
        for number, chunk in enumerate(pieces):
            if len(chunk.places) == 1 or not self._has_rules:
                words += chunk.places
            else:
                words += self._joined(text, chunk, END if number == len(pieces) - 1 else SPACE)
        return words

    def stays(self, side: str, before: str, mark: str, after: str) -> bool:
        """Whether a mark stays with the piece on one side, `left` or `right`, by the most special rule."""
        if side == "left":
            keys = (a + mark + b for b in _contexts(after) for a in _wider(before))
        else:
            keys = (a + mark + b for a in _contexts(before) for b in _wider(after))
        rules = self._left if side == "left" else self._right
        return next((rules[key] for key in keys if key in rules), self._others)

    def _joined(self, text: str, chunk: Chunk, after: str) -> Iterator[Place]:
        places, kinds = self._without_contractions(text, chunk)
        joined = [self._is_joined(kinds, number, after) for number in range(len(places) - 1)]
        number = 0
        while number < len(joined):
            last = self._known(text, places, number)
            if number < last:
                joined[number:last] = [True] * (last - number)
                if number and kinds[number][0] in (APOSTROPHE, "-"):
                    joined[number - 1] = False
                if last < len(joined) and kinds[last][1] == APOSTROPHE:
                    joined[last] = False
            number = last + 1
        start = places[0][0]
        for (_, end), (following, _), stays in zip(places, places[1:], joined, strict=False):
            if not stays:
                yield start, end
                start = following
        yield start, places[-1][1]

    def _is_joined(self, kinds: Sequence[tuple[str, str]], number: int, after: str) -> bool:
        """Whether the rules join a piece with the next one; if both are marks, both must stay."""
        around = [(SPACE, SPACE), *kinds, (after, after)]
        (_, before), (_, left), (right, _), (behind, _) = around[number : number + 4]
        if not is_mark(left):
            return is_mark(right) and self.stays("left", left, right, behind)
        stays = self.stays("right", before, left, right)
        return stays and (not is_mark(right) or self.stays("left", left, right, behind))

    def _known(self, text: str, places: Sequence[Place], first: int) -> int:
        """The last piece of the longest known word that begins with a piece; the piece itself if there is none.

        A part with a hyphen ends its word: -le is none in Vaux-le-Vicomte.
        """
        start, last = places[first][0], first
        for number in range(first + 1, len(places)):
            end = places[number][1]
            if end - start > self._longest:
                break
            if self._is_known(text[start:end]) and (text[start] != "-" or text[end : end + 1] != "-"):
                last = number
        return last

    def _is_known(self, word: str) -> bool:
        return word in self._words or folded(word) in self._words

    def _without_contractions(self, text: str, chunk: Chunk) -> tuple[list[Place], list[tuple[str, str]]]:
        """The pieces, of which one ends before a known word such as n't that begins with its last letter."""
        places, kinds = list(chunk.places), list(chunk.kinds)
        for number in range(len(places) - 3, -1, -1):
            (start, end), (_, after) = places[number], places[number + 2]
            is_apostrophe = kinds[number + 1] == (APOSTROPHE, APOSTROPHE) and end - start > 1
            if is_apostrophe and self._is_known(text[end - 1 : after]) and not self._is_known(text[start:after]):
                places[number : number + 1] = [(start, end - 1), (end - 1, end)]
                kinds[number : number + 1] = [kinds[number], (LETTERS, LETTERS)]
        return places, kinds


def _wider(kind: str) -> tuple[str, ...]:
    """A kind and the kinds of which it is one, for rules that were not seen in training."""
    return (kind, LETTERS) if kind == LETTER else (kind,)


def _contexts(kind: str) -> tuple[str, ...]:
    """As `_wider`, for what is beyond the mark."""
    return (*_wider(kind), SPACE)


__all__ = ["AddedTokens", "WordSplitter"]
