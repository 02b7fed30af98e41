"""Rows of queries and passages, under the column names of sentence-transformers, BEIR and their neighbours."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mybert.common.errors import UserError, short
from mybert.io.documents import Problems
from mybert.retrieval.collections import Texts, joined, read_judgements, read_texts, title_of
from mybert.rows.splits import Split
from mybert.rows.tables import choose_columns, lacking_columns
from mybert.tasks.reading import hash_of, load_table

ROLES: Mapping[str, tuple[str, ...]] = {
    "query": ("query", "anchor", "question", "claim", "sentence1", "sentence_0", "sentence_A", "text1", "premise"),
    "positive": (
        *("positive", "pos", "positives", "positive_passages", "context", "passage", "document", "doc", "answer"),
        *("response", "sentence2", "sentence_1", "sentence_B", "text2", "text", "hypothesis"),
    ),
    "negatives": ("negatives", "negative", "neg", "hard_negatives", "negative_passages"),
    "score": ("score", "label", "relevance", "grade", "similarity"),
}
"""The usual names of each column; the first that a file has is read."""
_NUMBERED = re.compile(r"(negative|neg|sentence)[_-]?\d+", re.IGNORECASE)  # further negatives


ROWS = "rows"


class Pair(NamedTuple):
    """A query with a passage that answers it, and passages that do not.

    Attributes:
        kind: where the pair is from: `rows`, or the rule that found it in documents.
        source: the document that a mined pair is from; -1 for rows.
    """

    query: str
    positive: str
    negatives: tuple[str, ...] = ()
    kind: str = ROWS
    source: int = -1


class ScoredPair(NamedTuple):
    """A query, a passage, and how similar they are: a number with a fraction, or a grade."""

    query: str
    passage: str
    score: float


@dataclass
class Pairs:
    """Training pairs.

    Attributes:
        pairs: each query with one passage.
        scored: pairs with a score that is no grade of relevance, such as a similarity from 0 to 1.
        grades: grade by query and passage, where rows have whole numbers.
        left_out: number of rows that could not be used.
    """

    pairs: list[Pair] = field(default_factory=list)
    scored: list[ScoredPair] = field(default_factory=list)
    grades: dict[tuple[str, str], int] = field(default_factory=dict)
    left_out: int = 0

    def __add__(self, other: "Pairs") -> "Pairs":
        grades = self.grades | other.grades
        return Pairs(self.pairs + other.pairs, self.scored + other.scored, grades, self.left_out + other.left_out)

    def passages(self) -> list[str]:
        """All passages, each once."""
        texts = [text for pair in self.pairs for text in (pair.positive, *pair.negatives)]
        return list(dict.fromkeys([*texts, *(pair.passage for pair in self.scored)]))

    def by_origin(self) -> tuple[list[Pair], list[Pair]]:
        """The pairs of rows, and those that were mined."""
        mined = [pair for pair in self.pairs if pair.kind != ROWS]
        return [pair for pair in self.pairs if pair.kind == ROWS], mined

    def relevant(self) -> dict[str, dict[str, int]]:
        """Query → its passages with their grades."""
        by_query: dict[str, dict[str, int]] = {}
        for pair in self.pairs:
            by_query.setdefault(pair.query, {})[pair.positive] = self.grades.get((pair.query, pair.positive), 1)
        return by_query

    def split(self, share: float, most: int, seed: int) -> tuple["Pairs", "Pairs"]:
        """Training pairs, and held-out ones: `share` of the queries, at most `most`, by their texts and `seed`.

        Mined pairs of one document are on one side, so a share of the documents is held out.
        """
        keys = sorted({_key(pair) for pair in self.pairs}, key=lambda key: hash_of(f"{seed} {key}"))
        held = set(keys[: min(max(round(share * len(keys)), 1), most)] if share else ())
        train = Pairs([pair for pair in self.pairs if _key(pair) not in held], self.scored, self.grades, self.left_out)
        return train, Pairs([pair for pair in self.pairs if _key(pair) in held], grades=self.grades)


def _key(pair: Pair) -> str | int:
    return pair.query if pair.source < 0 else pair.source


def read_pairs(names: Sequence[str], columns: Mapping[str, str], errors: str = "strict") -> Pairs:
    """The pairs of several files of rows.

    Args:
        names: see `load_table`.
        columns: name in the files by role, from `--columns`.
        errors: `strict` raises at the first row that cannot be used; `skip` leaves it out.
    """
    pairs = Pairs()
    for name in names:
        table = load_table(name, None, "train")
        pairs += _pairs_of(table, _columns(name, table.rows.column_names, columns), errors)
    if not pairs.pairs and not pairs.scored:
        raise UserError(f"{' and '.join(names)}: no row has a query and a passage that answers it")
    return pairs


def judged_pairs(corpus: Texts, queries: str, judgements: str, errors: str = "strict") -> Pairs:
    """The pairs of a collection; `queries` and `judgements` are files as in `mybert.retrieval.collections`."""
    asked = read_texts([queries], "queries", errors)
    passages = dict(zip(corpus.ids, corpus.passages(), strict=True))
    texts = dict(zip(asked.ids, asked.passages(), strict=True))
    pairs = Pairs()
    for query, grades in read_judgements(judgements, texts, passages, errors).grades.items():
        negatives = tuple(passages[document] for document, grade in grades.items() if not grade)
        for document, grade in grades.items():
            if grade:
                pairs.pairs.append(Pair(texts[query], passages[document], negatives))
                pairs.grades[texts[query], passages[document]] = grade
    return pairs


class _Columns(NamedTuple):
    """The columns of a file; `score` is None if it has none."""

    query: str
    positive: str
    negatives: list[str]
    score: str | None


def _columns(name: str, present: Sequence[str], given: Mapping[str, str]) -> _Columns:
    columns, absent, unnamed = choose_columns(present, ROLES, given, optional=("negatives", "score"))
    if absent or unnamed:
        raise UserError(lacking_columns(name, present, absent, unnamed, list(unnamed)))
    if (columns["query"], columns.get("score"), "score" in given) == ("premise", "label", False):
        raise UserError(
            f"{name}: the column 'label' of premises and hypotheses names classes, which are no grades; keep the rows "
            "of entailment, without the column"
        )
    negatives = [columns["negatives"]] if "negatives" in columns else []
    negatives += [column for column in present if _NUMBERED.fullmatch(column) and column not in columns.values()]
    return _Columns(columns["query"], columns["positive"], negatives, columns.get("score"))


def _pairs_of(table: Split, columns: _Columns, errors: str) -> Pairs:
    problems = Problems(errors, Counter())
    rows, left_out = list(_values(table, columns, problems)), problems.skipped.total()
    problems.print_skipped(f"rows of {table.source}")
    scores = [score for *_, score in rows if score is not None]
    if any(not score.is_integer() for score in scores):
        lowest = min(0.0, *scores)  # of passages that a row names as negatives
        scored = [ScoredPair(query, p, score) for query, ps, _, score in rows if score is not None for p in ps]
        known = {(pair.query, pair.passage) for pair in scored}
        rejected = dict.fromkeys((query, p) for query, _, negatives, _ in rows for p in negatives)
        scored += [ScoredPair(*pair, lowest) for pair in rejected if pair not in known]
        return Pairs(scored=scored, left_out=left_out)
    pairs = Pairs(left_out=left_out)
    refused: dict[str, list[str]] = {}
    answers: dict[str, set[str]] = {}  # a passage that answers the query in another row is no negative
    for query, _, negatives, _ in rows:
        refused.setdefault(query, []).extend(negatives)
    for query, positives, _, score in rows:
        if score is None or score > 0:
            answers.setdefault(query, set()).update(positives)
        else:
            refused[query] += positives
    for query, positives, _, score in rows:
        for positive in positives if score is None or score > 0 else ():
            others = dict.fromkeys(text for text in refused[query] if text not in answers[query])
            pairs.pairs.append(Pair(query, positive, tuple(others)))
            if score is not None:
                pairs.grades[query, positive] = int(score)
    return pairs


_Row = tuple[str, list[str], list[str], float | None]


def _values(table: Split, columns: _Columns, problems: Problems) -> Iterator[_Row]:
    """Query, positives, negatives and score of each row that has them."""
    for number, row in zip(table.numbers, table.rows, strict=True):
        place = f"{table.unit} {number + 1}"
        queries, positives = _texts(row[columns.query]), _texts(row[columns.positive])
        negatives = [text for column in columns.negatives for text in _texts(row[column])]
        score = _number(row[columns.score]) if columns.score else None
        if not queries:
            problems.report(table.source, place, f"{columns.query!r} has no text")
        elif not positives and not negatives:
            problems.report(table.source, place, f"{columns.positive!r} has no text")
        elif columns.score and score is None:
            problems.report(table.source, place, f"{columns.score!r} is no number", short(row[columns.score]))
        else:
            yield from ((query, positives, negatives, score) for query in queries)


def _texts(value: Any) -> list[str]:
    """The texts of a cell: a text, a list of texts, or passages with `title` and `text`."""
    if isinstance(value, str):
        return [value.strip()] if value.strip() else []
    if isinstance(value, Mapping):
        return _texts(joined(*(title_of(value.get(name)) for name in ("title", "text"))))
    if isinstance(value, Iterable):
        return [text for item in value for text in _texts(item)]
    return []


def _number(value: Any) -> float | None:
    try:
        return float(value) if math.isfinite(float(value)) else None
    except (TypeError, ValueError):
        return None
