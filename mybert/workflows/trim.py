"""`mybert trim`: remove from a model the tokens that a text does not contain; outputs on the text stay equal."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedModel

from mybert.adaptation.settings import TrimSettings
from mybert.adaptation.texts import documents
from mybert.adaptation.vocabulary_tensors import change_rows
from mybert.artifacts.manifest import RESULTS, identity, write_json, write_manifest
from mybert.artifacts.staging import staged_folder
from mybert.common.errors import UserError
from mybert.common.json_io import read_json_object
from mybert.common.quantities import with_unit
from mybert.common.tables import print_table
from mybert.inference.checkpoint import open_checkpoint
from mybert.inference.checkpoint_tokenizer import no_tokenizer
from mybert.inference.sentence_modules import find_modules
from mybert.io.sources import describe_sources, find_sources
from mybert.release.card.card_data import PARENT
from mybert.release.convert.companions import save_companions
from mybert.workflows.adapt import task_texts
from tokenization import MyBertTokenizer
from tokenization.vocabulary_change import keep_pieces, longest_matches
from tokenization.wordpiece_training import MAX_WORD_CHARACTERS

STAGE = "trim"
_BATCH = 1000  # documents encoded at once


def trim(settings: TrimSettings) -> Path:
    """Writes the model without the tokens that do not occur in the text.

    Special tokens, words from `add_tokens`, the prompts of a sentence encoder and single characters stay. Outputs on
    the text are bitwise equal; logits of the remaining tokens are equal up to rounding.

    Returns:
        The folder: model, tokenizer and a manifest with the sizes before and after.

    Raises:
        UserError: the checkpoint or a text cannot be used, or no token can be removed. Nothing is written then.
    """
    checkpoint = open_checkpoint(settings.model)
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    if tokenizer is None:
        raise no_tokenizer(settings.model)
    counts: Counter[str] = Counter()
    prompts = find_modules(settings.model)[0].prompts.values()  # which a sentence encoder puts before each text
    needed = _needed_pieces(chain(_documents(settings, counts), prompts), tokenizer)
    trimmed, kept = _trim_tokenizer(tokenizer, needed)
    if len(kept) == model.config.vocab_size:
        raise UserError(f"the text needs all {len(kept):,} tokens of {settings.model}; there is nothing to trim")
    before = _size(model)
    change_rows(model, [[index] for index in kept])
    after = _size(model)
    inputs = [settings.model, *(settings.inputs or []), *settings.task_data]
    with staged_folder(settings.output, overwrite=settings.overwrite, stage=STAGE, inputs=inputs) as folder:
        model.save_pretrained(folder)
        save_companions(dataclasses.replace(checkpoint, tokenizer=trimmed), folder)
        if (parent := Path(settings.model) / RESULTS).is_file():
            results = read_json_object(parent, "restore it, or remove it")
            write_json(folder / RESULTS, {PARENT: results.get(PARENT, results)})
        write_manifest(
            folder,
            STAGE,
            settings=settings,
            inputs={
                "model": identity(settings.model),
                **describe_sources(find_sources(settings.inputs or [])),
                **{f"task_data-{number}": identity(name) for number, name in enumerate(settings.task_data)},
            },
            counts={**counts, "parameters": after["parameters"]},
            architecture=type(model).__name__,
            trimmed={"before": before, "after": after},
        )
    _print(settings, before, after)
    return Path(settings.output)


def _documents(settings: TrimSettings, counts: Counter[str]) -> Iterator[str]:
    for text in chain(documents(settings.inputs or [], settings), task_texts(settings)):
        counts["documents"] += 1
        counts["characters"] += len(text)
        yield text
    if not counts["documents"]:
        raise UserError("no document holds text; check the inputs and --text-column")


def _needed_pieces(documents: Iterator[str], tokenizer: MyBertTokenizer) -> set[str]:
    """The tokens of the text, with special tokens in it read as such and as plain text."""
    whole = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    whole.no_truncation()
    whole.no_padding()
    needed = {*tokenizer.all_special_tokens, *(token.content for token in tokenizer.added_tokens_decoder.values())}
    unknown: set[str] = set()
    while batch := list(islice(documents, _BATCH)):
        for backend in (whole, tokenizer.plain_text_backend()):
            for text, encoding in zip(batch, backend.encode_batch(batch, add_special_tokens=False), strict=True):
                needed.update(tokens := encoding.tokens)
                if tokenizer.unk_token in tokens:
                    places = zip(tokens, encoding.offsets, strict=True)
                    unknown.update(text[start:end] for token, (start, end) in places if token == tokenizer.unk_token)
    vocabulary = whole.get_vocab(with_added_tokens=False)
    for text in unknown:
        for word, _ in whole.pre_tokenizer.pre_tokenize_str(whole.normalizer.normalize_str(text)):
            if len(word) <= MAX_WORD_CHARACTERS:  # longer ones are always unknown
                needed.update(longest_matches(word, vocabulary)[0])
    return needed


def _trim_tokenizer(tokenizer: MyBertTokenizer, needed: set[str]) -> tuple[MyBertTokenizer, list[int]]:
    """The new tokenizer, and the old id of each of its tokens."""
    base = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
    trimmed = tokenizer.with_vocabulary(keep_pieces(sorted(base, key=base.__getitem__), needed))
    old, new = tokenizer.get_vocab(), trimmed.get_vocab()  # a lower-cased word from add_tokens has no id by its name
    return trimmed, [old[token] for token in sorted(new, key=new.__getitem__)]


def _size(model: PreTrainedModel) -> dict[str, int]:
    size = model.get_memory_footprint(return_buffers=False)
    return {"tokens": model.config.vocab_size, "parameters": model.num_parameters(), "bytes": size}


def _print(settings: TrimSettings, before: dict[str, int], after: dict[str, int]) -> None:
    rows: list[tuple[Any, ...]] = [
        (name, before[name], after[name], f"{after[name] / before[name]:.1%}") for name in ("tokens", "parameters")
    ]
    sizes = [with_unit(counts["bytes"], "B") for counts in (before, after)]
    rows.append(("size", *sizes, f"{after['bytes'] / before['bytes']:.1%}"))
    print_table(f"{settings.model} trimmed", rows, ("", "before", "after", "remaining"))
