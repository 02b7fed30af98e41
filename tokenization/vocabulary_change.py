"""Changes of a WordPiece vocabulary: pieces are added, or only the needed ones are kept."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from .pair_merging import PREFIX

UNUSED = re.compile(r"\[unused\d+\]")


def add_pieces(
    vocabulary: Sequence[str], new: Iterable[str], unk_token: str = "[UNK]", used: Collection[str] = ()
) -> tuple[list[str], list[list[int]]]:
    """Adds pieces: in the places of `[unusedN]` first, in the order of the ids, then at the end. No old id changes.

    Args:
        used: pieces that keep their places, such as an `[unused1]` that is a special token.

    Returns:
        The new vocabulary, in the order of the ids; and the old ids behind each new id: one for a piece that stays,
        several for a new piece.

    Raises:
        ValueError: a piece is in the vocabulary already.
    """
    ids = {piece: index for index, piece in enumerate(vocabulary)}
    pieces, origins = list(vocabulary), [[index] for index in range(len(vocabulary))]
    free = iter([index for index, piece in enumerate(vocabulary) if UNUSED.fullmatch(piece) and piece not in used])
    taken = set(ids)
    for piece in new:
        if piece in taken:
            raise ValueError(f"{piece!r} is in the vocabulary already")
        taken.add(piece)
        old = [ids[part] for part in spell(piece, ids) or [unk_token]]
        place = next(free, None)
        if place is None:
            pieces.append(piece)
            origins.append(old)
        else:
            pieces[place], origins[place] = piece, old
    return pieces, origins


def keep_pieces(vocabulary: Sequence[str], needed: Collection[str]) -> list[str]:
    """Keeps the `needed` pieces and all single characters, in their order. Texts that need no other piece get the same
    pieces as before, since the longest match is among those that stay. A word that is [UNK] needs its longest matches
    too: without them it could be spelt.
    """
    return [piece for piece in vocabulary if piece in needed or len(piece.removeprefix(PREFIX)) == 1]


def spell(piece: str, vocabulary: Mapping[str, int] | Collection[str]) -> list[str] | None:
    """The pieces of a word, or of a `##` piece, by longest match first; None if the vocabulary cannot spell it.

    Source: google-research/bert, `WordpieceTokenizer.tokenize`.
    """
    parts, rest = longest_matches(piece, vocabulary)
    return None if rest else parts


def longest_matches(piece: str, vocabulary: Mapping[str, int] | Collection[str]) -> tuple[list[str], str]:
    """As `spell`, with the rest of the word that the vocabulary cannot spell."""
    prefix = PREFIX if piece.startswith(PREFIX) and piece != PREFIX else ""
    rest, parts = piece.removeprefix(prefix), []
    while length := next((n for n in range(len(rest), 0, -1) if prefix + rest[:n] in vocabulary), 0):
        parts.append(prefix + rest[:length])
        rest, prefix = rest[length:], PREFIX
    return parts, rest
