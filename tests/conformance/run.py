"""Runs transformers' common tests for BERT and MyBERT side by side, and reports tests with different outcomes.

    python tests/conformance/run.py BUILD [pytest options]

BUILD is a folder that git ignores; the report is written there. The exit status is 1 if an outcome differs.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from transformers.utils import logging
from tree import build_tree

from mybert.common.tables import print_table

# The file of transformers that a test is from, by the class that ran it and the beginning of its name.
_SOURCES = {
    "ModelTest.test_configuration": "test_configuration_common.py",
    "ModelTest.": "test_modeling_common.py",
    "BackendTest.": "test_tokenizers_backend_mixin.py",
    "TokenizerTest.": "test_tokenization_common.py",
}
_STATES = ("passed", "skipped", "failed")


def run_tests(tree: Path, options: list[str]) -> Path:
    """Runs all tests in `tree`.

    Returns:
        The report in JUnit's format.

    Raises:
        SystemExit: no test ran.
    """
    report = tree / "junit.xml"
    environment = {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CONFORMANCE_TOKENIZERS": str(tree / "tokenizers"),
    }
    files = [f"tests/conformance/{path.name}" for path in sorted(Path(__file__).parent.glob("conformance_*.py"))]
    changed = ("addopts=", "log_cli=false", "verbosity_subtests=0")  # settings of the distribution
    settings = [*(part for value in changed for part in ("-o", value)), "-p", "no:cacheprovider", "-W", "ignore", "-q"]
    settings += ["--tb=short", f"--junitxml={report}", *(options or ["-n", "auto"])]
    command = [sys.executable, "-m", "pytest", *settings, *files]
    code = subprocess.run(command, cwd=tree, env={**os.environ, **environment}).returncode
    if code not in (0, 1):
        raise SystemExit(f"pytest ended with status {code}; nothing to compare")
    return report


def read_outcomes(report: Path) -> dict[str, dict[str, str]]:
    """Outcomes by test and family (`Bert`, `MyBert`), with the reason of a skip. The worst of the subtests counts."""
    outcomes: dict[str, dict[str, str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("classname", "").rpartition(".")[2]
        family = "MyBert" if name.startswith("MyBert") else "Bert"
        failed, skipped = any(case.find(tag) is not None for tag in ("failure", "error")), case.find("skipped")
        state = "failed" if failed else "passed" if skipped is None else f"skipped ({skipped.get('message', '')})"
        families = outcomes.setdefault(f"{name.removeprefix(family)}.{case.get('name')}", {})
        families[family] = max(families.get(family, state), state, key=lambda text: _STATES.index(text.split()[0]))
    return outcomes


def is_different(families: dict[str, str]) -> bool:
    """Whether the outcomes differ in more than the names of modules and classes."""
    neutral = {re.sub(r"[\w.]+\.(\w+)", r"\1", text).replace("MyBert", "Bert") for text in families.values()}
    return len(families) != 2 or len(neutral) != 1


def main(build: Path, options: list[str]) -> int:
    logging.disable_progress_bar()
    outcomes = read_outcomes(run_tests(build_tree(build), options))
    counts: dict[tuple[str, str], Counter] = {}
    for test, families in outcomes.items():
        source = next(name for start, name in _SOURCES.items() if test.startswith(start))
        for family, text in families.items():
            counts.setdefault((source, family), Counter())[text.split()[0]] += 1
    rows = [(*key, *(count[state] for state in _STATES)) for key, count in sorted(counts.items())]
    print_table("transformers' common tests", rows, ("source", "model", *_STATES))
    differences = [
        (test, families.get("Bert"), families.get("MyBert"))
        for test, families in sorted(outcomes.items())
        if is_different(families)
    ]
    print_table(f"{len(differences)} tests with different outcomes", differences, ("test", "BERT", "MyBERT"))
    return 1 if differences else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("usage: run.py BUILD [pytest options]")
    raise SystemExit(main(Path(sys.argv[1]).absolute(), sys.argv[2:]))
