"""The rules by which a run with a time budget chooses its settings, from budget_rules.yaml."""

import dataclasses
from collections.abc import Collection
from functools import cache
from importlib import resources
from typing import Any

import yaml

from mybert.pretraining.settings import PretrainSettings

_FOR_NEW_WEIGHTS = (
    *("initializer_range", "initial_weights", "start_mlm_probability", "weight_decay", "adam_epsilon", "dropout"),
)
"""Options that are not chosen for a run that continues a checkpoint."""


@cache
def budget_rules() -> dict[str, Any]:
    return yaml.safe_load((resources.files(__package__) / "budget_rules.yaml").read_text(encoding="utf-8"))


def options_by_rule(
    settings: PretrainSettings, given: Collection[str], size: str, optimizer: str, longest: int
) -> dict[str, tuple[Any, str]]:
    """Value and reason of each option that follows from the size, the optimizer and the corpus.

    Args:
        given: names of the options that the user gave.
        longest: tokens of the longest example.
    """
    rules = budget_rules()
    options = {name: (rule["value"], rule["why"]) for name, rule in rules["options"].items()}
    options |= {name: (rule["values"][size], rule["why"]) for name, rule in rules["by_size"].items()}
    adamw_rate = options.pop("adamw_learning_rate")
    if optimizer != "muon":
        options["learning_rate"] = adamw_rate
        del options["weight_decay"], options["adam_epsilon"]
    if "mlm_probability" in given:
        del options["start_mlm_probability"]
    if settings.init_from is not None:
        for name in _FOR_NEW_WEIGHTS:
            options.pop(name, None)
        rate, continued = options["learning_rate"][0], rules["continued"]
        return options | {"learning_rate": (rate * continued["learning_rate_factor"], continued["why"])}
    lengths = [f"{length}:{end}" for length, end in rules["lengths"]["values"] if length < longest]
    if lengths:
        options["length_schedule"] = ([*lengths, str(longest)], rules["lengths"]["why"])
    return options


def with_schedule(settings: PretrainSettings, given: Collection[str], longest: int) -> PretrainSettings:
    """The settings with the options by rule that determine the time of a step and do not depend on the size."""
    options = options_by_rule(settings, given, "tiny", "muon", longest)
    names = {"start_mlm_probability", "length_schedule", "dropout"} & options.keys() - set(given)
    return dataclasses.replace(settings, **{name: options[name][0] for name in names})
