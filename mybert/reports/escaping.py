"""Text of unknown origin made safe for a page. jinja2's autoescape does the rest."""

_LEFT_OUT = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 160), 0xFFFE, 0xFFFF])
_LEFT_OUT |= dict.fromkeys(range(0xD800, 0xE000))
# Marks that change the direction of text after them, until the end of a paragraph
_LEFT_OUT |= dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])


def printable(text: str) -> str:
    """The text without control characters, lone surrogates and marks of direction."""
    return text.translate(_LEFT_OUT)
