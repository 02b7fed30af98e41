"""A finding about a stage: its level, what was seen, and what to do."""

from typing import NamedTuple

LEVELS = ("red", "amber", "green")
_BADGES = {"red": "Problem", "amber": "Warning", "green": "Passed"}


class Finding(NamedTuple):
    """
    Attributes:
        name: the check, such as `plateau`.
        level: `red` for a result that cannot be relied on, `amber` for a doubt, `green` for a check that passed.
        remedy: what to do; empty for a check that passed.
    """

    name: str
    level: str
    title: str
    evidence: str
    remedy: str = ""

    @property
    def badge(self) -> str:
        return _BADGES[self.level]


def passed(name: str, title: str, evidence: str) -> Finding:
    return Finding(name, "green", title, evidence)


def judged(name: str, level: str, titles: tuple[str, str], evidence: str, remedy: str) -> Finding:
    """A finding with the first title and no remedy if its level is green, else with the second title."""
    passes = level == "green"
    return Finding(name, level, titles[0 if passes else 1], evidence, "" if passes else remedy)


def level(value: float, amber: float, red: float = float("inf")) -> str:
    """The level of a value that is better the lower it is: `red` above `red`, `amber` above `amber`."""
    return "red" if value > red else "amber" if value > amber else "green"
