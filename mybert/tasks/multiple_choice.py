"""multiple-choice: the best of several endings or answers for a context."""

import dataclasses
import functools
import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from datasets import Dataset
from scipy.special import softmax
from transformers import DataCollatorForMultipleChoice, PreTrainedTokenizerBase

from modeling_mybert import MyBertForMultipleChoice
from mybert.common.errors import UserError, short, short_list
from mybert.common.quantities import counted
from mybert.common.text_windows import encode_pairs
from mybert.rows.choices import (
    LabelledChoices,
    choice_columns,
    choice_of,
    find_reading,
    label_of,
    lifted,
    names_problem,
    texts_and_names,
)
from mybert.rows.label_columns import expand_label
from mybert.rows.labels import READINGS, is_missing
from mybert.rows.splits import Problem, Split, text_problem
from mybert.rows.tables import join_columns, with_column
from mybert.tasks.base import ColumnNames, Prediction, Task
from mybert.tasks.bootstrap_scores import Scorer, means
from mybert.tasks.features import CUT, ROW, map_rows
from mybert.tasks.options import MultipleChoiceOptions

_NAMES = "choice_names"  # column of the labels that rows give their choices


@dataclass(frozen=True, eq=False)
class MultipleChoice(Task):
    """The model reads the context with each choice and gives each a score.

    `start`, a question or the beginning of a sentence, is put before each choice. Choices are a list, columns of their
    own (`ending0`, `ending1`, …), or texts with labels, as in ARC. What the labels of rows without such labels mean is
    decided by all labels together, see `find_reading`, and stored with the model.
    """

    options: MultipleChoiceOptions

    name = "multiple-choice"
    head = MyBertForMultipleChoice
    Options = MultipleChoiceOptions
    inputs: ClassVar[ColumnNames] = {
        "context": (
            *("context", "sent1", "article", "passage", "premise", "ctx_a", "ctx", "sentence", "goal", "text"),
            *("question", "question_stem"),
        ),
        "start": ("start", "sent2", "question", "ctx_b", "query"),
        "choices": ("choices", "endings", "options", "answers"),
    }
    targets: ClassVar[ColumnNames] = {
        "label": ("label", "answer", "gold", "answerKey", "answer_key", "correct", "correct_option", "cop")
    }
    optional = frozenset({"start"})
    grouped_by = ("context",)
    row_shares = frozenset({"accuracy"})
    main_metric = "accuracy"

    # Rows

    def unnested(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return lifted(row)

    def by_role(self, dataset: Dataset, source: str, labelled: bool) -> tuple[Dataset, dict[str, str]]:
        return super().by_role(self._with_choices(dataset, source), source, labelled)

    def _with_choices(self, dataset: Dataset, source: str) -> Dataset:
        """Joins the columns of choices, such as `ending0` and `ending1`, and takes those inside a question out."""
        if "question" in dataset.column_names and any(isinstance(one, Mapping) for one in dataset["question"][:]):
            rows = [lifted(row) for row in dataset.select_columns(["question"])]
            dataset = dataset.remove_columns("question")
            for name in ("question", "choices"):
                if name not in dataset.column_names:
                    dataset = with_column(dataset, name, [row.get(name) for row in rows])
        given = self.options.given_columns().get("choices")
        if given is not None:
            return join_columns(dataset, given, _values)
        if set(self.inputs["choices"]) & set(dataset.column_names):
            return dataset
        groups = choice_columns(dataset.column_names)
        if len(groups) > 1:
            kinds = ", ".join(group[0] for group in groups)
            raise UserError(f"{source}: columns of choices have several names ({kinds}, …); keep one kind")
        return join_columns(dataset, ",".join(groups[0]), _values) if groups else dataset

    def prepare(self, rows: Dataset) -> Dataset:
        """Takes the labels of choices out of the choices."""
        values = rows["choices"][:]
        if all(isinstance(one, list) and isinstance(one[0], str) for one in values if one):
            return rows
        texts, names = zip(*(texts_and_names(expand_label(value, None)) for value in values), strict=True)
        rows = with_column(rows.remove_columns("choices"), "choices", list(texts))
        return with_column(rows, _NAMES, list(names)) if any(names) else rows

    def find_columns(self, names: Sequence[str], source: str, labelled: bool) -> dict[str, str]:
        columns, given = super().find_columns(names, source, labelled), self.options.given_columns()
        if columns.get("start") == "ctx_b" and columns["context"] != "ctx_a" and "start" not in given:
            del columns["start"]  # HellaSwag's `ctx` is `ctx_a` and `ctx_b` together
        return columns

    def column_roles(self, names: Sequence[str], labelled: bool) -> Mapping[str, tuple[str, ...]]:
        """With the joined columns of choices, whose names are separated by commas."""
        roles = super().column_roles(names, labelled)
        joint = [name for name in names if choice_columns(name.split(",")) == [name.split(",")]]
        return {**roles, "choices": (*roles["choices"], *joint)}

    def with_label_reading(self, parts: Sequence[Split]) -> Self:
        """With the meaning of the labels, for `choice_of`."""
        rows, counts_from_0 = [], False
        for part in parts:
            for file in part.parts or (part,):
                named = file.columns["choices"].split(",")
                counts_from_0 = counts_from_0 or (len(named) > 1 and named[0].strip("0") != named[0])
            labels, choices, names = _columns(part.rows)
            for row, (label, some, own) in enumerate(zip(labels, choices, names, strict=True)):
                if own is None and isinstance(some, list):
                    rows.append(LabelledChoices(label, some, f"{part.source}, {part.named(row)}"))
        asked = self.options.choice_labels
        options = dataclasses.replace(self.options, choice_labels=find_reading(rows, asked, counts_from_0) or asked)
        stored = getattr(self.config, "finetuned", {})  # the checkpoint's options
        task = self.with_config(finetuned={**stored, "choice_labels": options.choice_labels})
        return dataclasses.replace(task, options=options)

    def check_rows(self, rows: Dataset, training: bool) -> list[Problem]:
        problems, counts = [], Counter(len(some) for some in rows["choices"][:] if isinstance(some, list))
        usual = counts.most_common(1)[0][0] if counts else 0
        for number, row in enumerate(rows):
            choices = row["choices"]
            if message := text_problem("the context", row["context"]):
                problems.append(Problem(number, message))
            if not isinstance(choices, list) or len(choices) < 2:
                problems.append(Problem(number, f"expected two or more choices, found {short(choices)}"))
                continue
            if training and len(choices) != usual:
                problems.append(Problem(number, f"{counted(len(choices), 'choice')}, most rows have {usual}"))
            messages = [text_problem(f"choice {i}", choice) for i, choice in enumerate(choices)]
            if not any(messages):
                messages = [names_problem(row.get(_NAMES), choices)]
            if "label" in row and not any(messages):
                messages = [self._label_problem(row["label"], choices, row.get(_NAMES))]
            problems += [Problem(number, message) for message in messages if message]
        return problems

    def _label_problem(self, label: Any, choices: Sequence[str], names: Sequence[str] | None) -> str | None:
        reading = self.options.choice_labels
        if choice_of(label, choices, names, reading) is not None:
            return None
        problem = "is missing" if is_missing(label) else f"{short(label)} is none of the choices"
        if names is not None:
            return f"the label {problem} (the row has {short_list(names)})"
        ends = [label_of(place, choices, names, reading or "letters") for place in (0, len(choices) - 1)]
        expected = READINGS["texts"] if reading == "texts" else f"{ends[0]} to {ends[1]}"
        expected += ", or a letter from A" if reading in ("from-0", "from-1") else ""
        return f"the label {problem} ({expected})"

    def label_distribution(self, rows: Dataset) -> Counter[str]:
        return Counter(f"choice {label}" for label in self.references(rows))

    def token_ids(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> Iterator[Sequence[int]]:
        """The token ids of the longest choice."""
        for batch in rows.iter(1000):
            contexts, endings, bounds = self._pairs(batch)
            ids = tokenizer(contexts, endings, split_special_tokens=True)["input_ids"]
            yield from (max(ids[first:end], key=len) for first, end in bounds)

    def summary(self, rows: Dataset) -> str:
        """With what the labels are."""
        names = [own for own in _columns(rows)[2] if own is not None]
        kinds = [READINGS[self.options.choice_labels]] if len(names) < len(rows) and self.options.choice_labels else []
        if names:
            labels = dict.fromkeys(itertools.chain(*names))
            kinds.append(f"those that rows give their choices ({short_list(labels)})")
        choices = counted(len(rows[0]["choices"]), "choice")
        return f"{self.name}: {choices} for each context, labels are {' and '.join(kinds)}"

    # Model

    def features(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> Dataset:
        def encode(batch: Mapping[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
            contexts, endings, bounds = self._pairs(batch)
            encoded = encode_pairs(contexts, endings, tokenizer, self.options.length)
            columns = {name: [values[first:end] for first, end in bounds] for name, values in encoded.items()}
            cut = [bool(encoding.overflowing) for encoding in encoded.encodings or ()]
            columns[CUT] = [any(cut[first:end]) for first, end in bounds]
            if "label" in batch:
                columns["labels"] = self.references(batch)
            return {**columns, ROW: indices}

        return map_rows(rows, encode)

    def tokens_read(self, row: Mapping[str, Any], length: Callable[[str], int]) -> int:
        shared = 3 + length(row["context"]) + (length(row["start"]) if row.get("start") else 0)
        return len(row["choices"]) * (shared + max(map(length, row["choices"])))

    def _pairs(self, batch: Mapping[str, list[Any]]) -> tuple[list[str], list[str], list[tuple[int, int]]]:
        """The pairs of texts that the model reads, and the first and the end of those of each row."""
        starts = batch.get("start") or [""] * len(batch["choices"])
        contexts = [c for c, choices in zip(batch["context"], batch["choices"], strict=True) for _ in choices]
        endings = [f"{s or ''} {c}".strip() for s, row in zip(starts, batch["choices"], strict=True) for c in row]
        ends = np.cumsum([len(choices) for choices in batch["choices"]]).tolist()
        return contexts, endings, list(zip([0, *ends], ends, strict=False))

    def collator(self, tokenizer: PreTrainedTokenizerBase) -> Callable[..., Any]:
        return _Collator(tokenizer)

    # Results

    def decode(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> list[Prediction]:
        """`choice`, counted from 0, its `label` as the rows write it, its `text`, and the probabilities of all."""
        predictions = []
        _, several, names = _columns(rows)
        for row, choices, own in zip(logits, several, names, strict=True):
            scores = softmax(row[: len(choices)].astype(float))  # without the choices that the collator has added
            best = int(np.argmax(scores))
            label = label_of(best, choices, own, self.options.choice_labels)
            known = {} if label is None else {"label": label}
            predictions.append({"choice": best, **known, "text": choices[best], "scores": scores.tolist()})
        return predictions

    def references(self, rows: Dataset | Mapping[str, list[Any]]) -> list[int | None]:
        columns = _columns(rows)
        return [choice_of(*row, self.options.choice_labels) for row in zip(*columns, strict=True)]

    def baseline_predictions(self, references: Sequence[Any]) -> list[list[Prediction]]:
        return [[{"choice": statistics.mode(references)}] * len(references)]

    def scorer(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> Scorer:
        right = [p["choice"] == choice for p, choice in zip(predictions, references, strict=True)]
        return functools.partial(means, {"accuracy": right})

    def errors(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> list[float]:
        """1 - the probability of the right choice if another is predicted."""
        pairs = zip(predictions, references, strict=True)
        return [0.0 if p["choice"] == choice else 1 - p["scores"][choice] for p, choice in pairs]


def _values(row: Mapping[str, Any]) -> list[Any]:
    return list(row.values())


def _columns(rows: Dataset | Mapping[str, list[Any]]) -> tuple[list[Any], list[Any], list[Any]]:
    """Labels, choices, and the labels that rows give their choices; None for those that there are not."""
    names = getattr(rows, "column_names", rows)
    choices = rows["choices"][:]
    labels, own = (rows[name][:] if name in names else [None] * len(choices) for name in ("label", _NAMES))
    return labels, choices, own


class _Collator(DataCollatorForMultipleChoice):
    """transformers' collator for rows without labels and with different numbers of choices."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        most = max(len(example["input_ids"]) for example in examples)
        examples = [
            {name: x + x[:1] * (most - len(x)) if isinstance(x, list) else x for name, x in example.items()}
            for example in examples
        ]
        labelled = "labels" in examples[0]
        batch = super().torch_call(examples if labelled else [{**example, "labels": 0} for example in examples])
        if not labelled:
            del batch["labels"]
        return batch
