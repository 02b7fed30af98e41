"""Read the file of `--words`: words to add to the vocabulary."""

import unicodedata
from pathlib import Path

from mybert.common.errors import UserError, cause, short
from tokenization import MyBertTokenizer
from tokenization.pair_merging import PREFIX
from tokenization.wordpiece_training import MAX_WORD_CHARACTERS

_SHOWN = 5
"""Invalid lines that a message shows."""


def read_words(path: str, tokenizer: MyBertTokenizer) -> list[str]:
    """Reads words, one per line, normalised by the tokenizer. A line may be a `##` word piece.

    Words that are in the vocabulary already are left out; their number is printed.

    Raises:
        UserError: the file cannot be read, has invalid lines, or has no new word.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"--words {path}: not UTF-8; save the file as UTF-8") from error
    except OSError as error:
        raise UserError(f"--words {path}: {cause(error)}") from error
    vocabulary = tokenizer.get_vocab()
    words: dict[str, int] = {}
    known: list[str] = []
    problems: list[str] = []
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line:
            continue
        try:  # a line in the vocabulary may be a word from add_tokens, which the tokenizer splits
            word = line if line in vocabulary else _read_word(line, tokenizer)
            if word in words:
                becomes = "" if line == word else f" becomes {short(word)}, which"
                raise UserError(f"{short(line)}{becomes} is also in line {words[word]}")
        except UserError as error:
            problems.append(f"line {number}: {error}")
            continue
        if word in vocabulary:
            known.append(line)
        else:
            words[word] = number
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise UserError(f"--words {path}: write one word per line; {'; '.join(problems[:_SHOWN])}{more}")
    count = len(words) + len(known)
    if not words:
        contents = (
            f"only words that are already in the vocabulary, for example {short(known[0])}" if known else "no words"
        )
        raise UserError(f"--words {path} has {contents}; write one new word per line")
    if known:
        are = "is" if len(known) == 1 else "are"
        print(f"{len(known):,} of {count:,} words {are} already in the vocabulary, for example {short(known[0])}")
    return list(words)


def _read_word(line: str, tokenizer: MyBertTokenizer) -> str:
    """
    Raises:
        UserError: the line is not one word; the message has no place.
    """
    if any(unicodedata.category(character)[0] == "C" for character in line):
        raise UserError(f"{short(line)} contains a control character")
    if len(line.split()) != 1:
        raise UserError(f"{short(line)} contains a space")
    prefix = PREFIX if line.startswith(PREFIX) and line != PREFIX else ""
    backend = tokenizer.backend_tokenizer
    text = backend.normalizer.normalize_str(line.removeprefix(prefix))
    parts = [part for part, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    if len(parts) != 1:
        effect = f"splits it into {' '.join(parts)}" if parts else "removes it"
        raise UserError(f"{short(line)} is not one word: the tokenizer {effect}")
    if len(parts[0]) > MAX_WORD_CHARACTERS:
        raise UserError(f"a word of {len(parts[0])} characters, BERT reads at most {MAX_WORD_CHARACTERS}")
    return prefix + parts[0]
