"""Fonts for labels in pictures: matplotlib's own font lacks Chinese, many emoji and other characters."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

_LONGEST = 30
"""Characters of a name. Longer ones leave no room for the picture."""
_BOXES = "lastresort"
"""In the names, without spaces, of fonts that draw a box for every character, such as .LastResort of macOS."""


def drawable(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Short names in one line that matplotlib can draw, and the installed font families for them, the usual one first.

    A name with a character that no installed font has becomes `label N`; N is its place in `names`, from 1.
    """
    lines = (" ".join(name.split()) for name in names)
    names = [line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…" for line in lines]
    families, missing = list(matplotlib.rcParams["font.family"]), set("".join(names))
    missing -= _characters(findfont(FontProperties()), missing)
    for font in sorted(fontManager.ttflist, key=lambda font: (font.name, font.fname)):
        if not missing:
            break
        is_regular = font.style == "normal" and font.weight in (400, "normal")
        draws_boxes = _BOXES in font.name.lower().replace(" ", "")
        if is_regular and not draws_boxes and (found := _characters(font.fname, missing)):
            families.append(font.name)
            missing -= found
    drawn = [name if missing.isdisjoint(name) else f"label {number}" for number, name in enumerate(names, 1)]
    return drawn, families


def _characters(file: str | Path, wanted: set[str]) -> set[str]:
    """Those of the characters that a font file has as outlines."""
    try:
        font = get_font(file)
    except (OSError, RuntimeError):  # a damaged file, or a format that matplotlib cannot read
        return set()
    return {character for character in wanted if font.scalable and font.get_char_index(ord(character))}
