"""The worked changes of CONTRIBUTING.md: each diff applies to a copy of the repository, and its tests pass there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DIFFS = sorted((ROOT / "docs/contributing").glob("*.diff"))


def files_of(diff: Path) -> list[str]:
    return re.findall(r"^\+\+\+ b/(\S+)$", diff.read_text(encoding="utf-8"), re.M)


def git_apply(diff: Path, tree: Path, *options: str) -> None:
    run = subprocess.run(["git", "apply", *options, str(diff)], cwd=tree, capture_output=True, text=True)
    assert run.returncode == 0, f"{diff.name}: {run.stderr}; write the diff again on the current code"


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for name in ("modeling_mybert", "tokenization", "mybert", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "docs"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.parametrize("diff", DIFFS, ids=lambda diff: diff.stem)
def test_a_change_touches_at_most_three_files_and_applies(diff, tree):
    files = files_of(diff)
    assert len(files) <= 3
    assert any(name.startswith("tests/") for name in files)
    git_apply(diff, tree, "--check")


def test_the_tests_of_all_changes_pass(tree):
    for diff in DIFFS:
        git_apply(diff, tree)
    tests = [name for diff in DIFFS for name in files_of(diff) if name.startswith("tests/")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    run = subprocess.run(
        command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-3000:]


def test_contributing_names_every_change():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(DIFFS) == 6
    assert set(re.findall(r"docs/contributing/(\w+\.diff)", text)) == {diff.name for diff in DIFFS}
