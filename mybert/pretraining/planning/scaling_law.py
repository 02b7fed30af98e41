"""Held-out masked loss and accuracy as a function of parameters, tokens, unique tokens and vocabulary.

loss = floor + size_factor / N^size_power + token_factor × N^token_size_power / D^token_power (Hoffmann et al. 2022,
"Training compute-optimal large language models", section 3.3, with a token term that rises with the size: in runs of
minutes, larger models learn from context after more tokens), where N counts the parameters of the encoder and D the
tokens seen. Repeated tokens count less (Muennighoff et al. 2023, "Scaling data-constrained language models", section
3.1): with U unique tokens read R more times, D = U + U × repeat_limit × (1 - exp(-R / repeat_limit)). After
harmless_passes, learning the text by heart adds to the loss, the more the smaller the text:
rise_factor × (passes - harmless_passes)^rise_power / U^rise_text_power, measured for up to 100 passes of tiny, 30 of
mini.

This is the loss for a vocabulary of `vocab_size` tokens. With V tokens, a text has S = s(V) / s(vocab_size) times as
many tokens, where s(V) = 1 + (split_vocab / V)^split_power. The loss per word is that of the formula with D / S and
U / S in place of D and U, and the loss per token is S times smaller. With a larger vocabulary, whose tokens are rarer,
the token term falls more slowly: it is multiplied by (D / vocab_tokens)^(token_power × vocab_power × ln(V /
vocab_size)). The highest loss, that of a model which knows only the frequencies of the tokens, is ceiling / S^(1/3).
Accuracy is linear in the loss per token times √S. Both powers of S are measured, for vocabularies of 150 to 30,528
tokens.

`benchmarks/scaling_law.py` fits the numbers in scaling_law.json to finished runs.
"""

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib import resources

from mybert.reports.forecast import interval

_Z95 = 1.959964
_MORE_ERRORS = 0.25
"""Share of the rise by which more predictions are wrong; the rest is from wrong predictions that become surer."""


@dataclass(frozen=True)
class ScalingLaw:
    """
    Attributes:
        floor, size_factor, size_power: of the formula above, as are the next four.
        token_factor, token_size_power, token_power, repeat_limit: of the token term.
        harmless_passes, rise_factor, rise_power, rise_text_power: of the rise after many passes.
        ceiling: loss of a model that knows only the frequencies of the tokens.
        vocab_size: of the formula.
        split_vocab, split_power, vocab_tokens, vocab_power: of the correction for another vocabulary.
        accuracy_at_zero, accuracy_slope: accuracy = accuracy_at_zero - accuracy_slope × √S × loss.
        loss_error: standard deviation of the losses around the formula; at least a chosen value for other texts.
        runs: number of runs behind the fit.
        source: which runs.
    """

    floor: float
    size_factor: float
    size_power: float
    token_factor: float
    token_size_power: float
    token_power: float
    repeat_limit: float
    harmless_passes: float
    rise_factor: float
    rise_power: float
    rise_text_power: float
    vocab_size: int
    split_vocab: float
    split_power: float
    vocab_tokens: float
    vocab_power: float
    ceiling: float
    accuracy_at_zero: float
    accuracy_slope: float
    loss_error: float
    runs: int
    source: str

    def loss(self, parameters: float, tokens: float, unique: float, vocab_size: int) -> float:
        """Held-out masked loss; `parameters` are those of the encoder, `unique` the tokens of the training text."""
        return self.learned(parameters, tokens, unique, vocab_size) + self.rise(tokens, unique, vocab_size)

    def learned(self, parameters: float, tokens: float, unique: float, vocab_size: int) -> float:
        """The loss without its rise after many passes; never higher for more tokens."""
        split = self.split(vocab_size)
        counted = max(self.counted_tokens(tokens, unique) / split, 1)
        size_part = self.size_factor / parameters**self.size_power
        token_part = self.token_factor * parameters**self.token_size_power / counted**self.token_power
        rarer = self.vocab_power * math.log(vocab_size / self.vocab_size)
        token_part *= (counted / self.vocab_tokens) ** (self.token_power * rarer)
        return min((self.floor + size_part + token_part) / split, self.highest(vocab_size))

    def rise(self, tokens: float, unique: float, vocab_size: int) -> float:
        """By how much many passes over the text raise the loss."""
        split, passes = self.split(vocab_size), max(tokens / unique - self.harmless_passes, 0.0)
        return self.rise_factor * passes**self.rise_power / (unique / split) ** self.rise_text_power / split

    def highest(self, vocab_size: int) -> float:
        """The highest loss that is expected; at most that of equal probabilities for all tokens."""
        return min(self.ceiling / self.split(vocab_size) ** (1 / 3), math.log(vocab_size))

    def split(self, vocab_size: int) -> float:
        """S above: tokens of a text with this vocabulary, divided by those with the vocabulary of the fit."""
        with_v, with_fitted = (1 + (self.split_vocab / v) ** self.split_power for v in (vocab_size, self.vocab_size))
        return with_v / with_fitted

    def counted_tokens(self, tokens: float, unique: float) -> float:
        """The number of unique tokens that are worth as much as `tokens`, some of them repeated."""
        repeats = max(tokens / unique - 1, 0)
        limit = self.repeat_limit
        return min(tokens, unique) + unique * limit * (1 - math.exp(-repeats / limit))

    def accuracy(self, loss: float, vocab_size: int) -> float:
        """Held-out masked accuracy of a model with this held-out masked loss."""
        return min(max(self.accuracy_at_zero - self.accuracy_slope * self.scaled(loss, vocab_size), 0.0), 1.0)

    def scaled(self, loss: float, vocab_size: int) -> float:
        """The loss per token that belongs to the same accuracy with the vocabulary of the fit."""
        return loss * math.sqrt(self.split(vocab_size))

    def expectation(self, parameters: float, tokens: float, unique: float, vocab_size: int) -> dict[str, float]:
        """Expected loss and accuracy, and half the width of their 95% intervals."""
        loss, rise = self.loss(parameters, tokens, unique, vocab_size), self.rise(tokens, unique, vocab_size)
        half = _Z95 * self.loss_error
        return {
            "mlm_loss": loss,
            "mlm_loss_highest": self.highest(vocab_size) + rise,
            "mlm_loss_error": half,
            "mlm_accuracy": self.accuracy(loss - (1 - _MORE_ERRORS) * rise, vocab_size),
            "mlm_accuracy_error": self.accuracy_slope * self.scaled(half, vocab_size),
        }


@cache
def scaling_law() -> ScalingLaw:
    """The fitted law of this package."""
    file = resources.files(__package__) / "scaling_law.json"
    return ScalingLaw(**json.loads(file.read_text(encoding="utf-8")))


def in_words(expected: dict[str, float]) -> str:
    """An expectation in one line: `masked loss 3.38 ± 0.20, accuracy 0.414 ± 0.020`.

    At the highest loss the formula knows no more than that the loss is not above it.
    """
    if expected["mlm_loss"] >= expected["mlm_loss_highest"]:
        return (
            f"masked loss at most {expected['mlm_loss']:.2f}: so few tokens teach little more than their frequencies"
        )
    return f"masked loss {interval(expected, 'mlm_loss', 2)}, accuracy {interval(expected, 'mlm_accuracy', 3)}"
