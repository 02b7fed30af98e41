"""Pairs of queries and passages from documents without labels."""

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil, log
from typing import NamedTuple
from zlib import crc32

import numpy as np

from mybert.common.errors import UserError
from mybert.common.quantities import counted
from mybert.corpus.text.sentences import Splitter, sentence_splitter
from mybert.io.documents import Problems, read_documents
from mybert.io.record_formats import TextColumn
from mybert.retrieval.collections import joined, with_ids_and_titles
from mybert.retrieval.pairs import Pair, Pairs
from mybert.retrieval.words import count_words, guess_language, spaced_words, split_words
from mybert.rows.similar_rows import SIMILAR, plain_text

_PASSAGE = 60  # words
_LEAST_WORDS = 4  # of a query, a title or a passage
_MOST_WORDS = 16  # of a query that is a part of a passage
_KEYWORDS = (2, 6)  # words of a query of keywords
_HEADING = re.compile(r"(#{1,6}\s+)?([^\n]{3,80}?)[\s#]*")
_ENDS = (".", "?", "!", ":", ";", ",", "。", "\uff1f", "\uff01")
_QUESTION = ("?", "\uff1f", "\u061f")  # also of Chinese and Arabic
_COUNTED = 1 << 22  # different word pairs whose texts are counted; more are counted together


class Passage(NamedTuple):
    """A part of a document.

    Attributes:
        document: the number of the document.
        title: the title of the document.
        heading: the heading of its section.
    """

    document: int
    title: str
    heading: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """What is found by a search: title and text."""
        return joined(self.title, self.body)

    @property
    def body(self) -> str:
        return " ".join(self.sentences)


def read_passages(inputs: Sequence[str], columns: Mapping[str, str], errors: str) -> list[Passage]:
    """The passages of documents, without near duplicates, and says how many are left out.

    Args:
        inputs: see `read_documents`; a .txt or .md file is one document.
        columns: name in the files of `text` and `title`, from `--columns`.
    """
    column = TextColumn(columns.get("text", "text"), "name it by --columns text=COLUMN")
    problems = Problems(errors, Counter())
    given = read_documents(
        inputs, text_column=column, errors=errors, plain_text="file", with_other_columns=True, skipped=problems.skipped
    )
    documents = [(title.strip(), one.text) for one, _, title, _ in with_ids_and_titles(given, columns)]
    problems.print_skipped("documents")
    split = sentence_splitter(guess_language([text for _, text in documents]))
    passages = [
        passage for number, (title, text) in enumerate(documents) for passage in cut(number, title, text, split)
    ]
    kept = without_near_duplicates([passage.body for passage in passages])
    if not kept:
        raise UserError(f"--documents {' '.join(inputs)}: no passage has {_LEAST_WORDS} words; name longer documents")
    if left_out := len(passages) - len(kept):
        print(f"documents: {left_out:,} of {counted(len(passages), 'passage')} left out, near duplicates of others")
    return [passages[number] for number in kept]


def cut(document: int, title: str, text: str, split: Splitter) -> Iterator[Passage]:
    """Passages of about `_PASSAGE` words; a section begins a new one."""
    for heading, section in _sections(text):
        sentences: list[str] = []
        words = 0
        for sentence in split(section):
            sentence = " ".join(sentence.split())
            size = count_words(sentence)
            if words and words + size > 1.5 * _PASSAGE:
                yield Passage(document, title, heading, tuple(sentences))
                sentences, words = [], 0
            sentences.append(sentence)
            words += size
        if words >= _LEAST_WORDS:
            yield Passage(document, title, heading, tuple(sentences))


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Heading and text of each section. A heading is a line of Markdown, or a short line between blank ones."""
    heading, lines, given = "", list[str](), text.split("\n")
    for before, line, after in zip(["", *given], given, [*given[1:], "the last line is no heading"], strict=False):
        match = _HEADING.fullmatch(line.strip())
        alone = not before.strip() and not after.strip() and len(line.split()) <= 12
        if match and (match[1] or (alone and not line.rstrip().endswith(_ENDS))):
            yield heading, "\n".join(lines)
            heading, lines = match[2], []
        else:
            lines.append(line)
    yield heading, "\n".join(lines)


def without_near_duplicates(texts: Sequence[str]) -> list[int]:
    """The places of the texts that are not nearly equal to an earlier one: by Jaccard similarity of word pairs.

    Of frequent pairs all texts would be compared, so the rarest are; see `mybert.rows.similar_rows`.
    """
    plain = [plain_text(text) for text in texts]
    pairs = [
        np.unique([crc32(" ".join(pair).encode(errors="surrogatepass")) for pair in pairwise(text.split())])
        for text in plain
    ]
    counts = np.bincount(np.concatenate([np.array([], dtype=np.int64), *pairs]).astype(np.int64) % _COUNTED)
    kept: list[int] = []
    having: dict[int, list[frozenset[int]]] = {}
    seen = set()
    for place, (text, some) in enumerate(zip(plain, pairs, strict=True)):
        if text in seen:
            continue
        seen.add(text)
        frequencies = counts[some.astype(np.int64) % _COUNTED]
        rarest = np.lexsort((some, frequencies))[: len(some) - ceil(SIMILAR * len(some)) + 1]
        keys, own = some[rarest[frequencies[rarest] > 1]].tolist(), frozenset(some.tolist())
        others = {id(other): other for key in keys for other in having.get(key, ())}
        if any(len(own & other) >= SIMILAR * len(own | other) for other in others.values()):
            continue
        for key in keys:
            having.setdefault(key, []).append(own)
        kept.append(place)
    return kept


class Miner:
    """Finds pairs in passages.

    Attributes:
        rarity: inverse document frequency by word, in lower case.
    """

    def __init__(self, passages: Sequence[Passage], seed: int):
        counts = Counter(word for passage in passages for word in set(spaced_words(passage.text)))
        self.rarity = {word: log(len(passages) / count + 1) for word, count in counts.items()}
        self.passages, self.draw = passages, random.Random(seed)

    def pairs(self, count: int) -> Pairs:
        """At most `count` pairs: titles, headings, questions and neighbours where there are some, parts of passages
        for the rest."""
        given = list(dict.fromkeys([*self._titles(), *self._headings(), *self._questions()]))
        self.draw.shuffle(given)
        given = given[: count // 3]
        neighbours = list(self._neighbours())
        self.draw.shuffle(neighbours)
        given += neighbours[: count // 8]
        rounds = 0
        seen = {(pair.query, pair.positive) for pair in given}
        while len(given) < count and rounds < 8:
            order = list(self.passages)
            self.draw.shuffle(order)
            for place, passage in enumerate(order):
                pair = (self._keywords, self._span)[(place + rounds) % 2](passage)
                if pair is not None and (pair.query, pair.positive) not in seen and len(given) < count:
                    seen.add((pair.query, pair.positive))
                    given.append(pair)
            rounds += 1
        self.draw.shuffle(given)
        return Pairs(given)

    def _titles(self) -> Iterator[Pair]:
        """The title of a document and the beginning of its text."""
        seen = set()
        for passage in self.passages:
            if passage.document not in seen and count_words(passage.title) >= _LEAST_WORDS:
                yield Pair(passage.title, passage.body, kind="title", source=passage.document)
            seen.add(passage.document)

    def _headings(self) -> Iterator[Pair]:
        """The heading of a section, and its text."""
        seen = set()
        for passage in self.passages:
            key = passage.document, passage.heading
            if passage.heading and key not in seen:
                query = joined(passage.title, passage.heading)
                yield Pair(query, passage.body, kind="heading", source=passage.document)
            seen.add(key)

    def _questions(self) -> Iterator[Pair]:
        """A sentence with a question mark, and what follows it."""
        for passage in self.passages:
            for place, sentence in enumerate(passage.sentences[:-1]):
                rest = " ".join(passage.sentences[place + 1 :])
                if sentence.endswith(_QUESTION) and count_words(sentence) >= _LEAST_WORDS <= count_words(rest):
                    yield Pair(sentence, rest, kind="question", source=passage.document)

    def _neighbours(self) -> Iterator[Pair]:
        """A sentence, and the next passage of the document."""
        for one, other in pairwise(self.passages):
            if one.document == other.document:
                sentence = self.draw.choice(one.sentences[-3:])
                if count_words(sentence) >= _LEAST_WORDS:
                    query = self._crop(sentence)
                    yield Pair(query, other.text, kind="neighbour", source=one.document)

    def _span(self, passage: Passage) -> Pair | None:
        """A span of a passage as the query. Half of the passages lose it (Lee et al. 2019), the others keep it."""
        place = self.draw.randrange(len(passage.sentences))
        sentence = passage.sentences[place]
        if count_words(sentence) < _LEAST_WORDS:
            return None
        others = " ".join([*passage.sentences[:place], *passage.sentences[place + 1 :]])
        remove = self.draw.random() < 0.5 and count_words(others) >= 2 * _LEAST_WORDS
        positive = joined(passage.title, others) if remove else passage.text
        return Pair(self._crop(sentence), positive, kind="span", source=passage.document)

    def _keywords(self, passage: Passage) -> Pair | None:
        """Rare words of one or two sentences of a passage, in their order, as the query.

        None where there are no spaces between words.
        """
        place = self.draw.randrange(len(passage.sentences))
        words = spaced_words(" ".join(passage.sentences[place : place + self.draw.randint(1, 2)]))
        words = [word for word in dict.fromkeys(words) if len(word) > 1]
        size = min(self.draw.randint(*_KEYWORDS), len(words))
        if size < _KEYWORDS[0]:
            return None
        weight = {word: self.draw.random() ** (1 / self.rarity.get(word, 1.0) ** 2) for word in words}
        chosen = set(sorted(words, key=weight.__getitem__)[-size:])
        query = " ".join(word for word in words if word in chosen)
        return Pair(query, passage.text, kind="keywords", source=passage.document)

    def _crop(self, sentence: str) -> str:
        """A random part of a sentence of at most `_MOST_WORDS` words."""
        words = split_words(sentence)
        size = min(self.draw.randint(_LEAST_WORDS, _MOST_WORDS), len(words))
        start = self.draw.randint(0, len(words) - size)
        return "".join(words[start : start + size]).strip()
