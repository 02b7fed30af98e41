"""`mybert pretrain`: pretrain on a corpus; or on text, after building vocabulary and examples."""

import copy
import dataclasses
import math
import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mybert.artifacts.manifest import read_manifest
from mybert.artifacts.run_fingerprint import RunFingerprint
from mybert.common.errors import UserError, short_list
from mybert.common.languages import LANGUAGES, is_language, marks, normalization
from mybert.common.quantities import counted, duration
from mybert.pretraining.planning.rules import budget_rules
from mybert.pretraining.settings import PretrainSettings, TextOptions
from mybert.settings.declare import check
from tokenization.wordpiece_training import least_vocab_size

if TYPE_CHECKING:
    from transformers import TrainingArguments

_IDEOGRAPHS = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LETTERS = rf"[^\W{_IDEOGRAPHS}]"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|{_LETTERS}+(?:[{marks()}]+{_LETTERS}*)*")
_CHARACTERS_PER_WORD = 10  # at most, on average; scripts without spaces have longer runs
_STARTING, _BUILDING = 3.0, 10.0
"""Time of vocabulary and examples: seconds, and units of the time that counting the words takes."""
_PATH = 4096
"""Characters of a path in a message."""
_MOST_BUILDING = 0.5
"""Largest share of the time budget for vocabulary and examples."""


class TextSize(NamedTuple):
    """Numbers of documents, words and distinct characters of a text."""

    documents: int
    words: int
    characters: int


def pretrain(
    settings: PretrainSettings, arguments: "TrainingArguments | None" = None, started: float | None = None
) -> Path:
    """Pretrains a model on a corpus. With `settings.text`, first builds a vocabulary and a corpus.

    Vocabulary and corpus are kept in OUTPUT-tokenizer and OUTPUT-corpus, and a second call uses them again, unless
    with `overwrite`. A dry run builds them in a temporary folder.

    Args:
        settings, arguments: as in `mybert.pretraining.run.pretrain`.
        started: `time.monotonic()` at the start of a time budget (default: now).

    Returns:
        The folder of the finished model.
    """
    from mybert.pretraining.run import pretrain as train

    started = time.monotonic() if started is None else started
    if not settings.text:
        return train(settings, arguments, started=started)
    with tempfile.TemporaryDirectory() if settings.dry_run else nullcontext() as temporary:
        folder = f"{temporary}/{Path(settings.output).name}" if temporary else settings.output
        return train(_with_corpus(settings, arguments, folder, started), arguments, started=started)


def main(settings: PretrainSettings, arguments: "TrainingArguments") -> Path:
    """As `pretrain`; a time budget begins with the process."""
    from mybert.pretraining.clock import process_start

    return pretrain(settings, arguments, process_start())


def _with_corpus(
    settings: PretrainSettings, arguments: "TrainingArguments | None", folder: str, started: float
) -> PretrainSettings:
    """Builds FOLDER-tokenizer and FOLDER-corpus on process 0 if needed; returns settings with this corpus."""
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    from mybert.pretraining.arguments import check_output
    from mybert.reports.findings import warning_lines

    check_output(settings, arguments)
    processes = PartialState()
    folder = broadcast_object_list([folder])[0]  # temporary folders differ
    corpus = f"{folder}-corpus"
    if processes.is_main_process:
        _build(settings, settings.init_from or f"{folder}-tokenizer", corpus, started)
        lines = warning_lines(Path(corpus))
        for line in lines[1:] if settings.dry_run else lines:  # the first one names the folder, here a temporary one
            print(line)
    processes.wait_for_everyone()
    with_corpus = copy.copy(settings)
    vars(with_corpus).update(dataclasses.asdict(TextOptions()), text=[], corpus=corpus)
    return with_corpus


def _build(settings: PretrainSettings, tokenizer: str, corpus: str, started: float) -> None:
    import mybert.io.documents  # noqa: F401 - not while the words are counted, whose time is measured
    from mybert.io.files import STDIN

    check(settings, "language", is_language(settings.language), LANGUAGES)
    settings = copy.copy(settings)
    uncased, settings.strip_accents = normalization(settings.language, settings.uncased, settings.strip_accents)
    settings.uncased = uncased
    if STDIN in settings.text:
        raise UserError(f"--text {STDIN}: standard input can be read only once, and text is read again; name a file")
    is_given = settings.init_from is not None
    has_vocabulary = is_given or (not settings.overwrite and has_vocabulary_of(settings, tokenizer))
    if not settings.overwrite and has_examples_of(settings, corpus):
        return
    one_per_file = is_document_per_file(settings.text)
    began = time.monotonic()
    size = measure_text(settings, one_per_file)
    _check_size(size, settings, time.monotonic() - began, time.monotonic() - started)
    print(f"text: {counted(size.words, 'word')} in {counted(size.documents, 'document')}")
    if not has_vocabulary:
        number = vocabulary_size(size, uncased)
        by_words = vocabulary_size(size._replace(characters=0), uncased)
        why = "why" if number == by_words else "why_characters"
        print(f"\nvocabulary of {number:,} tokens: {budget_rules()['vocabulary'][why]}")
        build_vocabulary(settings, tokenizer, number)
    print("\nbuilding the examples")
    build_examples(settings, tokenizer, corpus, **division(size, one_per_file))


def has_vocabulary_of(settings: Any, folder: str) -> bool:
    """Whether a finished vocabulary of `settings.text` is in a folder; see `was_made_from`."""
    has = was_made_from(folder, settings, ("language", "uncased", "strip_accents", "text_column", "errors"))
    if has:
        print(f"the vocabulary in {folder} is used again")
    return has


def has_examples_of(settings: Any, folder: str, others: Sequence[str] = ()) -> bool:
    """Whether finished examples of `settings.text` are in a folder; `others` are further settings to compare."""
    has = was_made_from(folder, settings, (*others, "language", "text_column", "errors"))
    if has:
        print(f"the examples in {folder} are used again")
    return has


def build_vocabulary(settings: Any, folder: str, size: int) -> None:
    """Builds a vocabulary of `settings.text`; `settings` are those of `pretrain` or `quickstart`."""
    from mybert.corpus.settings import TokenizerSettings
    from mybert.corpus.train_tokenizer import build_tokenizer

    names = ("uncased", "language", "strip_accents", "overwrite", "text_column", "errors")
    same = {name: getattr(settings, name) for name in names}
    build_tokenizer(TokenizerSettings(settings.text, output=folder, vocab_size=size, **same), advise_size=False)


def build_examples(settings: Any, tokenizer: str, folder: str, **others: Any) -> None:
    """Builds examples of `settings.text`, with these `others` of `CorpusSettings`."""
    from mybert.corpus.build import build_corpus
    from mybert.corpus.settings import CorpusSettings
    from mybert.reports.write import add_report

    same = {name: getattr(settings, name) for name in ("language", "overwrite", "resume", "text_column", "errors")}
    build_corpus(CorpusSettings(settings.text, tokenizer=tokenizer, output=folder, **same, **others))
    add_report(folder)


def division(size: TextSize, one_per_file: bool) -> dict[str, Any]:
    """Settings of the corpus by which two documents at least can be held out; prints it if documents are split.

    Raises:
        UserError: the text is one document that is too short to be split.
    """
    rules = budget_rules()["text"]
    parts = min(
        math.ceil(rules["documents"] / size.documents),
        max(1, size.words // (size.documents * rules["words_per_document"])),
    )
    if size.documents * parts < 2:
        least = 2 * rules["words_per_document"]
        raise UserError(f"the text is one document of {counted(size.words, 'word')}; give {least} words or more")
    if parts > 1:
        print(f"each document is split into {parts} documents, so that some can be held out")
    share = min(max(rules["held_out"], rules["least_held_out_words"] / size.words), rules["most_held_out"])
    share = min(share, rules["most_held_out_words"] / size.words)
    share = min(max(share, 2.5 / (size.documents * parts)), 0.5)
    return {"document_per_file": one_per_file, "split_documents": parts, "validation_share": share}


def was_made_from(folder: str, settings: Any, names: Sequence[str] = ()) -> bool:
    """Whether a folder is finished.

    Raises:
        UserError: it was made from another text than `settings.text`, or with other values of the settings `names`.
    """
    from mybert.io.sources import describe_sources, find_sources

    manifest = read_manifest(folder)
    if not manifest:
        return False
    chosen = {name: getattr(settings, name) for name in names}
    this = RunFingerprint(chosen, describe_sources(find_sources(settings.text)), vars(TextOptions()))
    texts = {name: entry for name, entry in manifest["inputs"].items() if name.startswith("input-")}
    if this.changed_inputs(texts):
        text = short_list(settings.text, longest=_PATH)
        raise UserError(
            f"{folder} was made from other text than {text}; name that text, another --output, or start again with "
            "--overwrite"
        )
    for name in this.changed_choices(manifest["settings"]):
        before, now = manifest["settings"].get(name, this.defaults.get(name)), chosen[name]
        if (name, before) != ("errors", "strict"):  # then no line is skipped
            raise UserError(
                f"{folder} was made with {_flag(name, before)}, not {_flag(name, now)}; give the first, another "
                "--output, or start again with --overwrite"
            )
    return True


def _flag(name: str, value: str | int) -> str:
    if name == "uncased":
        return "--uncased" if value else "--cased"
    if value is None or isinstance(value, bool):
        flag = name.replace("_", "-")
        return f"the default of --{flag}" if value is None else f"--{'' if value else 'no-'}{flag}"
    return f"--{name.replace('_', '-')} {value}"


def is_document_per_file(text: list[str]) -> bool:
    """Whether each of several files of plain text is a document; in a single one, blank lines separate documents."""
    from mybert.io.sources import find_sources

    return sum(source.kind == ".txt" for source in find_sources(text)) > 1


def measure_text(settings: Any, one_per_file: bool) -> TextSize:
    """Counts what `settings.text` has."""
    from mybert.io.documents import read_documents

    documents = words = letters = 0
    characters: set[str] = set()
    unit, column = "file" if one_per_file else "paragraphs", settings.text_column
    for document in read_documents(settings.text, text_column=column, errors=settings.errors, plain_text=unit):
        documents += 1
        words += sum(1 for _ in _WORD.finditer(document.text))
        letters += len(document.text)
        characters.update(document.text)
    return TextSize(documents, max(words, letters // _CHARACTERS_PER_WORD), len(characters))


def _check_size(size: TextSize, settings: PretrainSettings, counting: float, used: float) -> None:
    least = budget_rules()["text"]["least_words"]
    if size.words < least:
        raise UserError(
            f"the text has {size.words:,} words; pretraining needs {least:,} or more. Add text, or adapt an existing "
            "BERT to this text: `mybert adapt TEXT --model NAME --output OUTPUT`"
        )
    building = _STARTING + _BUILDING * counting
    if settings.time_budget is not None and used + building > _MOST_BUILDING * settings.time_budget:
        fits = math.ceil((used + building) / _MOST_BUILDING / 60)
        share = max((_MOST_BUILDING * settings.time_budget - used) / building, 0)
        less = f", or name less text (about {share:.0%} of this fits)" if share > 0.05 else ""
        raise UserError(
            f"--time-budget {duration(settings.time_budget)} is too short for {size.words:,} words: vocabulary and "
            f"examples alone take about {duration(used + building)} on this machine; give {fits}m or more{less}"
        )


def vocabulary_size(size: TextSize, uncased: bool = True) -> int:
    """The number of tokens for a text, by the rule in budget_rules.yaml."""
    rule = budget_rules()["vocabulary"]
    alphabet = least_vocab_size(uncased) + rule["per_character"] * size.characters
    wanted = max(rule["per_root"] * math.sqrt(size.words), alphabet, rule["least"])
    return min(math.ceil(wanted / rule["multiple"]) * rule["multiple"], rule["most"])
