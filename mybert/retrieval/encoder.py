"""The models of an index: vectors of queries and passages, of length 1, and scores of pairs of them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from mybert.common.errors import UserError
from mybert.embedding.embedder import Embedder
from mybert.embedding.settings import EncodingSettings
from mybert.inference.predictor import Predictor
from mybert.inference.sentence_modules import SentenceModules
from mybert.retrieval.balance import start_weight
from mybert.rows.labels import MULTI
from mybert.tasks.settings import PredictorSettings
from mybert.tasks.text_classification import TextClassification

Progress = Callable[[int], object]


class Encoder:
    """An `Embedder` with the prompts of a retriever. Texts longer than the model reads are truncated.

    Args:
        plain: leave out what follows the encoder and all prompts: the mean of the last hidden states alone.
        options: fields of `EncodingSettings`.

    Attributes:
        start_weight: see `mybert.retrieval.balance.start_weight`.
        is_plain: whether its vectors are those of `plain`.
    """

    def __init__(self, model: str, plain: bool = False, **options: Any):
        self.embedder = Embedder(EncodingSettings(model, normalize=True, long_texts="truncate", **options))
        modules = SentenceModules(model) if plain else self.embedder.modules
        modules.warn_of_similarity(model)
        self.width = self.embedder.model.config.hidden_size if plain else self.embedder.width
        self.start_weight = start_weight(self.embedder.model.config)
        self._pooling = "mean" if plain else None
        default = modules.prompt(None)  # for texts of a kind without a prompt of its own
        self._query = modules.query_prompt() or default
        self._document = modules.prompts.get(modules.document_prompt() or "", default)
        self.is_plain = plain or (modules.is_mean and not (self._query or self._document))

    @property
    def room(self) -> int:
        """Tokens of a passage that are not truncated."""
        prompt = len(self.embedder.encode([""], self._document)[0]) if self._document else 0
        return self.embedder.max_length - 2 - prompt

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, width) float32."""
        return self._vectors(texts, self._query, None)

    def passages(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """(texts, width) float32."""
        return self._vectors(texts, self._document, progress)

    def _vectors(self, texts: Sequence[str], prompt: str, progress: Progress | None) -> np.ndarray:
        return self.embedder.vectors(self.embedder.encode(texts, prompt), self._pooling, progress, prompt)


class Reranker:
    """A checkpoint of text-classification with one score, or two classes of which the second is relevant.

    Args:
        options: `device` and `dtype` of `PredictorSettings`.
    """

    def __init__(self, model: str, **options: Any):
        self._predictor = Predictor(PredictorSettings(model=model, **options))
        task = self._predictor.task
        labels = task.config.num_labels if isinstance(task, TextClassification) else 0
        is_multi = task.config.problem_type == MULTI
        reads_pairs = "text_pair" in (task.trained_inputs or ["text_pair"])
        if not isinstance(task, TextClassification) or labels not in (1, 2) or is_multi or not reads_pairs:
            head = f"{labels} {'independent labels' if is_multi else 'classes'}" if labels else f"the task {task.name}"
            head += "" if reads_pairs else " for a single text"
            raise UserError(f"--reranker {model}: expected one score or two classes for a pair of texts, found {head}")
        self._predictor.task = dataclasses.replace(task, activation=torch.nn.Identity())
        self._classes = [task.id2label[number] for number in range(labels)]

    def scores(self, query: str, passages: Sequence[str]) -> np.ndarray:
        """(passages,) how likely each answers the query, as a logit: of two classes, the difference of theirs."""
        part = self._predictor.part([(query, passage) for passage in passages])
        predictions, _ = self._predictor.predict(part)
        if len(self._classes) == 1:
            return np.array([one["score"] for one in predictions])
        other, relevant = self._classes
        return np.array([one["scores"][relevant] - one["scores"][other] for one in predictions])
