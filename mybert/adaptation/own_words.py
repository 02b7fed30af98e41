"""Read the file of `--words`: words to add to the vocabulary."""

import unicodedata
from collections.abc import Collection
from pathlib import Path

from mybert.common.error_messages import cause, short
from mybert.common.errors import UserError
from tokenization import MyBertTokenizer
from tokenization.pair_merging import PREFIX
from tokenization.wordpiece_training import MAX_WORD_CHARACTERS


def read_words(path: str, tokenizer: MyBertTokenizer) -> list[str]:
    """Reads words, one per line, normalised by the tokenizer. A line may be a `##` word piece."""
    try:
        lines = Path(path).read_bytes().decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--words {path}: {cause(error)}") from error
    vocabulary = tokenizer.get_vocab()
    words: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        if not line.strip():
            continue
        word = _read_word(line, f"--words {path}, line {number}", tokenizer, vocabulary)
        if word in words:
            raise UserError(f"--words {path}, line {number}: {short(line)} is also in line {words[word]}; remove one")
        words[word] = number
    if not words:
        raise UserError(f"--words {path} has no words; write one per line")
    return list(words)


def _read_word(line: str, place: str, tokenizer: MyBertTokenizer, vocabulary: Collection[str]) -> str:
    if any(unicodedata.category(character)[0] == "C" for character in line):
        raise UserError(f"{place}: {short(line)} contains a control character; remove it")
    if line != line.strip() or len(line.split()) != 1:
        raise UserError(f"{place}: {short(line)} contains a space; write one word a line, without spaces")
    known = UserError(f"{place}: {short(line)} is in the vocabulary already; remove the line")
    if line in vocabulary:  # also a word from add_tokens, which the tokenizer may split
        raise known
    prefix = PREFIX if line.startswith(PREFIX) and line != PREFIX else ""
    backend = tokenizer.backend_tokenizer
    text = backend.normalizer.normalize_str(line.removeprefix(prefix))
    parts = [part for part, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    if len(parts) != 1:
        found = f"splits it into {' '.join(parts)}; add its parts" if parts else "removes it; remove the line"
        raise UserError(f"{place}: {short(line)} is not one word: the tokenizer {found}")
    word = prefix + parts[0]
    if word in vocabulary:
        raise known
    if len(parts[0]) > MAX_WORD_CHARACTERS:
        raise UserError(f"{place}: a word of {len(parts[0])} characters; BERT reads at most {MAX_WORD_CHARACTERS}")
    return word
