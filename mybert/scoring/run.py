"""`mybert score`: write the pseudo-log-likelihoods of texts to a file."""

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mybert.artifacts.manifest import fingerprint, identity, json_line, write_manifest
from mybert.artifacts.staging import staged_file
from mybert.common.progress import Bar
from mybert.common.tables import print_table
from mybert.io.documents import Document, Problems
from mybert.io.record_formats import TextColumn, rename_taken
from mybert.io.stored_texts import StoredTexts, store_texts
from mybert.scoring.scorer import MaskedWordsScore, Scorer, TextScore, bits_per_character
from mybert.scoring.settings import ScoreSettings

_TEXTS_AT_ONCE = 64
_COUNTS = ("tokens", "words", "unknown_words", "characters")
_DIGITS = 6
_OF_PAIRS = ("text_number", "source", "line", "correct")
Scored = tuple[dict[str, Any], dict[str, float]]
"""The columns of a line, and its contributions to the totals."""
_pair_column = partial(TextColumn, remedy="choose two by --pairs A,B")


def score(settings: ScoreSettings) -> Path:
    """Writes the score of each text, or of each minimal pair, and prints a summary.

    Returns:
        The file, in input order: `text_number` (from 0), `source` and `line` (the place of the text), the columns of
        the row, `log_probability` (natural logarithm) and `bits_per_character`, and the scores of the tokens or masked
        words. The settings, inputs and scores of all texts together are in `OUTPUT.manifest.json`.

    Raises:
        UserError: the output exists or cannot be created, an input, a text or the checkpoint cannot be used, or the
            disk is full. Nothing is written then.
    """
    began = time.monotonic()
    with staged_file(settings.output, settings.inputs, overwrite=settings.overwrite) as path:
        scorer = Scorer(settings)
        columns = settings.pairs.split(",") if settings.pairs else [settings.text_column]
        texts = store_texts(
            settings.inputs,
            path.with_name("texts.arrow"),
            text_column=_pair_column(columns[0]) if settings.pairs else columns[0],
            errors=settings.errors,
            usable=partial(_usable, scorer, columns),
        )
        sums = _write(settings, scorer, texts, path)
        counts = {name: sums[name] for name in _COUNTS if sums[name]}
        metrics = corpus_metrics(sums)
        write_manifest(
            path.parent,
            "score",
            settings=settings,
            inputs={
                "model": identity(settings.model),
                "texts": {"paths": settings.inputs, "sha256": fingerprint(texts.path)},
            },
            counts={"texts": texts.count, **counts, "tokens_read": scorer.tokens_read, "skipped": texts.skipped},
            metrics=metrics,
        )
    rows: list[tuple[str, float]] = [("pairs" if settings.pairs else "texts", texts.count)]
    rows += [(f"skipped: {reason}", number) for reason, number in sorted(texts.skipped.items())]
    rows += [(name.replace("_", " "), value) for name, value in {**counts, **metrics}.items()]
    if settings.masking == "whole-word":
        rows = [(f"{name}, masked" if name in ("words", "characters") else name, value) for name, value in rows]
    print_table(f"Pseudo-log-likelihood, --masking {settings.masking}", [*rows, ("seconds", time.monotonic() - began)])
    return Path(settings.output)


def _usable(scorer: Scorer, columns: list[str], texts: list[Document], problems: Problems) -> list[Document]:
    """Reports texts without a token, and pairs without a second text."""
    kept = []
    for text in texts:
        values: list[Any] = [text.text, *(text.others.get(name) for name in columns[1:])]
        if not isinstance(values[-1], str):
            is_there = columns[-1] in text.others
            detail = "" if is_there else _pair_column(columns[-1]).others([columns[0], *text.others])
            problems.report(text.source, text.place, f"no text in column {columns[-1]!r}", detail)
            continue
        lengths = map(len, scorer.backend.encode_batch_fast(values, add_special_tokens=False))
        bare = [one for *one, length in zip(columns, values, lengths, strict=True) if not length]
        if bare:
            name, value = bare[0]
            named = f"column {name!r}" if len(columns) > 1 else ""
            reason = "no token" if value.strip() else "empty text"
            problems.report(text.source, text.place, reason, named)
        else:
            kept.append(text)
    return kept


def scored_lines(
    settings: ScoreSettings, scorer: Scorer, texts: list[str], others: Sequence[dict[str, Any]], first_number: int
) -> Iterator[Scored]:
    """
    Args:
        texts: of consecutive input rows.
        others: the other columns of these rows. The column with the second text of a pair is removed from them.
        first_number: the number of the first text.
    """
    if settings.masking == "whole-word":
        return _of_words(scorer, texts, first_number)
    within_word = settings.masking == "within-word"
    if settings.pairs is None:
        scores = zip(texts, scorer.texts(texts, within_word), strict=True)
        return ((_record(text, one, "token", one.tokens), _sums(one)) for text, one in scores)
    good, bad = settings.pairs.split(",")
    return _of_pairs(scorer, {good: texts, bad: [row.pop(bad) for row in others]}, within_word)


def _of_pairs(scorer: Scorer, texts: dict[str, list[str]], within_word: bool) -> Iterator[Scored]:
    (good, goods), (bad, bads) = texts.items()
    scores = scorer.texts([*goods, *bads], within_word)
    taken = (*_OF_PAIRS, f"{good}_log_probability", f"{bad}_log_probability")
    for one, two, *pair in zip(scores, scores[len(goods) :], goods, bads, strict=False):
        correct = one.log_probability > two.log_probability
        record = {
            **rename_taken(dict(zip(texts, pair, strict=True)), taken),
            f"{good}_log_probability": round(one.log_probability, _DIGITS),
            f"{bad}_log_probability": round(two.log_probability, _DIGITS),
            "correct": correct,
        }
        sums = {name: value + _sums(two)[name] for name, value in _sums(one).items()}
        yield record, sums | {"decided": 1, "correct": int(correct)}


def _of_words(scorer: Scorer, texts: list[str], first_number: int) -> Iterator[Scored]:
    for text, text_score in zip(texts, scorer.masked_words(texts, first_number), strict=True):
        record = _record(text, text_score, "word", text_score.words) | {"correct": text_score.correct.tolist()}
        counts = {
            "words": len(text_score.words),
            "unknown_words": text_score.unknown,
            "characters": text_score.characters,
        }
        decisions = {"decided": len(text_score.words), "correct": int(text_score.correct.sum())}
        yield record, counts | decisions | {"nats": -text_score.log_probability}


def _record(text: str, scored: TextScore | MaskedWordsScore, kind: str, parts: list[str]) -> dict[str, Any]:
    bits = scored.bits_per_character
    return {
        "text": text,
        "log_probability": round(scored.log_probability, _DIGITS),
        "bits_per_character": None if bits is None else round(bits, _DIGITS),
        f"{kind}s": parts,
        f"{kind}_log_probabilities": scored.log_probabilities.round(_DIGITS).tolist(),
    }


def _sums(text_score: TextScore) -> dict[str, float]:
    return {"tokens": len(text_score.tokens), "characters": text_score.characters, "nats": -text_score.log_probability}


def corpus_metrics(sums: defaultdict[str, float]) -> dict[str, float]:
    """The scores of all texts together.

    Returns:
        accuracy: of pairs or masked words.
        perplexity: of whole texts, the exponential of the mean negative log-probability of a token: the
            pseudo-perplexity of Salazar et al. 2020, section 2.3.
        bits_per_character: of the texts or of the masked words.
    """
    metrics = {}
    if sums["decided"]:
        metrics["accuracy"] = sums["correct"] / sums["decided"]
    if sums["tokens"]:
        metrics["perplexity"] = math.exp(min(sums["nats"] / sums["tokens"], 700))
    if sums["characters"]:
        metrics["bits_per_character"] = bits_per_character(-sums["nats"], sums["characters"])
    return metrics


def _write(settings: ScoreSettings, scorer: Scorer, texts: StoredTexts, path: Path) -> defaultdict[str, float]:
    """Returns the sums over all texts."""
    sums: defaultdict[str, float] = defaultdict(int)
    number = 0
    with (
        path.open("w", encoding="utf-8", newline="\n") as file,
        Bar(total=texts.count, desc="scoring", unit="texts") as bar,
    ):
        for stored in texts.batches():
            for start in range(0, len(stored), _TEXTS_AT_ONCE):
                part = stored.slice(start, _TEXTS_AT_ONCE)
                others = texts.other_values(part)
                lines = scored_lines(settings, scorer, part["text"].to_pylist(), others, number)
                places = part.select(["source", "line"]).to_pylist()
                for (record, added), place, other in zip(lines, places, others, strict=True):
                    for name, value in added.items():
                        sums[name] += value
                    record = {"text_number": number, **place} | record
                    file.write(json_line({**rename_taken(other, record), **record}))
                    number += 1
                bar.update(len(part))
    return sums
