"""`mybert tokenizer`: documents to a tokenizer folder, with a report on the vocabulary."""

import dataclasses
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mybert.artifacts.engines import explain_killed
from mybert.artifacts.manifest import write_manifest
from mybert.artifacts.staging import refuse_existing, staged_folder
from mybert.common.errors import UserError, short
from mybert.common.languages import MANY_MARKS, normalization
from mybert.common.machine import usable_cores
from mybert.common.metrics import percent
from mybert.common.progress import Bar
from mybert.common.quantities import counted
from mybert.common.tables import print_table
from mybert.corpus.settings import TokenizerSettings
from mybert.io.documents import read_documents
from mybert.io.sources import describe_sources, find_sources
from tokenization import (
    SPECIAL_TOKENS,
    MyBertTokenizer,
    count_words,
    removed_marks,
    train_wordpiece,
    vocabulary_report,
)
from tokenization.vocabulary_measures import RemovedMarks
from tokenization.wordpiece_training import least_vocab_size

logger = logging.getLogger(__name__)

_TITLES = {"words": "words and punctuation marks", "distinct words": "distinct words and punctuation marks"}
_SHARES = ("unknown rate", "words kept whole", "character coverage")
_FREQUENT = 10  # occurrences of a word, enough to train its embedding


def build_tokenizer(settings: TokenizerSettings, advise_size: bool = True) -> Path:
    """Trains a vocabulary on the documents of `settings.inputs`, saves it and prints a report.

    Args:
        advise_size: whether to warn about a size that does not fit the text.

    Returns:
        The folder: `vocab.txt`, `tokenizer.json`, `tokenizer_config.json` and `manifest.json`.

    Raises:
        UserError: the output exists, an input cannot be read, or the documents contain no words.
    """
    replacing: dict[str, Any] = {"overwrite": settings.overwrite, "stage": "tokenizer", "inputs": settings.inputs}
    refuse_existing(settings.output, **replacing)
    lower_case, strip = normalization(settings.language, settings.uncased, settings.strip_accents)
    settings = dataclasses.replace(settings, uncased=lower_case, strip_accents=strip)
    options: dict[str, Any] = {"do_lower_case": lower_case, "strip_accents": strip, "model_max_length": 512}
    seen: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    word_counts, removed = _count_words(settings, options, seen, skipped)
    if advise_size:
        _warn_of_size(settings, word_counts)
    _warn_of_marks(settings, removed, word_counts)
    with Bar(total=settings.vocab_size, desc="merging", unit="pieces") as bar:
        vocabulary = train_wordpiece(
            word_counts,
            settings.vocab_size,
            do_lower_case=lower_case,
            min_frequency=settings.min_frequency,
            character_coverage=settings.character_coverage,
            pad_to_multiple_of=settings.pad_to_multiple_of,
            progress=bar.update,
        )
    tokenizer = MyBertTokenizer(vocabulary, **options)
    report = vocabulary_report(word_counts, tokenizer.backend_tokenizer, removed.removed)
    with staged_folder(settings.output, **replacing) as folder:
        tokenizer.save_pretrained(folder)
        write_manifest(
            folder,
            "tokenizer",
            settings=settings,
            inputs=describe_sources(find_sources(settings.inputs)),
            counts={**seen, "skipped": dict(skipped)},
            report=report,
        )
    _print_report(seen, skipped, report)
    unused = sum(token.startswith("[unused") for token in vocabulary)
    learned = len(vocabulary) - unused
    if learned < settings.vocab_size:
        print(f"the text yields {learned:,} tokens; {unused:,} [unusedN] fill the vocabulary")
    return Path(settings.output)


def _count_words(
    settings: TokenizerSettings, options: dict[str, Any], seen: Counter[str], skipped: Counter[str]
) -> tuple[Counter[str], RemovedMarks]:
    """The words, and the marks that are removed with the accents."""
    tokenizer = MyBertTokenizer(SPECIAL_TOKENS, **options)
    with_marks = MyBertTokenizer(SPECIAL_TOKENS, **options | {"strip_accents": False})
    with explain_killed(), Bar(desc="counting words", unit="characters") as bar:
        word_counts, marked = count_words(
            _texts(settings, seen, skipped),
            [tokenizer.backend_tokenizer],
            beyond_ascii=[with_marks.backend_tokenizer],
            num_proc=settings.num_proc or usable_cores(),
            progress=bar.update,
        )
    if not word_counts:
        read = counted(seen["documents"], "document")
        raise UserError(f"{', '.join(settings.inputs)}: no words ({read} read); check the inputs and --text-column")
    if not tokenizer.strips_accents:
        return word_counts, RemovedMarks(0, [])
    return word_counts, removed_marks(marked, word_counts, tokenizer.backend_tokenizer)


def _texts(settings: TokenizerSettings, seen: Counter[str], skipped: Counter[str]) -> Iterator[str]:
    documents = read_documents(
        settings.inputs, text_column=settings.text_column, errors=settings.errors, skipped=skipped
    )
    for document in documents:
        seen["documents"] += 1
        seen["characters"] += len(document.text)
        yield document.text


def _warn_of_size(settings: TokenizerSettings, word_counts: Counter[str]) -> None:
    """Warns if the vocabulary has more tokens than the text has distinct words."""
    if settings.vocab_size <= len(word_counts):
        return
    frequent = sum(count >= _FREQUENT for count in word_counts.values())
    needed = least_vocab_size(bool(settings.uncased)) + frequent
    unit = 10 ** max(len(str(needed)) - 2, 0)
    suggested = -(-needed // unit) * unit  # two digits, rounded up
    if suggested >= settings.vocab_size:
        return
    logger.warning(
        "the vocabulary size %d is more than the %d distinct words of the text: most tokens would be too rare to "
        "train. The text has %d words with %d or more occurrences; consider `mybert tokenizer --vocab-size %d`, or "
        "more text",
        *(settings.vocab_size, len(word_counts), frequent, _FREQUENT, suggested),
    )


def _warn_of_marks(settings: TokenizerSettings, removed: RemovedMarks, words: Counter[str]) -> None:
    """Warns if the text loses many combining marks, so that different words become equal."""
    share = removed.share(words)
    if share < MANY_MARKS:
        return
    remedy = "--no-strip-accents"
    if settings.language == TokenizerSettings.language:
        remedy = f"the language of the text, such as --language hi, or {remedy}"
    logger.warning(
        "accents and other combining marks are removed (%s of the characters); what differs in them becomes equal, "
        "such as %s. To keep them, give `mybert tokenizer` or `mybert pretrain --text` %s",
        percent(share),
        ", ".join(" = ".join(map(short, pair)) for pair in removed.equal[:3]),
        remedy,
    )


def _print_report(seen: Counter[str], skipped: Counter[str], report: dict[str, int | float]) -> None:
    rows: list[tuple[str, Any]] = [("characters", seen["characters"])]
    for name, value in report.items():
        rows.append((_TITLES.get(name, name), percent(value) if name in _SHARES else value))
    title = "Vocabulary, on the training text"
    if skipped:
        title += "; skipped: " + ", ".join(f"{n} {reason}" for reason, n in sorted(skipped.items()))
    print_table(title, rows)
