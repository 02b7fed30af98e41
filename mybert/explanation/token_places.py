"""Positions of a feature's tokens in the texts of its row."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from modeling_mybert.answer_decoding_mybert import end_with_marks
from mybert.finetuning.evaluation.tag_differences import joined
from mybert.finetuning.tasks.base import Task
from mybert.finetuning.tasks.token_classification import TokenClassification
from mybert.finetuning.tasks.word_windows import tokenize_words


class Text(NamedTuple):
    """
    Attributes:
        name: the input of the task, such as `text` or `question`.
        text: as given; words of a list are joined by spaces.
        ids: its tokens, without truncation.
    """

    name: str
    text: str
    ids: list[int]
    words: list[int]
    spans: list[tuple[int, int]]


class Place(NamedTuple):
    """A token's place in the texts of a row: index of the text, word, start and end."""

    text: int
    word: int
    start: int
    end: int


def texts_of(task: Task, row: dict, tokenizer: PreTrainedTokenizerBase, choice: int | None = None) -> list[Text]:
    """The texts that the model reads for a row (of multiple-choice, for a choice), in the order of reading."""
    if isinstance(task, TokenClassification):
        return [_words(row, tokenizer)]
    given = {name: row[name] for name in task.inputs if isinstance(row.get(name), str)}
    if choice is not None:
        given = {"context": row["context"], "choice": f"{row.get('start') or ''} {row['choices'][choice]}".strip()}
    backend = tokenizer.plain_text_backend()
    encoded = {name: (text, backend.encode(text, add_special_tokens=False)) for name, text in given.items()}
    return [
        Text(name, text, found.ids, list(found.word_ids), [(a, end_with_marks(text, b)) for a, b in found.offsets])
        for name, (text, found) in encoded.items()
    ]


def _words(row: dict, tokenizer: PreTrainedTokenizerBase) -> Text:
    ids, owners = tokenize_words(row["tokens"], tokenizer)
    if "offsets" in row:
        name, text, offsets = "text", row["text"], row["offsets"]
    else:
        name = "tokens"
        text, offsets = joined(row["tokens"])
    return Text(name, text, ids, owners, [tuple(offsets[word]) for word in owners])


def places_of(
    ids: Sequence[int], texts: Sequence[Text], tokenizer: PreTrainedTokenizerBase, begin: int = 0
) -> list[Place | None]:
    """The place of each token of a feature; None for special tokens.

    Args:
        ids: of the feature: a part of each text, followed by [SEP].
        begin: the token of the last text with which its part begins; less if the text then ends before the part.
    """
    places: list[Place | None] = [None] * len(ids)
    for number, (start, end) in enumerate(_parts(ids, tokenizer)):
        text, part = texts[number], list(ids[start:end])
        after = min(begin, len(text.ids) - len(part)) if number == len(texts) - 1 else 0
        first = _find(part, text.ids, after)
        for token in range(len(part)):
            places[start + token] = Place(number, text.words[first + token], *text.spans[first + token])
    return places


def _parts(ids: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> Iterator[tuple[int, int]]:
    """First token and token after the last of each part between special tokens."""
    start = 1  # after [CLS]
    for place, token in enumerate(ids):
        if token == tokenizer.sep_token_id:
            yield start, place
            start = place + 1


def _find(part: list[int], whole: list[int], after: int) -> int:
    """The first place at or after `after` where `whole` has `part`."""
    return next(start for start in range(after, len(whole)) if whole[start : start + len(part)] == part) if part else 0
