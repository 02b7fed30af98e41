"""Statistics of a vocabulary on a corpus."""

from collections.abc import Mapping

from tokenizers import Tokenizer


def vocabulary_report(word_counts: Mapping[str, int], backend: Tokenizer) -> dict[str, int | float]:
    """Measure the vocabulary of `backend` on words counted by `count_words` with the same backend.

    Words are weighted by their counts.

    Returns:
        `vocabulary size`: number of tokens, including `[unusedN]`.
        `words`, `distinct words`: numbers of words measured.
        `unknown rate`: share of words that become [UNK].
        `tokens per word`: mean; [UNK] counts as one.
        `words kept whole`: share of words that are a single token.
        `character coverage`: share of characters that have a token for their place in the word.
    """
    vocab, model = backend.get_vocab(), backend.model
    prefix, unk_token = model.continuing_subword_prefix, model.unk_token
    words = unknown = pieces = whole = characters = covered = 0
    for word, n in word_counts.items():
        tokens = model.tokenize(word)
        is_unknown = len(tokens) == 1 and tokens[0].value == unk_token
        words += n
        unknown += n * is_unknown
        pieces += n * len(tokens)
        whole += n * (len(tokens) == 1 and not is_unknown)
        characters += n * len(word)
        spelt = len(word)
        if is_unknown:
            spelt = (word[0] in vocab) + sum(prefix + character in vocab for character in word[1:])
        covered += n * spelt
    return {
        "vocabulary size": len(vocab),
        "words": words,
        "distinct words": len(word_counts),
        "unknown rate": unknown / max(words, 1),
        "tokens per word": pieces / max(words, 1),
        "words kept whole": whole / max(words, 1),
        "character coverage": covered / max(characters, 1),
    }
