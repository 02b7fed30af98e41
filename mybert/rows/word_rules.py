"""Learn from training words how raw text must be split: the rules of `WordSplitter`."""

import itertools
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from modeling_mybert.words_mybert import (
    APOSTROPHE,
    DIGIT,
    END,
    LETTERS,
    SPACE,
    Place,
    WordSplitter,
    chunks,
    folded,
    is_mark,
)

_WORDS, _LEAST, _LONGEST = 300, 3, 12  # stored words, their least number, and their most characters
_LEAST_PARTS = 2
_ALWAYS = 20  # times as many marks within words as outside: words end at spaces
_PART = 6  # letters of a word that is part of another one are fewer
_UNSPACED = ("THAI", "LAO", "KHMER", "MYANMAR", "HIRAGANA", "KATAKANA")  # scripts that BERT does not split into words
_UNSPACED_SHARE = 0.1  # of the words
Key = tuple[str, str, str]  # kinds: before the mark, the mark, after it
Pieces = list[tuple[str, str]]


def learn_word_rules(
    sentences: Iterable[Sequence[str]], find_added: Callable[[str], Iterator[Place]] | None = None
) -> dict[str, Any] | None:
    """The rules of a `WordSplitter` that splits texts like these words, or None if BERT's pieces are the words.

    A mark stays with its neighbour if at least half as many words hold both as have the mark and the neighbour in two
    words. The neighbours of a mark that is a word may have had spaces between, or not: each counts.
    """
    sentences = list(sentences)
    times = Counter(word for words in sentences for word in words)
    pieces = {word: [kinds for chunk in chunks(word, find_added) for kinds in chunk.kinds] for word in times}
    parts = Counter[str]()
    for word, count in times.items():
        if _is_part(folded(word)):
            parts[folded(word)] += count
    kept = [part for part, count in parts.most_common() if count >= _LEAST_PARTS]
    counts: dict[str, dict[bool, Counter[Key]]] = {
        side: {True: Counter(), False: Counter()} for side in ("left", "right")
    }
    for words in sentences:
        _count(words, pieces, {*kept}, counts)
    joined, alone = (sum(side_counts[stays].total() for side_counts in counts.values()) for stays in (True, False))
    unspaced = sum(count for word, count in times.items() if _is_unspaced(word, len(pieces[word])))
    rules: dict[str, Any] = {
        **{"left": {}, "right": {}, "others": joined > _ALWAYS * alone, "words": kept},
        "unspaced": unspaced > _UNSPACED_SHARE * times.total(),
    }
    for side, side_counts in counts.items():
        for key in sorted(side_counts[True] | side_counts[False], key=_general_first):
            stays = 2 * side_counts[True][key] > side_counts[False][key]
            if WordSplitter(rules).stays(side, *key) != stays:
                rules[side]["".join(key)] = stays
    rules["words"] = [*kept, *_exceptions(sentences, times, WordSplitter(rules, find_added))][:_WORDS]
    return rules if any(rules.values()) else None


def _is_part(word: str) -> bool:
    """Whether a word is written together with another one: 's, n't, l', -il, -t-il."""
    if word.startswith("-"):
        return word[1:].replace("-", "").isalpha() and len(word) <= _PART
    letters = word.strip(APOSTROPHE)
    is_edge = len(letters) == len(word) - 1 and letters.isalpha() and len(letters) < _PART
    return is_edge or (len(word) == 3 and word[1] == APOSTROPHE and f"{word[0]}{word[2]}".isalpha())


def _is_unspaced(word: str, pieces: int) -> bool:
    """Whether a text in the script of a word has no spaces, and BERT does not split it into such words."""
    scripts = {unicodedata.name(letter, "").split(" ")[0] for letter in word}
    return not scripts.isdisjoint(_UNSPACED) or ("CJK" in scripts and pieces > 1)


def _general_first(key: Key) -> tuple[Any, ...]:
    """The order in which rules are stored: a rule is left out if a more general one before it says the same."""
    before, _, after = key
    ranks = {SPACE: 0, LETTERS: 1, DIGIT: 1}
    return ranks.get(before, 2) + ranks.get(after, 2), key


def _count(
    words: Sequence[str],
    pieces: Mapping[str, Pieces],
    parts: Set[str],
    counts: Mapping[str, Mapping[bool, Counter[Key]]],
) -> None:
    """Counts for each mark and its neighbours whether it stays with the one on the left and on the right."""
    split_words = [pieces[word] for word in words]
    ends = [SPACE, *(some[-1][1] if some else SPACE for some in split_words)]
    starts = [*(some[0][0] if some else SPACE for some in split_words[1:]), END]
    for word, some, before, after in zip(words, split_words, ends, starts, strict=False):
        if folded(word) in parts:
            continue
        is_marks = all(is_mark(kind) for kind, _ in some)
        for place, (mark, _) in enumerate(some):
            if not is_mark(mark):
                continue
            lefts, rights = [SPACE], [SPACE]
            if place > 0:
                lefts = [some[place - 1][1]]
            elif is_marks:  # there may have been a space before it, or not
                lefts.append(before)
            if place < len(some) - 1:
                rights = [some[place + 1][0]]
            elif is_marks or after == END:
                rights.append(after)
            for key in {(left, mark, right) for left in lefts for right in rights}:
                if key[0] != SPACE:
                    counts["left"][place > 0][key] += 1
                if key[2] not in (SPACE, END):
                    counts["right"][place < len(some) - 1][key] += 1


def _exceptions(sentences: Sequence[Sequence[str]], times: Counter[str], splitter: WordSplitter) -> Iterator[str]:
    """The words without digits that the rules would split, such as Mr., the most frequent first."""
    pairs = Counter("".join(pair) for words in sentences for pair in itertools.pairwise(words))
    for word, count in times.most_common():
        if count < _LEAST:
            return
        is_short = len(word) <= _LONGEST and not word.isalpha() and not any(map(str.isdigit, word))
        if is_short and count >= pairs[word] and len(splitter(f"{word} x")) > 2:
            yield word
