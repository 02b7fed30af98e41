"""multiple-choice: the best of several endings or answers for a context."""

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from datasets import Dataset
from scipy.special import softmax
from transformers import DataCollatorForMultipleChoice, PreTrainedTokenizerBase

from modeling_mybert import MyBertForMultipleChoice
from mybert.common.error_messages import short
from mybert.common.errors import UserError
from mybert.common.quantities import counted
from mybert.finetuning.data.labels import is_missing, label_name
from mybert.finetuning.tasks.base import CUT, ROW, Problem, Task, encode_pairs, map_rows, text_problem

_NUMBERED = re.compile(r"((?:ending|choice|option|answer)_?)(\d+)")


@dataclass(frozen=True, eq=False)
class MultipleChoice(Task):
    """The model reads the context with each choice and gives each a score.

    `start`, a question or the beginning of a sentence, is put before each choice. Choices are a list, or columns of
    their own: `ending0`, `ending1`, …. The label counts from 0, or is a letter from A.
    """

    name = "multiple-choice"
    head = MyBertForMultipleChoice
    inputs: ClassVar[Mapping] = {
        "context": ("context", "sent1", "article", "passage", "premise", "ctx_a", "ctx", "text", "question"),
        "start": ("start", "sent2", "question", "ctx_b"),
        "choices": ("choices", "endings", "options"),
    }
    targets: ClassVar[Mapping] = {"label": ("label", "answer", "gold", "answerKey")}
    optional = frozenset({"start"})
    row_shares = frozenset({"accuracy"})
    main_metric = "accuracy"

    # Rows

    def combined(self, dataset: Dataset, source: str, labelled: bool) -> Dataset:
        """Joins the columns of choices, such as `ending0` and `ending1`."""
        numbered = sorted((int(m[2]), m[1], name) for name in dataset.column_names if (m := _NUMBERED.fullmatch(name)))
        if numbered and not set(self.inputs["choices"]) & set(dataset.column_names):
            if len(kinds := sorted({kind for _, kind, _ in numbered})) > 1:
                raise UserError(f"{source}: columns of choices have several names ({', '.join(kinds)}); keep one kind")
            columns = [dataset[name][:] for *_, name in numbered]
            dataset = dataset.add_column("choices", [list(row) for row in zip(*columns, strict=True)])
        return dataset

    def find_columns(self, names: Sequence[str], source: str, labelled: bool) -> dict[str, str]:
        found, given = super().find_columns(names, source, labelled), self.options.given_columns()
        if found.get("start") == "ctx_b" and found["context"] != "ctx_a" and "start" not in given:
            del found["start"]  # HellaSwag's `ctx` is `ctx_a` and `ctx_b` together
        return found

    def check_rows(self, rows: Dataset, training: bool) -> list[Problem]:
        problems, count = [], None
        for number, row in enumerate(rows):
            choices = row["choices"]
            if message := text_problem("the context", row["context"]):
                problems.append(Problem(number, message))
            if not isinstance(choices, list) or len(choices) < 2:
                problems.append(Problem(number, f"expected two or more choices, found {short(choices)}"))
                continue
            count = count or len(choices)
            if training and len(choices) != count:
                problems.append(Problem(number, f"{counted(len(choices), 'choice')}, the first row has {count}"))
            unusable = (text_problem(f"choice {i}", choice) for i, choice in enumerate(choices))
            problems += [Problem(number, message) for message in unusable if message]
            if "label" in row and _choice(row["label"], len(choices)) is None:
                found = "is missing" if is_missing(row["label"]) else f"{short(row['label'])} is none of the choices"
                problems.append(Problem(number, f"the label {found} (0 to {len(choices) - 1}, or a letter from A)"))
        return problems

    def label_distribution(self, rows: Dataset) -> Counter:
        return Counter(f"choice {label}" for label in self.references(rows))

    def token_ids(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> Iterator[Sequence[int]]:
        """The token ids of the longest choice."""
        for batch in rows.iter(1000):
            contexts, endings, bounds = self._pairs(batch)
            ids = tokenizer(contexts, endings, split_special_tokens=True)["input_ids"]
            yield from (max(ids[first:end], key=len) for first, end in bounds)

    def strata(self, rows: Dataset) -> list[int]:
        return self.references(rows)

    def summary(self, rows: Dataset) -> str:
        return f"{self.name}: {counted(len(rows[0]['choices']), 'choice')} for each context"

    # Model

    def features(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> Dataset:
        def encode(batch: Mapping[str, list], indices: list[int]) -> dict[str, list]:
            contexts, endings, bounds = self._pairs(batch)
            encoded = encode_pairs(contexts, endings, tokenizer, self.options.max_length)
            columns = {name: [values[first:end] for first, end in bounds] for name, values in encoded.items()}
            cut = [bool(encoding.overflowing) for encoding in encoded.encodings]
            columns[CUT] = [any(cut[first:end]) for first, end in bounds]
            if "label" in batch:
                columns["labels"] = list(map(_choice, batch["label"], map(len, batch["choices"])))
            return {**columns, ROW: indices}

        return map_rows(rows, encode)

    def _pairs(self, batch: Mapping[str, list]) -> tuple[list[str], list[str], list[tuple[int, int]]]:
        """The pairs of texts that the model reads, and the first and the end of those of each row."""
        starts = batch.get("start") or [""] * len(batch["choices"])
        contexts = [c for c, choices in zip(batch["context"], batch["choices"], strict=True) for _ in choices]
        endings = [f"{s or ''} {c}".strip() for s, row in zip(starts, batch["choices"], strict=True) for c in row]
        ends = np.cumsum([len(choices) for choices in batch["choices"]]).tolist()
        return contexts, endings, list(zip([0, *ends], ends, strict=False))

    def collator(self, tokenizer: PreTrainedTokenizerBase) -> Callable:
        return _Collator(tokenizer)

    # Results

    def decode(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> list[dict]:
        """`choice`, counted from 0, its `text`, and the probabilities of all choices."""
        predictions = []
        for row, choices in zip(logits, rows["choices"][:], strict=True):
            scores = softmax(row[: len(choices)].astype(float))  # without the choices that the collator has added
            best = int(np.argmax(scores))
            predictions.append({"choice": best, "text": choices[best], "scores": scores.tolist()})
        return predictions

    def references(self, rows: Dataset) -> list[int]:
        return list(map(_choice, rows["label"][:], map(len, rows["choices"][:])))

    def baseline_predictions(self, references: Sequence) -> list[list[dict]]:
        return [[{"choice": statistics.mode(references)}] * len(references)]

    def bootstrap(self, predictions: Sequence[dict], references: Sequence, samples: np.ndarray) -> dict[str, list]:
        right = np.array([p["choice"] == choice for p, choice in zip(predictions, references, strict=True)])
        return {"accuracy": right[samples].mean(1).tolist()}

    def errors(self, predictions: Sequence[dict], references: Sequence) -> list[float]:
        """1 - the probability of the right choice if another is predicted."""
        pairs = zip(predictions, references, strict=True)
        return [0.0 if p["choice"] == choice else 1 - p["scores"][choice] for p, choice in pairs]


def _choice(label: Any, choices: int) -> int | None:
    """Index of the choice of a label; None if there is no such choice."""
    name = label_name(label)
    if re.fullmatch("[A-Za-z]", name):
        number = ord(name.upper()) - ord("A")
    else:
        number = int(name) if re.fullmatch(r"\d{1,9}", name) else choices
    return number if number < choices else None


class _Collator(DataCollatorForMultipleChoice):
    """transformers' collator for rows without labels and with different numbers of choices."""

    def torch_call(self, examples: list[dict]) -> dict:
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
