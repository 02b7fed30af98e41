"""Attributions of tokens to a score, by captum: integrated gradients on the embeddings, and occlusion of words.

Shapes: `B` targets in a batch, `S` tokens, padding included.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mybert.common.errors import UserError, needing
from mybert.explanation.settings import INTEGRATED_GRADIENTS, ExplainerSettings
from mybert.explanation.targets import Target, evidence
from mybert.inference.batches import batches, token_limit
from mybert.inference.logits import inputs_of, logits_in
from mybert.inference.onnx_model import OnnxModel
from mybert.inference.predictor import Outputs, Predictor

_FIRST_STEPS, _MOST_STEPS = 16, 256
_ARGUMENTS = ("input_ids", "attention_mask", "token_type_ids")
Others = tuple[Tensor, Tensor | None, Tensor]
"""(B, S) attention mask and segments, and the weights of the evidence."""


class Attribution(NamedTuple):
    """
    Attributes:
        values: (tokens,) change of the score by each token.
        baseline: the score when all words are [MASK].
        steps: points of the integral; None for occlusion.
    """

    values: np.ndarray
    score: float
    baseline: float
    steps: int | None

    @property
    def error(self) -> float | None:
        """Completeness error: the sum of the values minus `score - baseline`; None for occlusion."""
        return None if self.steps is None else float(self.values.sum()) - (self.score - self.baseline)

    @property
    def relative_error(self) -> float:
        """The absolute error as a share of the sum of absolute values."""
        return abs(self.error or 0.0) / max(float(np.abs(self.values).sum()), 1e-9)


class Sequences(NamedTuple):
    """What the model reads for some targets.

    Attributes:
        inputs: arguments of the model for each target, as lists of `tokens` numbers.
        words: for each target (tokens,) the word of each token, from 0, or -1.
    """

    inputs: list[dict[str, list[int]]]
    words: list[np.ndarray]
    targets: Sequence[Target]


def sequences_of(
    predictor: Predictor, outputs: Outputs, targets: Sequence[Target], words: list[np.ndarray]
) -> Sequences:
    features = inputs_of(predictor.model, outputs.features)
    inputs = []
    for target in targets:
        feature = features[target.feature]
        if target.choice is not None:
            feature = {name: choices[target.choice] for name, choices in feature.items()}
        inputs.append(feature)
    return Sequences(inputs, words, targets)


class Attributor:
    """Computes attributions of the scores of a predictor's task."""

    def __init__(self, predictor: Predictor, settings: ExplainerSettings):
        with needing("explain", "an explanation"):
            import captum.attr as captum
        self.model, self.tokenizer, self.task = predictor.model, predictor.tokenizer, predictor.task
        self.settings, self.captum = settings, captum
        self.max_tokens_per_batch = token_limit(settings.max_tokens_per_batch, self.model.device)
        if isinstance(self.model, OnnxModel):
            if settings.method == INTEGRATED_GRADIENTS:
                raise UserError("an ONNX model has no gradients; use --method occlusion")
        else:
            if self.model.config.int8_outliers is not None and settings.method == INTEGRATED_GRADIENTS:
                raise UserError("int8 weights have no gradients; use --method occlusion")
            self.model.requires_grad_(False)  # gradients of the embeddings only

    def attributions(
        self, given: Sequences, progress: Callable[[int], object] = lambda count: None
    ) -> list[Attribution]:
        """The attributions of each target, in order; `progress` is called with the number of finished ones."""
        attributions: dict[int, Attribution] = {}
        adaptive = self.settings.steps is None and self.settings.method == INTEGRATED_GRADIENTS
        steps, open_ = self.settings.steps or _FIRST_STEPS, list(range(len(given.targets)))
        while open_:
            for number, attribution in self._round(given, list(open_), steps):
                attributions[number] = attribution
                bad = adaptive and steps < _MOST_STEPS and attribution.relative_error > self.settings.tolerance
                progress(0 if bad else 1)
                if not bad:
                    open_.remove(number)
            steps *= 2
        return [attributions[number] for number in range(len(given.targets))]

    def _round(self, given: Sequences, numbers: list[int], steps: int) -> Iterator[tuple[int, Attribution]]:
        """Yields the number and attribution of each target."""
        gradients = self.settings.method == INTEGRATED_GRADIENTS
        copies = steps if gradients else 1
        for some in batches(numbers, lambda number: len(given.words[number]) * copies, self.max_tokens_per_batch):
            ids, others = self._batch(given, some)
            masked = self._masked(ids, given, some)
            if gradients:
                values = self._integrate(ids, masked, others, steps)
            else:
                values = self._occlude(ids, others, [given.words[number] for number in some])
            scores, baselines = self.scores(ids, others), self.scores(masked, others)
            for row, number in enumerate(some):
                length = len(given.words[number])
                used = steps if gradients else None
                yield number, Attribution(values[row, :length], float(scores[row]), float(baselines[row]), used)

    def _integrate(self, ids: Tensor, masked: Tensor, others: Others, steps: int) -> np.ndarray:
        """(B, S)."""
        model: Any = self.model  # no ONNX graph
        method = self.captum.LayerIntegratedGradients(self._forward, model.base_model.embeddings)
        is_large = ids.numel() * steps > self.max_tokens_per_batch
        at_once = max(len(ids), self.max_tokens_per_batch // ids.shape[1]) if is_large else None
        values = method.attribute(
            ids, masked, additional_forward_args=others, n_steps=steps, internal_batch_size=at_once
        )
        return values.sum(-1).detach().cpu().double().numpy()

    def _occlude(self, ids: Tensor, others: Others, words: list[np.ndarray]) -> np.ndarray:
        """(B, S): the change by a word is divided equally among its tokens."""
        features = self._padded([row + 1 for row in words], ids.shape[1], 0)  # 0: special tokens and padding
        at_once = max(1, self.max_tokens_per_batch // ids.numel())
        method = self.captum.FeatureAblation(self._forward)
        values = method.attribute(
            ids,
            self.tokenizer.mask_token_id,
            additional_forward_args=others,
            feature_mask=features,
            perturbations_per_eval=at_once,
        )
        sizes = (features[:, :, None] == features[:, None, :]).sum(-1)
        return (values / sizes).masked_fill(features == 0, 0).cpu().double().numpy()

    def _batch(self, given: Sequences, some: list[int]) -> tuple[Tensor, Others]:
        """(B, S) token ids, and the other arguments of `_forward`."""
        batch = self.tokenizer.pad([given.inputs[number] for number in some], return_tensors="pt")
        device, length = self.model.device, batch["input_ids"].shape[1]
        weights = [given.targets[number].weights.astype(np.float32) for number in some]
        by_token = any(w.ndim == 2 for w in weights)
        stacked = self._padded(weights, length, 0) if by_token else torch.tensor(np.stack(weights)).to(device)
        segments = batch["token_type_ids"].to(device) if "token_type_ids" in batch else None
        return batch["input_ids"].to(device), (batch["attention_mask"].to(device), segments, stacked)

    def _padded(self, rows: list[np.ndarray], length: int, value: float) -> Tensor:
        """(B, length, …)."""
        padded = np.full((len(rows), length, *rows[0].shape[1:]), value, dtype=rows[0].dtype)
        for row, values in zip(padded, rows, strict=True):
            row[: len(values)] = values
        return torch.from_numpy(padded).to(self.model.device)

    def _masked(self, ids: Tensor, given: Sequences, some: list[int]) -> Tensor:
        """(B, S): the ids with [MASK] in place of all words."""
        words = self._padded([given.words[number] for number in some], ids.shape[1], -1)
        return ids.masked_fill(words >= 0, self.tokenizer.mask_token_id)

    @torch.no_grad()
    def scores(self, ids: Tensor, others: Others) -> Tensor:
        """(B,)."""
        return self._forward(ids, *others)

    def _forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None, weights: Tensor) -> Tensor:
        """(B,) scores. captum repeats the arguments."""
        choice = self.task.name == "multiple-choice"
        batch = zip(_ARGUMENTS, (ids, mask, segments), strict=True)
        inputs = {name: x[:, None] if choice else x for name, x in batch if x is not None}
        scores = evidence(self.task, logits_in(self.model(**inputs)))
        return (scores * weights).flatten(1).sum(1)
