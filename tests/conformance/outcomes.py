"""How each test ended for BERT and for MyBERT, out of pytest's report."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

# Which file of transformers a test comes from, by the class that ran it and how its name begins.
_SOURCES = (
    ("ModelTest.test_pipeline_", "test_pipeline_mixin.py"),
    ("ModelTest.test_configuration", "test_configuration_common.py"),
    ("ModelTest.", "test_modeling_common.py"),
    ("BackendTest.", "test_tokenizers_backend_mixin.py"),
    ("TokenizerTest.", "test_tokenization_common.py"),
)
_OWN = "ours, in place of its generation and export tests"
_NAMES = {"Bert": "BERT", "MyBert": "MyBERT"}
_STATES = ("passed", "skipped", "failed")  # of several reports on one test, its subtests too, the last counts


@dataclass(frozen=True)
class Outcome:
    """`state` is passed, failed or skipped; `reason` says why it was skipped."""

    state: str
    reason: str = ""

    def __str__(self):
        return f"{self.state} ({self.reason})" if self.reason else self.state


@dataclass(frozen=True)
class Difference:
    """A test that ends differently, and why."""

    test: str
    bert: Outcome
    mybert: Outcome
    reason: str


def read_outcomes(report: Path) -> dict[str, dict[str, Outcome]]:
    """Test (`ModelTest.test_save_load`) → `Bert` and `MyBert` → how it ended.

    Raises:
        SystemExit: the report is of something else, or one family ran other tests than the other.
    """
    outcomes: dict[str, dict[str, Outcome]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("classname", "").rsplit(".", 1)[-1]
        family = "MyBert" if name.startswith("MyBert") else "Bert"
        test = f"{name.removeprefix(family)}.{case.get('name')}"
        ends = outcomes.setdefault(test, {})
        found = _outcome(case)
        known = ends.get(family, found)
        ends[family] = max(known, found, key=lambda outcome: _STATES.index(outcome.state))
    alone = [test for test, ends in outcomes.items() if len(ends) != 2]
    if alone or not outcomes:
        raise SystemExit(f"{report}: expected each test once for BERT and once for MyBERT, found alone: {alone}")
    return outcomes


def _outcome(case: ElementTree.Element) -> Outcome:
    if case.find("failure") is not None or case.find("error") is not None:
        return Outcome("failed")
    skipped = case.find("skipped")
    return Outcome("passed") if skipped is None else Outcome("skipped", skipped.get("message", ""))


def totals(outcomes: dict[str, dict[str, Outcome]], own: frozenset[str] = frozenset()) -> list[tuple]:
    """Rows for each source and model: tests, run, passed, failed, skipped; `own` tests are not transformers'."""
    counts: dict[tuple[str, str], Counter] = {}
    for test, ends in outcomes.items():
        source = _OWN if test.split(".")[1] in own else next(name for key, name in _SOURCES if test.startswith(key))
        for family, outcome in ends.items():
            counts.setdefault((source, family), Counter())[outcome.state] += 1
    order = [*(name for _, name in _SOURCES), _OWN]
    return [
        (source, _NAMES[family], n.total(), n["passed"] + n["failed"], n["passed"], n["failed"], n["skipped"])
        for (source, family), n in sorted(counts.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
    ]


def compare(
    outcomes: dict[str, dict[str, Outcome]], exceptions: dict[str, str], complete: bool = True
) -> tuple[list[Difference], list[str]]:
    """
    Args:
        exceptions: test → why it may end differently.
        complete: all tests ran.

    Returns:
        Every test that ends in two states, or is skipped for two reasons, and the exceptions that no longer differ
        (where all tests ran).
    """
    differences = [
        Difference(test, ends["Bert"], ends["MyBert"], exceptions.get(test, "NOT EXPLAINED"))
        for test, ends in sorted(outcomes.items())
        if _neutral(ends["Bert"]) != _neutral(ends["MyBert"])
    ]
    different = {difference.test for difference in differences}
    return differences, [test for test in exceptions if test not in different] if complete else []


def _neutral(outcome: Outcome) -> tuple[str, str]:
    """Without the names of modules and classes by which the families differ."""
    return outcome.state, re.sub(r"[\w.]+\.(\w+)", r"\1", outcome.reason).replace("MyBert", "Bert")
