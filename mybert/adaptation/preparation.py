"""Prepare an adaptation: choose new words, extend the model, and build the training corpus."""

import contextlib
import dataclasses
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from modeling_mybert import MyBertForPreTraining
from mybert.adaptation.settings import AUTO, AdaptSettings
from mybert.adaptation.texts import digest, documents, held_out_texts, read_texts, sample, write_texts
from mybert.adaptation.vocabulary_tensors import change_rows
from mybert.adaptation.words_file import read_words
from mybert.artifacts.manifest import MANIFEST, write_json
from mybert.common.errors import UserError, short_list
from mybert.corpus.build import build_corpus
from mybert.corpus.settings import CorpusSettings
from mybert.inference.checkpoint import open_checkpoint
from mybert.inference.checkpoint_tokenizer import check_max_length, trained_tokens
from tokenization import MyBertTokenizer, vocabulary_report
from tokenization.new_words import MIN_DOCUMENTS, NewWord, choose_new_words, count_tokens, count_uses, describe_words
from tokenization.vocabulary_change import add_pieces, spell

START, CORPUS = "start", "corpus"
DOMAIN, GENERAL = "held_out_domain.jsonl", "held_out_general.jsonl"
_TRAINING = "training.jsonl"
_PAYS = 20_000
"""With --new-words auto, a word is added if it saves one of this number of tokens, ..."""
_LEAST_SAVED = 20
"""... and at least this number of tokens: its vector learns from these occurrences."""
_SAMPLE = 1000
"""Documents in which unknown words are counted."""
_UNREADABLE, _PARTLY_READABLE = 0.5, 0.1
"""Shares of unknown words above which a text is refused, or its share is printed."""
_MAX_LENGTH = 128
"""Default of --max-length, unless the model was trained on shorter sequences."""


def prepare(settings: AdaptSettings, work: Path, rows: Iterable[str] = (), seed: int = 0) -> dict[str, Any]:
    """Writes the extended model (`START`), the corpus (`CORPUS`) and the held-out texts into the folder `work`.

    Results of an interrupted call in `work` are used again.

    Args:
        rows: texts of labelled rows, used like those of `settings.inputs`.
        seed: determines which documents of `settings.replay` are used.

    Returns:
        Facts of the adaptation: `counts`, `new_head`, `new_words`, `new_ids`, `vocabulary_size`.

    Raises:
        UserError: an input cannot be used, or the text has no new words.
    """
    opened = open_checkpoint(settings.model, MyBertForPreTraining, new_head=True)
    model, tokenizer = opened.model, opened.tokenizer
    check_max_length(settings.max_length, model.config, settings.model)
    length = settings.max_length or min(_MAX_LENGTH, trained_tokens(model.config, tokenizer))
    if settings.max_length is None and length < _MAX_LENGTH:
        print(f"using --max-length {length}, the length that {settings.model} was trained on")
    new_head = any(key.startswith("cls.predictions.") for key in opened.missing)
    if new_head:
        kind = (model.config.architectures or ["encoder"])[0]
        print(f"{settings.model} ({kind}) has no masked-language-model head; a new one is initialised")
    if (Path(settings.model) / "modules.json").is_file():
        print(
            f"modules.json of the sentence encoder {settings.model} is left behind: the result is a masked language "
            "model. For sentence vectors, train it again, for example by examples/train_sentence_embeddings.py"
        )
    own = read_words(settings.words, tokenizer) if settings.words else []
    counts = _once(work / "counts.json", lambda: _write_texts(settings, work, rows, seed))
    chosen = _once(work / "words.json", lambda: _choose_words(settings, tokenizer, own, work))
    words = [NewWord(**word) for word in chosen]
    adapted, new_ids = _change_model(model, tokenizer, words, settings.model)
    _refuse_unknown(adapted, work, settings.model)
    model.save_pretrained(work / START)
    adapted.save_pretrained(work / START)
    _build_corpus(settings, work, length)
    return {
        "counts": {**counts, "parameters": model.num_parameters()},
        "new_head": new_head,
        "new_words": chosen,
        "new_ids": new_ids,
        "vocabulary_size": {"before": len(tokenizer), "after": len(adapted)},
    }


def _once(file: Path, make: Callable[[], Any]) -> Any:
    """The result of `make`, stored in the file and read from it after an interruption."""
    if not file.is_file():
        write_json(file, make())
    return json.loads(file.read_text(encoding="utf-8"))


def _write_texts(settings: AdaptSettings, work: Path, rows: Iterable[str], seed: int) -> dict[str, Any]:
    everything, skipped = work / "domain.jsonl", Counter[str]()
    write_texts(everything, _distinct(chain(documents(settings.inputs or [], settings, skipped), rows), skipped))
    held = held_out_texts(everything, settings.validation_share)
    counts = Counter(digest(text) in held for text in read_texts(everything))
    if not counts:
        raise UserError("no document holds text; check the inputs and --text-column")
    characters = write_texts(work / _TRAINING, _part(everything, held, is_held=False))
    write_texts(work / DOMAIN, _part(everything, held, is_held=True))
    facts: dict[str, Any] = {"documents": counts[False], "documents_held_out": counts[True], "characters": characters}
    facts |= {"skipped": dict(skipped)} if skipped else {}
    return facts | _write_general(settings, work, characters, seed)


def _distinct(texts: Iterable[str], skipped: Counter[str]) -> Iterator[str]:
    """Removes copies, so that a word counts once per distinct document."""
    seen = set()
    for text in texts:
        if (key := digest(text)) in seen:
            skipped["duplicate documents"] += 1
        else:
            seen.add(key)
            yield text


def _write_general(settings: AdaptSettings, work: Path, domain: int, seed: int) -> dict[str, int]:
    """Writes the replayed and the held-out general text. `domain`: characters of the domain."""
    if settings.general:
        _write_given("general", settings, work / GENERAL)
    if not settings.replay:
        return {}
    everything = work / "general.jsonl"
    _write_given("replay", settings, everything)
    held = held_out_texts(everything, settings.validation_share)
    room = int(domain * settings.replay_share / (1 - settings.replay_share))
    replay = sample(lambda: _part(everything, held, is_held=False), room, seed)
    replayed = write_texts(work / f"replay-{_TRAINING}", replay)
    if not settings.general:
        write_texts(work / GENERAL, _part(everything, held, is_held=True))
    return {"replay_characters": replayed}


def _write_given(name: str, settings: AdaptSettings, path: Path) -> None:
    """Writes the texts of the setting `name`."""
    if not write_texts(path, documents(getattr(settings, name), settings)):
        raise UserError(f"--{name}: no document holds text; check the inputs and --text-column")


def _part(path: Path, held: set[bytes], *, is_held: bool) -> Iterator[str]:
    return (text for text in read_texts(path) if (digest(text) in held) == is_held)


def _choose_words(
    settings: AdaptSettings, tokenizer: MyBertTokenizer, own: list[str], work: Path
) -> list[dict[str, Any]]:
    """The new words as dictionaries."""
    vocabulary, unk = tokenizer.get_vocab(), tokenizer.unk_token
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    if not own and not settings.limit:
        return []
    uses = count_uses(read_texts(work / _TRAINING), tokenizer.backend_tokenizer)
    words = describe_words(own, uses, pieces, unk)
    if unused := [word.piece for word in words if not word.words]:
        print(
            f"warning: {len(unused):,} of {len(own):,} words of --words are not in the training text; their vectors "
            f"are hardly trained: {short_list(unused)}"
        )
    if not settings.limit:
        return list(map(dataclasses.asdict, words))
    least = MIN_DOCUMENTS
    if settings.new_words == AUTO:
        least = max(_LEAST_SAVED, count_tokens(uses, pieces, unk) // _PAYS)
    chosen = choose_new_words(uses, [*pieces, *own], settings.limit, least_saving=least, unk_token=unk)
    if not chosen:
        raise UserError(
            f"no new word occurs in {MIN_DOCUMENTS} documents, which blank lines separate in text files; add text, or "
            "use --new-words 0 to continue pretraining with the same vocabulary"
        )
    if settings.new_words != AUTO and len(chosen) < settings.limit:
        print(f"--new-words {settings.limit:,}: the text has only {len(chosen):,} suitable new words")
    words += [dataclasses.replace(word, pieces=spell(word.piece, vocabulary) or [unk]) for word in chosen]
    return list(map(dataclasses.asdict, words))


def _change_model(
    model: MyBertForPreTraining, tokenizer: MyBertTokenizer, words: list[NewWord], name: str
) -> tuple[MyBertTokenizer, list[int]]:
    """Adds rows to the model; returns the new tokenizer and the ids of the new words."""
    if not words:
        return tokenizer, []
    base = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
    added = {token.content for token in tokenizer.added_tokens_decoder.values()}
    new = [word.piece for word in words]
    pieces, origins = add_pieces(sorted(base, key=base.__getitem__), new, tokenizer.unk_token, used=added)
    adapted = tokenizer.with_vocabulary(pieces)
    behind = range(len(base), len(tokenizer))  # words from add_tokens stay behind the vocabulary
    if behind and (growth := len(pieces) - len(base)):
        print(f"the ids of the {len(behind):,} tokens from add_tokens of {name} increase by {growth:,}")
    origins += [[row] for row in behind]
    origins += [[row] for row in range(len(origins), model.config.vocab_size)]  # without a token
    change_rows(model, origins)
    ids = adapted.get_vocab()
    return adapted, [ids[word.piece] for word in words]


def _refuse_unknown(tokenizer: MyBertTokenizer, work: Path, name: str) -> None:
    """Refuses text that is mostly [UNK] after the change of the vocabulary, and warns of text that is so in part."""
    uses = count_uses(islice(read_texts(work / _TRAINING), _SAMPLE), tokenizer.backend_tokenizer)
    counts = {word: use.count for word, use in uses.items()}
    share = vocabulary_report(counts, tokenizer.backend_tokenizer)["unknown rate"]
    if share > _UNREADABLE:
        raise UserError(
            f"{name} cannot read the text: {share:.0%} of its words are {tokenizer.unk_token}; use a model whose "
            "vocabulary has the characters of the text, or add them by --words"
        )
    if share > _PARTLY_READABLE:
        print(f"{share:.0%} of the words of the text are {tokenizer.unk_token} with the vocabulary of {name}")


def _build_corpus(settings: AdaptSettings, work: Path, max_length: int) -> None:
    if (work / CORPUS / MANIFEST).is_file():
        return
    texts = sorted(work.glob(f"*{_TRAINING}"))
    with contextlib.redirect_stdout(io.StringIO()):  # a report with paths of the temporary folder
        build_corpus(
            CorpusSettings(
                [str(path) for path in texts],
                output=str(work / CORPUS),
                tokenizer=str(work / START),
                max_length=max_length,
                nsp=False,
                validation_share=settings.validation_share,
                num_proc=settings.num_proc,
                resume=settings.resume,
            )
        )
