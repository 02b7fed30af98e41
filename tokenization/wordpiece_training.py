"""Training of a WordPiece vocabulary from word counts: deterministic, with an exact number of pieces."""

import string
from collections import Counter
from collections.abc import Callable, Mapping

from .pair_merging import PREFIX, merge_pairs

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_WORD_CHARACTERS = 100  # BERT maps longer words to [UNK]


def train_wordpiece(
    word_counts: Mapping[str, int],
    vocab_size: int,
    *,
    do_lower_case: bool = True,
    min_frequency: int = 2,
    character_coverage: float = 0.99999,
    pad_to_multiple_of: int = 1,
    progress: Callable[[int], object] | None = None,
) -> list[str]:
    """Train a WordPiece vocabulary; returns the pieces in the order of their ids.

    BERT's special tokens come first (ids 0 to 4), then characters, then merged pieces from frequent to rare. ASCII
    letters (lower-case only if `do_lower_case`), digits and punctuation are always included as `x` and `##x`. If the
    words give too few pieces, `[unused0]`, `[unused1]`, … follow.

    Args:
        word_counts: normalised words and their counts, see `count_words`.
        vocab_size: number of pieces, including special tokens.
        do_lower_case: whether the words are lower-cased.
        min_frequency: minimum count of a merged pair, at least 1.
        character_coverage: share of all characters that must have a piece, in (0, 1]. Words with rarer characters
            become [UNK]. Characters outside ASCII take at most half of the vocabulary.
        pad_to_multiple_of: add `[unusedN]` up to a multiple of this; 64 makes the output projection faster.
        progress: called with each number of pieces found.

    Raises:
        ValueError: `vocab_size` is too small; the message gives the minimum.
    """
    vocabulary = _always_there(do_lower_case)
    if vocab_size < len(vocabulary):
        least = f"special tokens and ASCII characters need at least {len(vocabulary)}"
        raise ValueError(f"vocab_size is {vocab_size}; {least}")
    words = {word: n for word, n in word_counts.items() if len(word) <= MAX_WORD_CHARACTERS}
    vocabulary += _rare_alphabet(words, character_coverage, set(vocabulary), (vocab_size - len(vocabulary)) // 2)
    known = set(vocabulary)
    spelt = (([word[0], *(PREFIX + c for c in word[1:])], n) for word, n in words.items())
    merges = merge_pairs(((pieces, n) for pieces, n in spelt if known.issuperset(pieces)), min_frequency)
    if progress is not None:
        progress(len(vocabulary))
    while len(vocabulary) < vocab_size and (piece := next(merges, None)) is not None:
        vocabulary.append(piece)
        if progress is not None:
            progress(1)
    size = -(-vocab_size // pad_to_multiple_of) * pad_to_multiple_of
    return vocabulary + [f"[unused{i}]" for i in range(size - len(vocabulary))]


def least_vocab_size(do_lower_case: bool) -> int:
    """Minimum size of a vocabulary: special tokens and ASCII characters."""
    return len(_always_there(do_lower_case))


def _always_there(do_lower_case: bool) -> list[str]:
    letters = string.ascii_lowercase if do_lower_case else string.ascii_letters
    characters = sorted(letters + string.digits + string.punctuation)
    return [*SPECIAL_TOKENS, *characters, *(PREFIX + c for c in characters)]


def _rare_alphabet(words: Mapping[str, int], coverage: float, known: set[str], places: int) -> list[str]:
    """Pieces of characters outside `known`, chosen from frequent to rare.

    Characters seen inside words get both forms; those that only start words (CJK ideographs) get the first form.
    """
    counts: Counter[str] = Counter()
    inside: set[str] = set()
    for word, n in words.items():
        inside.update(word[1:])
        for character in word:
            counts[character] += n
    wanted = coverage * counts.total()
    covered = sum(n for character, n in counts.items() if character in known)
    pieces: list[str] = []
    for character, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if character in known:
            continue
        forms = [character, PREFIX + character] if character in inside else [character]
        if covered >= wanted or len(pieces) + len(forms) > places:
            break
        covered += n
        pieces += forms
    return sorted(pieces, key=lambda piece: (len(piece), piece))
