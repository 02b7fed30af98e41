"""Settings of `mybert distill`."""

import argparse
from dataclasses import dataclass
from typing import ClassVar

from mybert.common.errors import UserError
from mybert.common.quantities import Duration
from mybert.pretraining.settings import PretrainSettings
from mybert.settings import declare
from mybert.settings.declare import EXAMPLES, MODEL, TRAINABLE, check_effect, flag_of, setting
from mybert.settings.shared import ERRORS, SIZES

LOSSES = ("hard", "soft", "cosine", "mse", "relations")
WITH_HEAD = {"soft": 5.0, "hard": 2.0, "cosine": 1.0}
"""The weights of DistilBERT (Sanh et al. 2019, in their published code)."""
WITHOUT_HEAD = {"relations": 1.0}
"""MiniLMv2 (Wang et al. 2021), which needs no masked-language-model head."""


@dataclass(kw_only=True)
class DistillSettings(PretrainSettings):
    """Teacher, losses and student; the other settings are those of pretraining."""

    command: ClassVar[str] = "distill"

    corpus: str | None = declare.data(
        None,
        "Folder of examples with the teacher's vocabulary, required: `mybert corpus … --tokenizer TEACHER`.",
        reads=EXAMPLES,
    )
    text: list[str] = setting(default_factory=list, help=argparse.SUPPRESS)
    text_column: str = setting("text", argparse.SUPPRESS)
    errors: str = setting("strict", argparse.SUPPRESS, choices=ERRORS)
    language: str = setting("en", argparse.SUPPRESS)
    uncased: bool | None = setting(None, argparse.SUPPRESS, negation="cased")
    strip_accents: bool | None = setting(None, argparse.SUPPRESS)
    time_budget: Duration | None = setting(None, argparse.SUPPRESS)
    size: str | None = declare.model(
        None, "Size of a student with new weights (default: none; see --layers).", choices=SIZES
    )
    init_from: str | None = declare.model(
        None, "Checkpoint with the teacher's vocabulary (folder or Hub name) as the student.", reads=TRAINABLE
    )
    initial_weights: str = setting("random", argparse.SUPPRESS, choices=("random", "text"))
    teacher: str = setting(
        "",
        "Folder or Hub name of the MyBERT or BERT checkpoint to learn from; build the corpus with its tokenizer.",
        reads=MODEL,
    )
    layers: int | None = declare.model(
        None,
        "Layers of the student, taken evenly from the teacher with its embeddings and heads (default: half of the "
        "teacher's, without --size and --init-from).",
        least=1,
    )
    losses: list[str] | None = declare.teacher(
        None,
        "Losses and their weights, as NAME=WEIGHT. soft: distribution of masked tokens; hard: the masked tokens and, "
        "with pairs, next sentences; cosine: last hidden states; mse: hidden states of the student's layers and of "
        "evenly spaced layers of the teacher; relations: query-query, key-key and value-value relations of the last "
        "layer, for students of any hidden size (default: soft=5 hard=2 cosine=1; without cosine if the hidden sizes "
        "differ; relations=1 if the teacher has no masked-language-model head).",
        pairs=True,
    )
    temperature: float = declare.teacher(2.0, "Temperature of the soft distributions, above 0.", within="(0, inf)")
    relation_heads: int | None = declare.teacher(
        None,
        "Heads of the relations; must divide both hidden sizes (default: the teacher's attention heads).",
        least=1,
    )

    def __post_init__(self) -> None:
        given = [flag_of(name) for name in ("size", "layers", "init_from") if getattr(self, name)]
        if len(given) > 1:
            raise UserError(f"{' and '.join(given)} exclude each other: each determines the student")
        if self.text or self.corpus is None:
            raise UserError(
                "--corpus: expected examples with the teacher's vocabulary; build them with "
                f"`mybert corpus … --tokenizer {self.teacher}`"
            )
        if self.time_budget is not None:
            raise UserError(
                "--time-budget chooses the size of the model, but the student has a given size; use --max-steps"
            )
        no_size = self.size is None
        super().__post_init__()
        if self.losses is not None:
            weights(self.losses)
        if no_size:
            self.size = None
        check_effect(self, "initializer_range", self.size, "without --size: the weights are those of a checkpoint")


def weights(losses: list[str]) -> dict[str, float]:
    """The weights of `NAME=WEIGHT` words."""
    weight_of: dict[str, float] = {}
    for word in " ".join(losses).split():  # one text with all, as in a recipe
        name, _, number = word.partition("=")
        try:
            value = float(number or 1)
        except ValueError:
            value = -1.0
        if name not in LOSSES or name in weight_of or not 0 < value < float("inf"):
            raise UserError(
                f"--losses: expected NAME=WEIGHT, such as soft=5 hard=2, with a name of {', '.join(LOSSES)}; "
                f"found {word!r}"
            )
        weight_of[name] = value
    if not weight_of.keys() - {"hard"}:
        raise UserError("--losses: add a loss that compares with the teacher, such as soft")
    return weight_of
