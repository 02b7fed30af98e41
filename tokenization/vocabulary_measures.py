"""Statistics of a vocabulary on a corpus."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from tokenizers import Tokenizer


def vocabulary_report(word_counts: Mapping[str, int], backend: Tokenizer, removed: int = 0) -> dict[str, int | float]:
    """Measure the vocabulary of `backend` on words counted by `count_words` with the same backend.

    Words are weighted by their counts.

    Args:
        removed: number of combining marks that the normalisation removed from the words, see `removed_marks`.

    Returns:
        `vocabulary size`: number of tokens, including `[unusedN]`.
        `words`, `distinct words`: numbers of words measured.
        `unknown rate`: share of words that become [UNK].
        `tokens per word`: mean; [UNK] counts as one.
        `words kept whole`: share of words that are a single token.
        `character coverage`: share of characters, removed marks included, that have a token for their place.
    """
    vocab, model = backend.get_vocab(), backend.model
    prefix, unk_token = model.continuing_subword_prefix, model.unk_token
    words = unknown = pieces = whole = characters = covered = 0
    for word, n in word_counts.items():
        tokens = model.tokenize(word)
        is_unknown = len(tokens) == 1 and tokens[0].value == unk_token
        words += n
        unknown += n * is_unknown
        pieces += n * len(tokens)
        whole += n * (len(tokens) == 1 and not is_unknown)
        characters += n * len(word)
        spelt = len(word)
        if is_unknown:
            spelt = (word[0] in vocab) + sum(prefix + character in vocab for character in word[1:])
        covered += n * spelt
    return {
        "vocabulary size": len(vocab),
        "words": words,
        "distinct words": len(word_counts),
        "unknown rate": unknown / max(words, 1),
        "tokens per word": pieces / max(words, 1),
        "words kept whole": whole / max(words, 1),
        "character coverage": covered / max(characters + removed, 1),
    }


class RemovedMarks(NamedTuple):
    """
    Attributes:
        removed: number of combining marks that stripping accents removes from a text.
        equal: pairs of words that become equal, those with the most frequent rarer word first; without such words,
            letters and what is left of them, frequent ones first.
    """

    removed: int
    equal: list[tuple[str, str]]

    def share(self, word_counts: Mapping[str, int]) -> float:
        """The share of the characters that are removed; `word_counts` as in `removed_marks`."""
        return self.removed / max(self.removed + sum(n * len(word) for word, n in word_counts.items()), 1)


def removed_marks(marked: Mapping[str, int], word_counts: Mapping[str, int], backend: Tokenizer) -> RemovedMarks:
    """The marks that the normalisation of `backend` removes.

    Args:
        marked: counts of the words with characters outside ASCII, normalised without stripping accents.
        word_counts: counts of all words, normalised by `backend`.
    """
    letters: Counter[str] = Counter()
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    for word, n in marked.items():
        with_marks = _letters_with_marks(word)
        for letter in with_marks:
            letters[letter] += n
        if with_marks:
            spellings[backend.normalizer.normalize_str(word)][unicodedata.normalize("NFC", word)] += n
    equal = []
    for stripped, counts in spellings.items():
        counts[stripped] = word_counts.get(stripped, 0) - counts.total()
        (first, _), (second, rarer) = [*_ordered(counts), ("", 0)][:2]
        if rarer > 0:
            equal.append((-rarer, first, second))
    count = sum(n * (len(unicodedata.normalize("NFD", letter)) - 1) for letter, n in letters.items())
    pairs = [(first, second) for _, first, second in sorted(equal)]
    bare = [(letter, unicodedata.normalize("NFD", letter)[0]) for letter, _ in _ordered(letters)]
    return RemovedMarks(count, pairs or bare)


def _ordered(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _letters_with_marks(word: str) -> list[str]:
    """Each letter of a word that has non-spacing marks, with them."""
    letters: list[str] = []
    for character in unicodedata.normalize("NFD", word):
        if unicodedata.category(character) != "Mn" or not letters:
            letters.append(character)
        else:
            letters[-1] += character
    return [unicodedata.normalize("NFC", letter) for letter in letters if len(letter) > 1]
