"""`Explainer`: predictions of a checkpoint with the words that they depend on."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from modeling_mybert.answer_decoding_mybert import end_with_marks
from mybert.explanation.attribution import Attribution, Attributor, sequences_of
from mybert.explanation.settings import ExplainerSettings
from mybert.explanation.similarity import Similarity, make_predictor
from mybert.explanation.targets import Target, features_of_rows, targets_of
from mybert.inference.predictor import Outputs, Part, Predictor, Row, list_rows
from mybert.settings.calls import settings_of
from mybert.tasks.base import Prediction, Task
from mybert.tasks.entities import joined
from mybert.tasks.options import WindowOptions
from mybert.tasks.token_classification import TokenClassification
from mybert.tasks.word_tokens import tokenize_words

if TYPE_CHECKING:
    from mybert.settings.keywords import ExplainerKeywords


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


def texts_of(
    task: Task, row: dict[str, Any], tokenizer: PreTrainedTokenizerBase, choice: int | None = None
) -> list[Text]:
    """The texts that the model reads for a row (of multiple-choice, for a choice), in the order of reading."""
    if isinstance(task, TokenClassification):
        return [_words(row, tokenizer)]
    given = {name: row[name] for name in task.inputs if isinstance(row.get(name), str)}
    if choice is not None:
        given = {"context": row["context"], "choice": f"{row.get('start') or ''} {row['choices'][choice]}".strip()}
    backend = tokenizer.plain_text_backend()
    encoded = {name: (text, backend.encode(text, add_special_tokens=False)) for name, text in given.items()}
    return [
        Text(
            name,
            text,
            encoding.ids,
            list(encoding.word_ids),
            [(a, end_with_marks(text, b)) for a, b in encoding.offsets],
        )
        for name, (text, encoding) in encoded.items()
    ]


def _words(row: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> Text:
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


class Explainer:
    """A checkpoint that explains its predictions.

    A score is the log-odds of a label or of the tags of an entity, the sum of the start and end logits of an answer,
    the score of a choice, the number of a regression, or the cosine similarity of two texts. The attribution of a word
    is its part of the change of the score when all words become [MASK] (integrated gradients), or the change when it
    alone becomes [MASK] (occlusion). Texts read in windows are explained window by window.

    Args:
        model: folder or Hub name of a fine-tuned checkpoint, or of an encoder for pairs of texts; a `Predictor`; or
            `ExplainerSettings`.
        settings: fields of `ExplainerSettings`: `method`, `labels`, `steps`, `tolerance`, `device`, …

    Raises:
        UserError: the checkpoint or a setting cannot be used, or captum is not installed.

    Example:
        >>> explainer = Explainer("classifier")
        >>> explainer(["a great film"])[0]["explanations"][0]["words"][1]
        {'text': 'great', 'column': 'text', 'start': 2, 'end': 7, 'attribution': 3.1}
    """

    def __init__(
        self, model: str | PathLike[str] | Predictor | ExplainerSettings, **settings: Unpack["ExplainerKeywords"]
    ):
        predictor = model if isinstance(model, Predictor) else None
        name = predictor.settings.model if predictor else model
        self.settings = settings_of(ExplainerSettings, name, settings)
        self.predictor = predictor or make_predictor(self.settings)
        self.attributor = Attributor(self.predictor, self.settings)

    def __call__(self, rows: Row | Iterable[Row] | Dataset | pd.DataFrame) -> dict[str, Any] | list[dict[str, Any]]:
        """
        Args:
            rows: one row, or several; see `Predictor.__call__`.

        Returns:
            A dictionary for the row, or a list of those: the prediction, `texts` by column, and `explanations`, a list
            of dictionaries: `target`, the label, tag or answer; its `score`; `baseline`, the score when all words are
            [MASK]; `completeness_error`; `steps`; `words` with `text`, `column`, `start`, `end` and `attribution`; and
            `tokens` with `token`, the index of its `word`, and `attribution`. A row without explanations has the
            reason as `note`, such as `no predicted entity`.

        Raises:
            UserError: a row cannot be used.
        """
        given, single = list_rows(rows)
        explained = self.explain(self.predictor.part(given))
        return explained[0] if single else explained

    def explain(self, part: Part, progress: Callable[[int], object] = lambda count: None) -> list[dict[str, Any]]:
        """The explained prediction of each row of a part; see `__call__`."""
        explained: dict[int, dict[str, Any]] = {number: {"error": message} for number, message in part.errors.items()}
        for outputs in self.predictor.outputs(part):
            for number, prediction in zip(outputs.numbers, outputs.predictions, strict=True):
                explained[number] = {**prediction, "texts": {}, "explanations": []}
            for target, texts, record in self._table(outputs, progress):
                row = explained[outputs.numbers[target.row]]
                row["texts"] |= {text.name: text.text for text in texts}
                row["explanations"].append(record)
            for number, given in zip(outputs.numbers, outputs.rows, strict=True):
                if not explained[number]["texts"]:  # nothing to explain, such as a sentence without entities
                    texts = texts_of(self.predictor.task, given, self.predictor.tokenizer)
                    explained[number]["texts"] = {text.name: text.text for text in texts}
                    explained[number]["note"] = self._why_nothing(explained[number])
        return [explained[number] for number in part.numbers]

    def _why_nothing(self, prediction: Prediction) -> str:
        labels = " or ".join(self.settings.labels)
        if "entities" in prediction:
            return f"no predicted entity has the tag {labels}" if labels else "no predicted entity"
        return f"no predicted tag is {labels}"

    def _table(
        self, outputs: Outputs, progress: Callable[[int], object]
    ) -> Iterator[tuple[Target, list[Text], dict[str, Any]]]:
        targets = targets_of(self.predictor.task, outputs, self.settings.labels)
        features = features_of_rows(outputs)
        read: dict[tuple[int, int | None], list[Text]] = {}  # a text in windows has many targets
        for target in targets:
            key, row = (target.row, target.choice), outputs.rows[target.row]
            if key not in read:
                read[key] = texts_of(self.predictor.task, row, self.predictor.tokenizer, target.choice)
        located = [
            self._locate(outputs, target, features[target.row], read[target.row, target.choice]) for target in targets
        ]
        words = [np.array(_numbered(places)) for _, places in located]
        given = sequences_of(self.predictor, outputs, targets, words)
        attributions = self.attributor.attributions(given, progress)
        for target, (texts, places), inputs, attribution in zip(
            targets, located, given.inputs, attributions, strict=True
        ):
            tokens = list(self.predictor.tokenizer.convert_ids_to_tokens(inputs["input_ids"]))
            yield target, texts, _record(target, texts, places, tokens, attribution)

    def _locate(
        self, outputs: Outputs, target: Target, features: list[int], texts: list[Text]
    ) -> tuple[list[Text], list[Place | None]]:
        """The texts of a row that a target's feature reads, and the place of each of its tokens."""
        tokenizer, task = self.predictor.tokenizer, self.predictor.task
        feature, number = outputs.features[target.feature], features.index(target.feature)
        ids = feature["input_ids"] if target.choice is None else feature["input_ids"][target.choice]
        if isinstance(task, Similarity):
            return texts[number : number + 1], places_of(ids, texts[number : number + 1], tokenizer)
        options, begin = task.options, 0
        if number and isinstance(options, WindowOptions):
            room = options.length - 2
            begin = number * (room - options.stride_below(room))
        return texts, places_of(ids, texts, tokenizer, feature.get("begin", begin))

    @torch.inference_mode()
    def attention(self, row: Row | Part) -> tuple[list[str], np.ndarray] | None:
        """Attention probabilities of the first window (or choice, or text) of a row, or of the row of a part.

        Returns:
            The S tokens, and (layers, heads, S, S): from the token of the row to the token of the column. None if the
            model does not give them.
        """
        part = row if isinstance(row, Part) else self.predictor.part([row])
        outputs = next(self.predictor.outputs(part))
        target = Target(0, 0, "", np.ones(1), 0 if self.predictor.task.name == "multiple-choice" else None)
        (inputs,) = sequences_of(self.predictor, outputs, [target], []).inputs
        ids = {name: torch.tensor([values], device=self.predictor.model.device) for name, values in inputs.items()}
        encoder = getattr(self.predictor.model, "base_model", None)
        if encoder is None:
            return None
        attentions = encoder(**ids, output_attentions=True).attentions
        tokens = list(self.predictor.tokenizer.convert_ids_to_tokens(inputs["input_ids"]))
        return tokens, torch.stack([layer[0] for layer in attentions]).float().cpu().numpy()


def _numbered(places: list[Place | None]) -> list[int]:
    """The word of each token, numbered from 0 in order over all texts; -1 for special tokens."""
    numbers: dict[tuple[int, int], int] = {}
    return [-1 if p is None else numbers.setdefault((p.text, p.word), len(numbers)) for p in places]


def _record(
    target: Target, texts: list[Text], places: list[Place | None], tokens: list[str], attribution: Attribution
) -> dict[str, Any]:
    words: list[dict[str, Any]] = []
    shown = []
    for place, word, token, value in zip(places, _numbered(places), tokens, attribution.values.tolist(), strict=True):
        if place is None:
            continue
        if word == len(words):
            words.append(
                {"column": texts[place.text].name, "start": place.start, "end": place.end, "attribution": 0.0}
            )
        words[word]["end"] = max(words[word]["end"], place.end)
        words[word]["attribution"] += value
        shown.append({"token": token, "word": word, "attribution": value})
    by_name = {text.name: text.text for text in texts}
    return {
        "target": target.name,
        "score": attribution.score,
        "baseline": attribution.baseline,
        "completeness_error": attribution.error,
        "steps": attribution.steps,
        "words": [{"text": by_name[word["column"]][word["start"] : word["end"]], **word} for word in words],
        "tokens": shown,
    }
