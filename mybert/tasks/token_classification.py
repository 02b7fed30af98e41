"""token-classification: a tag for each word, such as parts of speech or entities."""

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from datasets import Dataset
from scipy.special import softmax
from transformers import DataCollatorForTokenClassification, PreTrainedTokenizerBase

from modeling_mybert import MyBertForTokenClassification
from modeling_mybert.entities_mybert import Entity, TagSet, entity_spans, read_tags
from modeling_mybert.words_mybert import AddedTokens, WordSplitter
from mybert.common.errors import UserError, short_list, warn_once
from mybert.common.quantities import counted
from mybert.rows.annotations import COLUMNS, VERDICT, words_and_tags
from mybert.rows.conll import Sentences, read_word_file
from mybert.rows.label_columns import expand_label
from mybert.rows.labels import is_missing, label_name, sort_labels
from mybert.rows.splits import Problem
from mybert.rows.tables import usual_columns, with_column
from mybert.rows.tag_checks import at_all_positions, tag_problems, tag_set_of, tokens_message, without_spaces
from mybert.rows.word_rules import learn_word_rules
from mybert.tasks import entities
from mybert.tasks.base import ColumnNames, Prediction, Task
from mybert.tasks.bootstrap_scores import LabelScores, Scorer, Scores, by_label
from mybert.tasks.entities import joined, tag_differences
from mybert.tasks.features import ROW, map_rows
from mybert.tasks.options import TokenClassificationOptions
from mybert.tasks.word_tokens import WORDS, encode_words, tokenize_words, word_logits

_BASELINES = 20  # constant predictions
_IGNORED = -100  # a label that transformers' losses leave out
_RAW = ("text", "offsets")  # columns of rows that were texts


@dataclass(frozen=True, eq=False)
class TokenClassification(Task):
    """A tag for each word: of its first token, or of the mean logits of all its tokens.

    Rows are lists of words with their tags, or texts with character spans, which are split into words (see
    `annotations`). A sentence of more than `max_length` tokens is split into windows; each word is trained and
    predicted in the window where its first token has the most context. Tags of entities (see `read_tags`) are scored
    as entities, other tags one by one.

    Attributes:
        added: finds the tokens that a user added to the tokenizer, which are words.
    """

    added: AddedTokens | None = None

    options: TokenClassificationOptions

    name = "token-classification"
    head = MyBertForTokenClassification
    Options = TokenClassificationOptions
    inputs: ClassVar[ColumnNames] = {"tokens": ("tokens", "words", "token", "word")}
    targets: ClassVar[ColumnNames] = {"tags": ("tags", "ner_tags", "upos", "pos", "pos_tags", "chunk_tags", "labels")}
    alternatives: ClassVar[ColumnNames] = {**COLUMNS, **VERDICT}
    counted = "labels"

    # Rows

    def read(self, path: Path) -> Sentences | None:
        """A file of one word per line. JSON, Parquet and tables of sentences are left to the common readers."""
        labels = self.label2id if hasattr(self.config, "tag_scheme") else None
        return read_word_file(path, self.options.given_columns(), {**self.inputs, **self.targets}, labels)

    def find_columns(self, names: Sequence[str], source: str, labelled: bool) -> dict[str, str]:
        """As for every task; numbers of columns are left to `read_columns`."""
        given = self.options.given_columns()
        kept = [
            f"{role}={column}"
            for role, column in given.items()
            if column in names or not column.isdecimal() or role not in ("tokens", "tags")
        ]
        task = dataclasses.replace(self, options=dataclasses.replace(self.options, columns=kept))
        return super(TokenClassification, task).find_columns(names, source, labelled)

    def column_roles(self, names: Sequence[str], labelled: bool) -> Mapping[str, tuple[str, ...]]:
        """Texts with spans if the rows have such columns, else words with tags."""
        given = self.options.given_columns()

        def has(role: str, *candidates: str) -> bool:
            return given.get(role) in names or bool(usual_columns(names, candidates))

        has_text = has("text", *COLUMNS["text"])
        has_words = has("tokens", *self.inputs["tokens"]) and given.get("text") not in names
        has_tags = labelled and has("tags", *self.targets["tags"])
        has_spans = has("spans", "spans", "entities", "ents", "annotations")
        if not has_text or (has_words and (has_tags or not has_spans)):
            return super().column_roles(names, labelled)
        is_prodigy = labelled and "_task_hash" in names and "answer" in names
        return {**(COLUMNS if labelled else {"text": COLUMNS["text"]}), **(VERDICT if is_prodigy else {})}

    def prepare(self, rows: Dataset) -> Dataset:
        """Splits texts into words, aligns their spans with the words, and drops spaces around tags."""
        for name in ("tokens", "tags"):  # a table has lists as texts
            if name in rows.column_names and any(isinstance(value, str) for value in rows[name][:]):
                values = [expand_label(value, None) for value in rows[name][:]]
                rows = with_column(rows.remove_columns(name), name, values)
        is_text = "text" in rows.column_names and "tokens" not in rows.column_names
        if is_text and self._splitter.unspaced:
            warn_once(
                "the model was trained on words of a script without spaces; a text is split at spaces, punctuation "
                "and ideographs only, so pass its words as a list (`tokens`)"
            )
        rows = words_and_tags(rows, self._splitter) if is_text else rows
        if "tags" not in rows.column_names or (tags := without_spaces(rows["tags"][:], self.label2id)) is None:
            return rows
        return with_column(rows.remove_columns("tags"), "tags", tags)

    def plain_row(self, line: str) -> dict[str, Any]:
        """The line as a text."""
        words = line.split()
        if len(words) > 1 and self._tag_set is not None and words[-1] in self._tag_set.marks:
            warn_once(
                "a line ends in a tag, which is read as a word: .txt and standard input hold one text per line; "
                "rename a file of columns to .conll"
            )
        return {self.options.given_columns().get("text", "text"): line}

    def check_rows(self, rows: Dataset, training: bool) -> list[Problem]:
        known, tag_set = (None, self._tag_set_of_training(rows)) if training else (self.label2id, self._tag_set)
        problems = []
        for number, row in enumerate(rows):
            message = tokens_message(row["tokens"]) or row.get("problem")
            if message or "tags" not in row:
                problems += [Problem(number, message)] if message else []
            else:
                problems += tag_problems(number, row["tokens"], row["tags"], known, tag_set)
        return problems

    def _tag_set_of_training(self, rows: Dataset) -> TagSet | None:
        """The meaning of the tags of training rows, some of which may be unusable."""
        if self.options.plain_tags:
            return None
        tags = (tags for tags in rows["tags"][:] if isinstance(tags, list))
        return tag_set_of([[label_name(tag) for tag in row if not is_missing(tag)] for row in tags])

    def row_labels(self, rows: Dataset) -> list[Collection[str]]:
        return list(map(set, self.references(rows)))

    def label_distribution(self, rows: Dataset) -> Counter[str]:
        return Counter(tag for tags in self.references(rows) for tag in tags)

    def token_ids(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> Iterator[Sequence[int]]:
        for tokens in rows["tokens"][:]:
            ids, _ = tokenize_words(tokens, tokenizer)
            yield [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]

    # Model

    def with_tokenizer(self, tokenizer: PreTrainedTokenizerBase, source: str) -> Self:
        """With the tokens that a user added to the tokenizer; checks the rules by which texts are split into words."""
        try:
            WordSplitter(getattr(self.config, "word_rules", None))
        except ValueError as error:
            raise UserError(f"checkpoint {source}: {error}; correct it in config.json, or remove it") from error
        return dataclasses.replace(self, added=AddedTokens(tokenizer))

    def reading_like(self, rows: Dataset) -> Self:
        """With the rules by which the words of these rows are split."""
        sentences = [] if "text" in rows.column_names else rows["tokens"][:]
        texts = ([word for word in words if isinstance(word, str)] for words in sentences if isinstance(words, list))
        return super().reading_like(rows).with_config(word_rules=learn_word_rules(texts, self.added))

    def fitted(self, rows: Dataset) -> Self:
        """With the tags of the rows. Of entities, each type is completed: other rows may have I-MISC beside B-MISC."""
        names = sort_labels(tag for row in rows["tags"][:] for tag in row)
        if len(names) < 2:
            raise UserError(f"the training rows have the tags {names} only; expected two or more tags")
        tag_set = self._tag_set_of_training(rows)
        outside = "O" if tag_set is None else tag_set.outside
        complete = sort_labels({*names} | (at_all_positions(tag_set) if tag_set else set()))
        for some in (names, complete):
            some.sort(key=lambda name: name != outside)  # it is first, the others in their order
        labels = self.in_order_of_head(names)
        labels = self.in_order_of_head(complete) if labels is names else labels
        return self.with_labels(labels, tag_scheme=tag_set and tag_set.scheme)

    def summary(self, rows: Dataset) -> str:
        labels = f"{self.name}: {counted(len(self.label2id), 'label')} ({short_list(self.label2id)})"
        if self._tag_set is None:
            return f"{labels}, plain tags without entities"
        scheme, marks, outside, _ = self._tag_set
        begin = next((tag for tag, mark in marks.items() if mark.position in "BS"), next(iter(marks)))
        example = f"{begin} begins {marks[begin].kind}" + (f", {outside} is outside" if outside else "")
        kinds = len({mark.kind for mark in marks.values()})
        return f"{labels}, entities of {counted(kinds, 'type')} in the scheme {scheme} ({example})"

    def features(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> Dataset:
        """With `words`: for each token the word whose tag it predicts, or -1."""
        given = self.options
        windows_of = functools.partial(
            encode_words,
            tokenizer=tokenizer,
            length=given.length,
            stride=given.stride_below(given.length - 2),
            all_tokens=bool(given.label_all_tokens),
        )

        def encode(batch: Mapping[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
            names = ("input_ids", WORDS, ROW, *(("labels",) if "tags" in batch else ()))
            columns: dict[str, list[Any]] = {name: [] for name in names}
            for i, row in enumerate(indices):
                tags = [self.label2id[label_name(tag)] for tag in batch["tags"][i]] if "tags" in batch else None
                for ids, words in windows_of(batch["tokens"][i]):
                    columns["input_ids"].append(ids)
                    columns[WORDS].append(words)
                    columns[ROW].append(row)
                    if tags is not None:
                        columns["labels"].append([_IGNORED if word < 0 else tags[word] for word in words])
            columns["attention_mask"] = [[1] * len(ids) for ids in columns["input_ids"]]
            return columns

        return map_rows(rows, encode)

    def collator(self, tokenizer: PreTrainedTokenizerBase) -> Callable[..., Any]:
        return DataCollatorForTokenClassification(tokenizer, label_pad_token_id=_IGNORED)

    # Results

    def decode(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> list[Prediction]:
        """`tokens`, `tags` and their probabilities, `scores`; with tags of entities also `entities`.

        An entity has `type`, `start`, `end`, `text` and `score`, the mean probability of its tags. `start` and `end`
        count from 0: characters in rows of texts, which also have the `offsets` of each token; words in rows of
        tokens. `unit` says which.
        """
        texts, offsets = (rows[name][:] if name in rows.column_names else [None] * len(rows) for name in _RAW)
        probabilities = self.tag_probabilities(logits, features, rows)
        return [
            self._prediction(words, scores, text, places)
            for words, scores, text, places in zip(rows["tokens"][:], probabilities, texts, offsets, strict=True)
        ]

    def tag_probabilities(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> list[np.ndarray]:
        """The softmax of the mean logits of each word."""
        of_words = word_logits(logits, features, rows["tokens"][:], self.classes)
        return [softmax(values, axis=1) for values in of_words]

    def _prediction(
        self, tokens: list[str], scores: np.ndarray, text: str | None, offsets: list[list[int]]
    ) -> dict[str, Any]:
        tags = [self.id2label[best] for best in scores.argmax(1).tolist()]
        prediction: Prediction = {"tokens": tokens, "tags": tags, "scores": scores.max(1).tolist()}
        if text is not None:
            prediction["offsets"] = offsets
        if self._tag_set is None:
            return prediction
        prediction["unit"] = "words" if text is None else "characters"
        prediction["entities"] = []
        for first, last, kind in entity_spans(tags, self._tag_set.marks):
            score = float(scores[first:last].max(1).mean())
            start, end = (first, last) if text is None else (offsets[first][0], offsets[last - 1][1])
            shown = " ".join(tokens[first:last]) if text is None else text[start:end]
            prediction["entities"].append({"type": kind, "start": start, "end": end, "text": shown, "score": score})
        return prediction

    @functools.cached_property
    def _splitter(self) -> WordSplitter:
        """Splits raw text into words like those of the training rows."""
        return WordSplitter(getattr(self.config, "word_rules", None), self.added)

    @functools.cached_property
    def _tag_set(self) -> TagSet | None:
        """The meaning of the labels; None for tags that do not name entities."""
        tag_set = read_tags(dict.fromkeys(self.label2id, 1))
        scheme = getattr(self.config, "tag_scheme", tag_set and tag_set.scheme)  # other checkpoints do not store it
        return tag_set._replace(scheme=scheme) if tag_set and scheme else None

    def references(self, rows: Dataset) -> list[list[str]]:
        return [[label_name(tag) for tag in tags] for tags in rows["tags"][:]]

    def baseline_predictions(self, references: Sequence[Any]) -> list[list[Prediction]]:
        """The most frequent tags. Of tags of entities, O has the best accuracy and another one the best F1."""
        counts = Counter(itertools.chain(*references)).most_common(1 if self._tag_set is None else _BASELINES)
        return [[{"tags": [tag] * len(tags)} for tags in references] for tag, _ in counts]

    def simple_predictions(self, train: Dataset, rows: Dataset) -> dict[str, list[Prediction]]:
        from mybert.tasks.simple_models import most_frequent_tags  # here, since predicting does not need it

        known = train["tokens"][:], self.references(train), rows["tokens"][:]
        return {"most frequent tag of each word": [{"tags": tags} for tags in most_frequent_tags(*known)]}

    @property
    def main_metric(self) -> str:
        return "accuracy" if self._tag_set is None else "f1"

    @property
    def classes(self) -> int:
        return len(self.id2label)

    def scorer(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> Scorer:
        """Accuracy of tags; precision, recall and F1 of entities if the tags name entities."""
        tags = [prediction["tags"] for prediction in predictions]
        sizes = np.array([len(tags) for tags in references])
        right = sizes - np.array(self.errors(predictions, references))
        of_entities = None if self._tag_set is None else entities.scorer(tags, references, self._tag_set)

        def score(samples: np.ndarray) -> Scores:
            accuracy = (right[samples].sum(1) / sizes[samples].sum(1)).tolist()
            return {**(of_entities(samples) if of_entities else {}), "accuracy": accuracy}

        return score

    def errors(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> list[float]:
        """The number of wrong tags."""
        pairs = zip(predictions, references, strict=True)
        return [float(sum(map(str.__ne__, prediction["tags"], tags))) for prediction, tags in pairs]

    def describe_error(self, prediction: Prediction, reference: Any, row: dict[str, Any]) -> list[str]:
        text, offsets = (row["text"], row["offsets"]) if "offsets" in row else joined(row["tokens"])
        return tag_differences(text, offsets, prediction["tags"], reference, self._tag_set and self._tag_set.marks)

    def label_scores(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> dict[str, LabelScores]:
        predicted, true = (
            {(label, row, start, end) for row, tags in enumerate(each) for start, end, label in self.spans(tags)}
            for each in ([prediction["tags"] for prediction in predictions], references)
        )
        return by_label(predicted, true)

    def spans(self, tags: Sequence[str]) -> list[Entity]:
        """The entities in the tags of a sentence, or each word with its tag if the tags do not name entities."""
        if self._tag_set is None:
            return [(word, word + 1, tag) for word, tag in enumerate(tags)]
        return entity_spans(tags, self._tag_set.marks)
