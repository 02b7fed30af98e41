"""Shorten pairs of very long texts before tokenization."""

from transformers import PreTrainedTokenizerBase

_CHARACTERS = 32  # read at first for each token


def without_unread_end(first: str, second: str, tokenizer: PreTrainedTokenizerBase, tokens: int) -> tuple[str, str]:
    """Shortens one text of a pair; truncation to `tokens` tokens ("longest first") still gives the same result.

    The tokenizers library stores the truncated tokens, for a pair in every combination of its parts, so two texts of a
    megabyte would take minutes and gigabytes. Shortening one text is enough. It is the one with fewer tokens, because
    the longer text gets the odd token. The text is cut at a space, across which the tokenisation is independent, or
    not at all.
    """
    if min(len(first), len(second)) <= 2 * _CHARACTERS * tokens or tokenizer.truncation_side != "right":
        return first, second
    if any(" " in token or "\n" in token for token in tokenizer.get_added_vocab()):
        return first, second
    if _count(first, tokenizer) <= _count(second, tokenizer):
        return _begin(first, tokenizer, tokens), second
    return first, _begin(second, tokenizer, tokens)


def _begin(text: str, tokenizer: PreTrainedTokenizerBase, tokens: int) -> str:
    """The beginning of a text up to a space; it has more than `tokens` tokens."""
    size = _CHARACTERS * tokens
    while 2 * size < len(text):
        ends = [end for end in (text.find(" ", size), text.find("\n", size)) if end >= 0]
        if not ends:
            return text
        begin = text[: min(ends)]
        if _count(begin, tokenizer) > tokens:
            return begin
        size *= 4
    return text


def _count(text: str, tokenizer: PreTrainedTokenizerBase) -> int:
    return len(tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])
