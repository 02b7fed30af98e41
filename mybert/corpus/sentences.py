"""Text → sentences."""

import re
from collections.abc import Callable
from itertools import pairwise

import sentencex

Splitter = Callable[[str], list[str]]
_PARAGRAPH_END = re.compile(r"\n\s*\n")
# The library's time grows with the square of a paragraph's length where the script has no spaces.
_WINDOW = 4000


def one_per_line(text: str) -> list[str]:
    """The lines that hold something."""
    return [line for line in text.split("\n") if line and not line.isspace()]


def sentence_splitter(language: str) -> Splitter:
    """A function from a text to its sentences by the rules of `language`, or of the language it falls back to.

    A blank line ends a sentence; a single line end is a space, as in wrapped text. Nothing of the text is lost.
    """

    def split(text: str) -> list[str]:
        sentences = []
        for paragraph in _PARAGRAPH_END.split(text):
            sentences += _split_paragraph(paragraph.replace("\n", " "), language)
        return sentences

    return split


def _split_paragraph(paragraph: str, language: str) -> list[str]:
    sentences, start = [], 0
    while len(paragraph) - start > _WINDOW:
        found = sentencex.segment(language, paragraph[start : start + _WINDOW])
        complete = found[:-1] or found  # the last one may go on after the window
        sentences += complete
        start += sum(map(len, complete))
    return sentences + sentencex.segment(language, paragraph[start:])


def cut_document(text: str, parts: int, split: Splitter) -> list[str]:
    """`text` in at most `parts` pieces of about as many sentences each, with blank lines between them."""
    sentences = [" ".join(sentence.split()) for sentence in split(text)]
    sentences = [sentence for sentence in sentences if sentence]
    bounds = [round(len(sentences) * part / parts) for part in range(parts + 1)]
    pieces = ["\n\n".join(sentences[a:b]) for a, b in pairwise(bounds)]
    return [piece for piece in pieces if piece]
