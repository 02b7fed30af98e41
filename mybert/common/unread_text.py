"""Pairs of texts that are far longer than a model reads, shortened before they are tokenised."""

from transformers import PreTrainedTokenizerBase

_CHARACTERS = 32  # read at first for each token


def without_unread_end(first: str, second: str, tokenizer: PreTrainedTokenizerBase, tokens: int) -> tuple[str, str]:
    """The pair with the same tokens when it is truncated to `tokens` ("longest first"), and with an end to truncate.

    The tokenizers library keeps what it truncates, for a pair in every combination of its parts, so that two texts of
    a megabyte would take minutes and gigabytes. Cutting one text is enough. It is the one with fewer tokens, since an
    odd token goes to the longer text. Words do not depend on each other across a space: the text is cut there, or not
    at all.
    """
    if min(len(first), len(second)) <= 2 * _CHARACTERS * tokens:
        return first, second
    if any(" " in token or "\n" in token for token in tokenizer.get_added_vocab()):
        return first, second
    if _count(first, tokenizer) <= _count(second, tokenizer):
        return _begin(first, tokenizer, tokens), second
    return first, _begin(second, tokenizer, tokens)


def _begin(text: str, tokenizer: PreTrainedTokenizerBase, tokens: int) -> str:
    """The beginning of a text up to a space, with more than `tokens` tokens."""
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
