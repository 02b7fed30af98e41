"""The rules by which a run with a time budget chooses its settings, from budget_rules.yaml."""

from functools import cache
from importlib import resources
from typing import Any

import yaml


@cache
def budget_rules() -> dict[str, Any]:
    return yaml.safe_load((resources.files(__package__) / "budget_rules.yaml").read_text(encoding="utf-8"))
