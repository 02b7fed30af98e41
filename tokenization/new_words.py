"""Choose words and `##` pieces to add to a vocabulary: those that save the most tokens in a text."""

import heapq
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from .pair_merging import PREFIX
from .vocabulary_change import spell
from .word_counting import split_at_spaces
from .wordpiece_training import MAX_WORD_CHARACTERS

MIN_DOCUMENTS = 3
"""Documents that must hold a new word."""
_MAX_CHARACTERS = 40
_REPEATED = re.compile(r"(.)\1\1")
_UNKNOWN = (None, None)  # an unknown word counts as two tokens
_ROUND = 2  # a round ends when the saving of the best piece is below 1 / _ROUND of that of its first


@dataclass(slots=True)
class WordUse:
    """How often a text uses a word.

    Attributes:
        count: occurrences.
        documents: numbers of the first `MIN_DOCUMENTS` documents that contain it.
    """

    count: int = 0
    documents: set[int] = field(default_factory=set)

    def add(self, count: int, documents: Iterable[int]) -> None:
        self.count += count
        for document in documents:
            if len(self.documents) < MIN_DOCUMENTS:
                self.documents.add(document)


@dataclass(frozen=True)
class NewWord:
    """
    Attributes:
        piece: a word, the beginning of words, or a `##` piece.
        pieces: its tokens in the old vocabulary, or [UNK].
        saved: number of tokens that the piece saves, given the old vocabulary and the pieces chosen before it; [UNK]
            counts as two tokens. The sum over all new pieces is the total saving.
        words: the most frequent words of the text with this piece.
    """

    piece: str
    pieces: list[str]
    saved: int
    words: list[str]


def count_uses(texts: Iterable[str], backend: Tokenizer) -> dict[str, WordUse]:
    """Counts the words of documents after the normalisation and splitting of `backend`."""
    chunks: dict[str, WordUse] = defaultdict(WordUse)
    for number, text in enumerate(texts):
        for chunk, count in Counter(split_at_spaces(text)).items():
            chunks[chunk].add(count, (number,))
    words: dict[str, WordUse] = defaultdict(WordUse)
    for chunk, use in chunks.items():
        for word, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(chunk)):
            words[word].add(use.count, sorted(use.documents))
    return dict(words)


def choose_new_words(
    uses: Mapping[str, WordUse],
    vocabulary: Sequence[str],
    limit: int,
    *,
    least_saving: int = MIN_DOCUMENTS,
    unk_token: str = "[UNK]",
) -> list[NewWord]:
    """Chooses pieces greedily by the number of tokens that they save in the text.

    Candidates are consecutive pieces of a word, joined: a whole word, a beginning, or a `##` piece. A candidate
    consists of letters, has at most two equal letters in a row, and occurs in at least `MIN_DOCUMENTS` documents.
    Words that occur once are ignored. An unknown word counts as two pieces.

    Pieces are chosen in rounds. Within a round, each word counts for one new piece only. Then all words are tokenised
    again with the new vocabulary, and pieces that are no longer used are dropped.

    Args:
        uses: the words of the text, from `count_uses`.
        vocabulary: the old pieces.
        limit: maximum number of new pieces.
        least_saving: minimum number of tokens that a piece must save.

    Returns:
        The new pieces, sorted by saving.
    """
    words = {word: use for word, use in uses.items() if use.count > 1}
    old = list(vocabulary)
    chosen: dict[str, int] = {}
    rejected: set[str] = set()
    while len(chosen) < limit:
        spelt = _spell_all(words, [*old, *chosen], unk_token)
        used = {piece for pieces in spelt.values() for piece in pieces}
        for piece in [piece for piece in chosen if piece not in used]:
            rejected.add(piece)
            del chosen[piece]
        picked = _pick(_savings(spelt, words, unk_token, rejected), words, limit - len(chosen), least_saving)
        if not picked:
            break
        chosen |= picked
    return _described(chosen, old, uses, unk_token)


def count_tokens(uses: Mapping[str, WordUse], vocabulary: Sequence[str], unk_token: str = "[UNK]") -> int:
    """Number of tokens of the text with a vocabulary."""
    spelt = _spell_all(uses, vocabulary, unk_token)
    return sum(uses[word].count * len(pieces) for word, pieces in spelt.items())


def _spell_all(words: Iterable[str], vocabulary: Sequence[str], unk_token: str) -> dict[str, list[str]]:
    model = WordPiece({piece: index for index, piece in enumerate(vocabulary)}, unk_token=unk_token)
    return {word: [token.value for token in model.tokenize(word)] for word in words}


def _savings(
    spelt: Mapping[str, list[str]], words: Mapping[str, WordUse], unk_token: str, rejected: Collection[str]
) -> dict[str, list[tuple[str, int]]]:
    """Candidate → the words that contain it, each with the tokens that it saves there."""
    candidates: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for word, pieces in spelt.items():
        if pieces == [unk_token]:
            candidates[word].append((word, words[word].count))
        for start in range(len(pieces) - 1):
            piece = pieces[start]
            for end in range(start + 1, len(pieces)):
                piece += pieces[end].removeprefix(PREFIX)
                candidates[piece].append((word, words[word].count * (end - start)))
    return {p: savings for p, savings in candidates.items() if p not in rejected and _is_word(p)}


def _is_word(piece: str) -> bool:
    text = piece.removeprefix(PREFIX)
    kinds = [unicodedata.category(character)[0] for character in text]
    letters = set(kinds) <= {"L", "M"} and (piece != text or kinds[0] == "L")  # a mark cannot start a word
    return letters and len(text) <= _MAX_CHARACTERS and not _REPEATED.search(text)


def _pick(
    candidates: Mapping[str, list[tuple[str, int]]], words: Mapping[str, WordUse], room: int, least: int
) -> dict[str, int]:
    """Piece → tokens saved, for the best pieces of a round."""
    heap = [(-sum(saved for _, saved in savings), piece) for piece, savings in candidates.items()]
    heapq.heapify(heap)
    picked: dict[str, int] = {}
    claimed: set[str] = set()
    first = 0
    while heap and len(picked) < room:
        before, piece = heapq.heappop(heap)
        free = [(word, saved) for word, saved in candidates[piece] if word not in claimed]
        saving = sum(saved for _, saved in free)
        if saving < max(least, first / _ROUND):
            if -before < max(least, first / _ROUND):
                break
            continue
        if saving < -before:
            heapq.heappush(heap, (-saving, piece))
        elif len(set().union(*(words[word].documents for word, _ in free))) >= MIN_DOCUMENTS:
            picked[piece] = saving
            claimed.update(word for word, _ in free)
            first = first or saving
    return picked


def _described(
    chosen: Mapping[str, int], old: Sequence[str], uses: Mapping[str, WordUse], unk_token: str
) -> list[NewWord]:
    ordered = sorted(chosen, key=lambda piece: (-chosen[piece], piece))
    new_words = describe_words(ordered, uses, old, unk_token)
    while unused := [word for word in new_words if not word.words]:  # their savings then count for the others
        ordered = [piece for piece in ordered if piece not in {word.piece for word in unused}]
        new_words = describe_words(ordered, uses, old, unk_token)
    return sorted(new_words, key=lambda word: (-word.saved, word.piece))


def describe_words(
    new: Sequence[str], uses: Mapping[str, WordUse], vocabulary: Sequence[str], unk_token: str = "[UNK]"
) -> list[NewWord]:
    """Describes the use of new pieces that are added to a vocabulary one after the other."""
    after = _spell_all(uses, [*vocabulary, *new], unk_token)
    added, old = {*new}, {*vocabulary}
    # A word with other tokens than before has a new piece, or has become [UNK]: the first change is to a longer match.
    changed = {word: uses[word] for word, pieces in after.items() if pieces == [unk_token] or added & {*pieces}}
    examples: dict[str, list[str]] = defaultdict(list)
    for word in sorted(changed, key=lambda word: (-uses[word].count, word)):
        for piece in after[word]:
            if piece in added and len(examples[piece]) < 3:
                examples[piece].append(word)
    saved = _measured(new, changed, old)
    return [NewWord(piece, spell(piece, old) or [unk_token], saved[piece], examples[piece]) for piece in new]


def _measured(new: Sequence[str], uses: Mapping[str, WordUse], old: set[str]) -> dict[str, int]:
    """Tokens saved by each piece; only words that contain it are tokenised again."""
    order = {piece: number for number, piece in enumerate(new)}
    saved = dict.fromkeys(new, 0)
    for word, use in uses.items():
        if len(word) > MAX_WORD_CHARACTERS:  # always [UNK]
            continue
        parts = {(PREFIX if i else "") + word[i:j] for i in range(len(word)) for j in range(i + 1, len(word) + 1)}
        known, added = parts & old, sorted(parts & order.keys(), key=order.__getitem__)
        for piece in added:
            before = len(spell(word, known) or _UNKNOWN)
            known.add(piece)
            saved[piece] += use.count * (before - len(spell(word, known) or _UNKNOWN))
    return saved
