"""Splitting text into sentences."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import sentencex

from mybert.corpus.settings import CorpusSettings

Splitter = Callable[[str], list[str]]
_PARAGRAPH_END = re.compile(r"\n\s*\n")
# sentencex 1.0.32 panics at a capital letter, a space of several bytes and a full stop, such as "C\xa0."
_LINE_END_OR_SPACE_BEFORE_STOP = re.compile(r"\n|[^\S ](?=\.)")
_TO_LAST_SPACE = re.compile(r".*\s", re.DOTALL)
_WINDOW = 4000  # characters; sentencex takes quadratic time in scripts without spaces


def splitter_of(settings: CorpusSettings) -> Splitter:
    """Returns a function that splits a text into sentences: lines that are not blank, or as `sentence_splitter`."""
    if settings.one_sentence_per_line:
        return lambda text: [line for line in text.split("\n") if line and not line.isspace()]
    return sentence_splitter(settings.language)


def sentence_splitter(language: str) -> Splitter:
    """Returns a function that splits a text into sentences by the rules of `language`.

    A blank line ends a sentence; a single line end is a space, as is any space before a full stop. No text is dropped,
    and no word is cut: a sentence of more than 4,000 characters is cut at a space, of any kind.
    """
    return lambda text: [sentence for _, sentence in _sentences(text, language)]


def sentence_spans(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Start and end of each sentence of a text, as `sentence_splitter` finds them, without the spaces around it."""
    for start, sentence in _sentences(text, language):
        if stripped := sentence.lstrip():
            first = start + len(sentence) - len(stripped)
            yield first, first + len(stripped.rstrip())


def _sentences(text: str, language: str) -> Iterator[tuple[int, str]]:
    """Start and text of each sentence."""
    start = 0
    for end, following in [*(match.span() for match in _PARAGRAPH_END.finditer(text)), (len(text), len(text))]:
        for sentence in _split_paragraph(_LINE_END_OR_SPACE_BEFORE_STOP.sub(" ", text[start:end]), language):
            yield start, sentence
            start += len(sentence)
        start = following


def _split_paragraph(paragraph: str, language: str) -> list[str]:
    sentences, start = [], 0
    while len(paragraph) - start > _WINDOW:
        window = paragraph[start : start + _WINDOW]
        complete = sentencex.segment(language, window)[:-1]  # the last one may continue after the window
        if not complete:
            words = _TO_LAST_SPACE.match(window)
            complete = [words[0] if words else window]
        sentences += complete
        start += sum(map(len, complete))
    return sentences + sentencex.segment(language, paragraph[start:])


def cut_document(text: str, parts: int, split: Splitter) -> list[str]:
    """Splits `text` into at most `parts` texts with about the same number of sentences, separated by blank lines."""
    sentences = [" ".join(sentence.split()) for sentence in split(text)]
    sentences = [sentence for sentence in sentences if sentence]
    bounds = [round(len(sentences) * part / parts) for part in range(parts + 1)]
    pieces = ["\n\n".join(sentences[a:b]) for a, b in pairwise(bounds)]
    return [piece for piece in pieces if piece]
