"""Runs transformers' own common tests for BERT and MyBERT side by side, and says where the two differ.

    python tests/conformance/run.py BUILD [pytest options]

BUILD is a folder that git ignores; the report stays in it. Ends with status 1 when a difference is not explained in
`exceptions.py`, when an explained one is gone, or when the tests could not run at all.
"""

import os
import subprocess
import sys
from pathlib import Path

from exceptions import EXCEPTIONS
from outcomes import Outcome, compare, read_outcomes, totals
from stand_ins import OWN_TESTS
from transformers.utils import logging
from tree import build_tree, write_tiny_models

from mybert.common.tables import print_table

COLUMNS = ("source", "model", "tests", "run", "passed", "failed", "skipped")


def run_tests(tree: Path, options: list[str]) -> dict[str, dict[str, Outcome]]:
    """Runs all tests in `tree` in processes of their own; see `read_outcomes`.

    Raises:
        SystemExit: no test ran.
    """
    write_tiny_models(tree / "models", tree / "tokenizers")
    report = tree / "junit.xml"
    environment = {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CONFORMANCE_TOKENIZERS": str(tree / "tokenizers"),
        "TRANSFORMERS_TINY_MODEL_PATH": str(tree / "models"),
    }
    files = [f"tests/conformance/{path.name}" for path in sorted(Path(__file__).parent.glob("conformance_*.py"))]
    # The distribution's own pytest settings are for its whole repository; thousands of subtests need no letter each.
    changed = ("addopts=", "log_cli=false", "verbosity_subtests=0")
    settings = (*(part for value in changed for part in ("-o", value)), "-p", "no:cacheprovider", "-W", "ignore", "-q")
    command = [
        sys.executable,
        "-m",
        "pytest",
        *settings,
        "--tb=short",
        f"--junitxml={report}",
        *(options or ["-n", "auto"]),
        *files,
    ]
    code = subprocess.run(command, cwd=tree, env={**os.environ, **environment}).returncode
    if code not in (0, 1):
        raise SystemExit(f"pytest ended with status {code}; nothing to compare")
    return read_outcomes(report)


def main(build: Path, options: list[str]) -> int:
    logging.disable_progress_bar()
    outcomes = run_tests(build_tree(build), options)
    rows = totals(outcomes, OWN_TESTS)
    differences, stale = compare(outcomes, EXCEPTIONS, complete=not options)
    print_table("transformers' common tests", rows, COLUMNS)
    if differences:
        columns = ("test", "BERT", "MyBERT", "reason")
        print_table("Differences", [(d.test, d.bert, d.mybert, d.reason) for d in differences], columns)
    else:
        print("No test ends differently for BERT and for MyBERT.")
    for test in stale:
        print(f"exceptions.py explains {test}, which does not differ any more: take it out")
    failed = [test for test, ends in outcomes.items() if ends["MyBert"].state == "failed"]
    for test in failed:
        print(f"failed for MyBERT: {test}")
    report = build / "report.md"
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (COLUMNS, ["---"] * len(COLUMNS), *rows)]
    lines += [""] + [f"- `{d.test}`: BERT {d.bert}, MyBERT {d.mybert}. {d.reason}" for d in differences]
    report.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"report: {report}")
    return 1 if stale or any(d.test not in EXCEPTIONS for d in differences) else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("usage: run.py BUILD [pytest options]")
    raise SystemExit(main(Path(sys.argv[1]).absolute(), sys.argv[2:]))
