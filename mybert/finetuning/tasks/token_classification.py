"""token-classification: a tag for each word: parts of speech, or entities."""

import functools
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from datasets import Dataset
from scipy.special import softmax
from transformers import DataCollatorForTokenClassification, PreTrainedTokenizerBase

from modeling_mybert import MyBertForTokenClassification
from mybert.common.error_messages import short
from mybert.common.errors import UserError
from mybert.common.settings import setting
from mybert.common.text_windows import cut_windows
from mybert.finetuning.data.conll import read_columns
from mybert.finetuning.data.labels import check_label, label_name, sort_labels
from mybert.finetuning.data.span_annotations import COLUMNS, VERDICT, words_and_tags
from mybert.finetuning.evaluation import bootstrap_scores as class_scores
from mybert.finetuning.evaluation import entity_scores as entities
from mybert.finetuning.evaluation.tag_differences import joined, tag_differences
from mybert.finetuning.tasks.base import ROW, Matrix, Problem, Task, WindowOptions, map_rows
from mybert.io.files import file_format

logger = logging.getLogger(__name__)

_NOT_COLUMNS = {".json", ".jsonl", ".parquet", ".xlsx"}
_CONSTANTS = 20  # tags at most
_IGNORED = -100  # a label that transformers' losses leave out
_RAW = ("text", "offsets")  # columns of rows that were texts


@dataclass(kw_only=True)
class TokenOptions(WindowOptions):
    """Options of token-classification."""

    defaults: ClassVar[Mapping[str, Any]] = {"max_length": 128, "label_all_tokens": False}

    label_all_tokens: bool | None = setting(
        None, "token-classification: label all tokens of a word instead of the first one (default: false)."
    )


@dataclass(frozen=True, eq=False)
class TokenClassification(Task):
    """A tag for each word: of its first token, or of the mean logits of all its tokens.

    Rows are lists of words with their tags, or texts with character spans, which are split into words (see
    `span_annotations`). A sentence of more than `max_length` tokens is split into windows; each word is trained and
    predicted in the window where its first token has the most context. Tags of entities (B-PER, I-PER) are scored as
    entities, in the tagging scheme of the training rows; other tags are scored one by one.
    """

    name = "token-classification"
    head = MyBertForTokenClassification
    aliases = ("ner", "pos", "tagging")
    Options = TokenOptions
    inputs: ClassVar[Mapping] = {"tokens": ("tokens", "words")}
    targets: ClassVar[Mapping] = {"tags": ("tags", "ner_tags", "upos", "pos", "pos_tags", "labels")}
    alternatives: ClassVar[Mapping] = {**COLUMNS, **VERDICT}
    counted = "labels"

    # Rows

    def read(self, path: Path) -> Dataset | None:
        """A CoNLL file; JSON and Parquet are left to `datasets`."""
        return None if file_format(path).kind in _NOT_COLUMNS else read_columns(path)

    def column_roles(self, names: Sequence[str], labelled: bool) -> Mapping[str, tuple[str, ...]]:
        """Texts with spans if the rows have such columns, else words with tags."""
        given = self.options.given_columns()

        def has(role: str, *candidates: str) -> bool:
            return not {*candidates, given.get(role)}.isdisjoint(names)

        has_text = has("text", *COLUMNS["text"])
        has_words = has("tokens", *self.inputs["tokens"]) and given.get("text") not in names
        has_tags = labelled and has("tags", *self.targets["tags"])
        has_spans = has("spans", "spans", "entities", "ents", "annotations")
        if not has_text or (has_words and (has_tags or not has_spans)):
            return super().column_roles(names, labelled)
        is_prodigy = labelled and "_task_hash" in names and "answer" in names
        return {**(COLUMNS if labelled else {"text": COLUMNS["text"]}), **(VERDICT if is_prodigy else {})}

    def prepare(self, rows: Dataset) -> Dataset:
        """Splits texts into words, and aligns their spans with the words."""
        is_text = "text" in rows.column_names and "tokens" not in rows.column_names
        return words_and_tags(rows) if is_text else rows

    def plain_row(self, line: str, source: str) -> dict:
        """The line as a text."""
        words = line.split()
        if len(words) > 1 and self._scheme is not None and words[-1] in self.config.label2id and words[-1] != "O":
            _warn_of_columns()
        return {self.options.given_columns().get("text", "text"): line}

    def check_rows(self, rows: Dataset, training: bool) -> list[Problem]:
        known = None if training else self.config.label2id
        problems = []
        for number, row in enumerate(rows):
            message = _tokens_message(row["tokens"]) or row.get("problem")
            message = message or ("tags" in row and _tags_message(row, known))
            if message:
                problems.append(Problem(number, message))
        if not training and not problems and "tags" in rows.column_names:
            self._warn_of_lost(self.references(rows))
        return problems

    def _warn_of_lost(self, tags: list[list[str]]) -> None:
        """Tags of entities that are scored as none, as in seqeval's strict mode."""
        if self._scheme is not None and (lost := entities.lost(tags, self._scheme)):
            logger.warning(
                "%d words have a tag of an entity and count as none, since the tags around break %s, the scheme that "
                "most training rows follow; write all rows in one scheme",
                *(lost, self._scheme),
            )

    def label_distribution(self, rows: Dataset) -> Counter:
        return Counter(tag for tags in self.references(rows) for tag in tags)

    def token_ids(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> Iterator[Sequence[int]]:
        for tokens in rows["tokens"]:
            ids, _ = _pieces(tokens, tokenizer)
            yield [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]

    # Model

    def fitted(self, rows: Dataset) -> Self:
        tags = self.references(rows)
        names = sort_labels(tag for row in rows["tags"] for tag in row)
        if len(names) < 2:
            raise UserError(f"the training rows have no other tag than {names}; a tagger needs two or more")
        names.sort(key=lambda name: name != "O")  # O first, the others in their order
        task = self.with_labels(names, tag_scheme=entities.scheme_of(tags))
        task._warn_of_lost(tags)
        return task

    def features(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> Dataset:
        """With `words`: for each token the word that it is read for, or -1."""
        size = self.options.max_length - 2
        stride = self.options.max_length // 3 if self.options.stride is None else self.options.stride
        if stride >= size:
            raise UserError(f"--stride {stride}: expected less than the {size} tokens of a window's text")
        every_piece = self.options.label_all_tokens

        def encode(batch: Mapping[str, list], indices: list[int]) -> dict[str, list]:
            columns = {"input_ids": [], "words": [], ROW: [], **({"labels": []} if "tags" in batch else {})}
            for i, row in enumerate(indices):
                ids, owners = _pieces(batch["tokens"][i], tokenizer)
                for start, end, words in window_words(owners, size, stride, every_piece):
                    words = [-1, *words, -1]
                    columns["input_ids"].append([tokenizer.cls_token_id, *ids[start:end], tokenizer.sep_token_id])
                    columns["words"].append(words)
                    columns[ROW].append(row)
                    if "tags" in batch:
                        tags = [self.config.label2id[label_name(tag)] for tag in batch["tags"][i]]
                        columns["labels"].append([_IGNORED if word < 0 else tags[word] for word in words])
            columns["attention_mask"] = [[1] * len(ids) for ids in columns["input_ids"]]
            return columns

        return map_rows(rows, encode)

    def collator(self, tokenizer: PreTrainedTokenizerBase) -> Callable:
        return DataCollatorForTokenClassification(tokenizer, label_pad_token_id=_IGNORED)

    # Results

    def decode(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> list[dict]:
        """`tokens`, `tags` and their probabilities, `scores`; with tags of entities also `entities`.

        An entity has `type`, `start`, `end`, `text` and `score`, the mean probability of its tags. `unit` names what
        `start` and `end` count, from 0: characters in rows of texts, which also have the `offsets` of each token, and
        words in rows of tokens.
        """
        tokens = list(rows["tokens"])
        summed = [np.zeros((len(words), self.config.num_labels)) for words in tokens]
        for row, words, found in zip(features[ROW], features["words"], logits, strict=True):
            words = np.asarray(words)
            places = np.flatnonzero(words >= 0)
            np.add.at(summed[row], words[places], found[places].astype(np.float64))
        counts = [np.zeros(len(words)) for words in tokens]
        for row, words in zip(features[ROW], features["words"], strict=True):
            np.add.at(counts[row], [word for word in words if word >= 0], 1)
        texts, offsets = (rows[name] if name in rows.column_names else [None] * len(rows) for name in _RAW)
        return [
            self._prediction(words, total / count[:, None], text, places)
            for words, total, count, text, places in zip(tokens, summed, counts, texts, offsets, strict=True)
        ]

    def _prediction(
        self, tokens: list[str], logits: np.ndarray, text: str | None, offsets: list[list[int]] | None
    ) -> dict:
        scores = softmax(logits, axis=1)
        tags = [self.config.id2label[best] for best in scores.argmax(1).tolist()]
        prediction = {"tokens": tokens, "tags": tags, "scores": scores.max(1).tolist()}
        if text is not None:
            prediction["offsets"] = offsets
        if self._scheme is None:
            return prediction
        prediction["unit"] = "words" if text is None else "characters"
        prediction["entities"] = []
        for first, last, kind in sorted(entities.find([tags], self._scheme)[0]):
            score = float(scores[first:last].max(1).mean())
            start, end = (first, last) if text is None else (offsets[first][0], offsets[last - 1][1])
            shown = " ".join(tokens[first:last]) if text is None else text[start:end]
            prediction["entities"].append({"type": kind, "start": start, "end": end, "text": shown, "score": score})
        return prediction

    @property
    def _scheme(self) -> str | None:
        """A checkpoint that was fine-tuned elsewhere does not say; its labels may."""
        if hasattr(self.config, "tag_scheme"):
            return self.config.tag_scheme
        return entities.scheme_of_labels(self.config.label2id)

    def references(self, rows: Dataset) -> list[list[str]]:
        return [[label_name(tag) for tag in tags] for tags in rows["tags"]]

    def baseline_predictions(self, references: Sequence) -> list[list[dict]]:
        """The commonest tags: of entities, O has the best accuracy and another the best F1."""
        counts = Counter(itertools.chain(*references)).most_common(1 if self._scheme is None else _CONSTANTS)
        return [[{"tags": [tag] * len(tags)} for tags in references] for tag, _ in counts]

    @property
    def best_metric(self) -> str:
        return "accuracy" if self._scheme is None else "f1"

    @property
    def classes(self) -> int:
        return self.config.num_labels

    def bootstrap(self, predictions: Sequence[dict], references: Sequence, samples: np.ndarray) -> dict[str, list]:
        """Precision, recall and F1 of entities, where tags are entities; accuracy of tags."""
        said = [prediction["tags"] for prediction in predictions]
        right = np.array([sum(map(str.__eq__, *pair)) for pair in zip(said, references, strict=True)])
        sizes = np.array([len(tags) for tags in references])
        scores = {} if self._scheme is None else entities.score(said, references, self._scheme, samples)
        return {**scores, "accuracy": (right[samples].sum(1) / sizes[samples].sum(1)).tolist()}

    def errors(self, predictions: Sequence[dict], references: Sequence) -> list[float]:
        """The number of wrong tags."""
        return [
            float(sum(map(str.__ne__, prediction["tags"], tags)))
            for prediction, tags in zip(predictions, references, strict=True)
        ]

    def describe_error(self, prediction: dict, reference: Any, row: dict) -> list[str]:
        text, offsets = (row["text"], row["offsets"]) if "offsets" in row else joined(row["tokens"])
        return tag_differences(text, offsets, prediction["tags"], reference, self._scheme)

    def labelled_spans(self, predictions: Sequence[dict], references: Sequence) -> tuple[set[tuple], set[tuple]]:
        """Entities, where tags are entities; else tags."""
        both = [prediction["tags"] for prediction in predictions], references
        if self._scheme is None:
            return tuple({(tag, word) for word, tag in enumerate(itertools.chain(*each))} for each in both)
        found = (entities.find(each, self._scheme) for each in both)
        return tuple(
            {(kind, (row, start, end)) for row, some in enumerate(each) for start, end, kind in some} for each in found
        )

    def matrix(self, predictions: Sequence[dict], references: Sequence) -> Matrix:
        ids = self.config.label2id
        said = np.array([ids[tag] for prediction in predictions for tag in prediction["tags"]])
        true = np.array([ids[tag] for tags in references for tag in tags])
        counts = class_scores.confusion(said, true, self.config.num_labels, class_scores.every_row(true))[0]
        return Matrix([self.config.id2label[i] for i in range(self.config.num_labels)], counts)


@functools.cache
def _warn_of_columns() -> None:
    """Warns once that a line looks like a line of a CoNLL file."""
    logger.warning(
        "a line ends in a tag, which is read as a word: .txt and standard input hold one text per line; rename a file "
        "of columns to .conll"
    )


def window_words(
    owners: Sequence[int], size: int, stride: int, every_piece: bool
) -> Iterator[tuple[int, int, list[int]]]:
    """Windows over the pieces of a sentence, and the words that are read in each.

    Args:
        owners: the word of each piece, not decreasing.
        size, stride: see `cut_windows`; a word is read in the window that keeps its first piece.
        every_piece: whether a word is read from all of its pieces that the window shows, or from the first.

    Yields:
        First piece, the piece after the last, and for each piece between them the word that it is read for, or -1.
    """
    is_first = [owner != before for owner, before in zip(owners, [None, *owners], strict=False)]
    for start, end, kept_start, kept_end in cut_windows(len(owners), size, stride):
        kept = slice(kept_start, kept_end)
        read = set(itertools.compress(owners[kept], is_first[kept]))
        pieces = zip(owners[start:end], is_first[start:end], strict=True)
        yield start, end, [owner if owner in read and (first or every_piece) else -1 for owner, first in pieces]


def _pieces(words: list[str], tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Ids and the word of each; a word of which the tokenizer keeps nothing becomes [UNK], so that it gets a tag."""
    encoded = tokenizer(words, add_special_tokens=False, split_special_tokens=True, return_attention_mask=False)
    pieces = [ids or [tokenizer.unk_token_id] for ids in encoded["input_ids"]]
    return [i for ids in pieces for i in ids], [word for word, ids in enumerate(pieces) for _ in ids]


def _tokens_message(tokens: Any) -> str | None:
    if not isinstance(tokens, list):
        return f"the tokens {short(tokens)} are not a list of words"
    if not tokens:
        return "the sentence is empty"
    bad = next((i for i, word in enumerate(tokens) if not isinstance(word, str) or not word.strip()), None)
    return None if bad is None else f"token {bad + 1} is missing or empty"


def _tags_message(row: Mapping[str, Any], known: Mapping[str, int] | None) -> str | None:
    tokens, tags = row["tokens"], row["tags"]
    if not isinstance(tags, list):
        return f"the tags {short(tags)} are not a list"
    if len(tags) != len(tokens):
        return f"{len(tokens)} tokens, but {len(tags)} tags"
    for place, tag in enumerate(tags):
        message = check_label(tag, known)
        if message:
            return f"token {place + 1} ({short(tokens[place])}): {message}"
    return None
