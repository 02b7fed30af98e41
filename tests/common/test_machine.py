"""What made a result, in words that others can read and that say nothing of whose machine it was."""

import os
import platform
import re
import subprocess

import pytest

from mybert.common.machine import commit, hardware, usable_cores
from mybert.common.manifest import read_manifest, write_manifest


def git(folder, *words) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_the_commit_is_that_of_the_checkout_and_says_whether_files_have_changed_since(tmp_path):
    git(tmp_path, "init", "--quiet")
    assert commit.__wrapped__(tmp_path) is None, "no commit yet"
    (tmp_path / "code.py").write_text("x = 1")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    short = git(tmp_path, "rev-parse", "--short=10", "HEAD").strip()
    (tmp_path / "notes.txt").write_text("not of the code")
    assert commit.__wrapped__(tmp_path) == short
    (tmp_path / "code.py").write_text("x = 2")
    assert commit.__wrapped__(tmp_path) == f"{short}, with changes"
    (tmp_path / "site-packages").mkdir()
    assert commit.__wrapped__(tmp_path / "site-packages") is None, "installed in somebody else's checkout"


def test_without_git_there_is_no_commit(tmp_path, monkeypatch):
    git(tmp_path, "init", "--quiet")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit.__wrapped__(tmp_path) is None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to cores")
def test_cores_that_the_process_may_not_use_are_not_counted():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1 and hardware().split(", ")[-1].startswith("1 x ")
    finally:
        os.sched_setaffinity(0, before)
    assert usable_cores() == len(before)


def test_the_hardware_is_one_line_without_the_name_of_the_machine():
    assert re.fullmatch(r"(\d+ x .+, )?\d+ x .+", hardware()) and hardware().isprintable()
    assert platform.node() not in hardware()


def test_every_manifest_says_on_what_and_by_what_it_was_made(tmp_path):
    write_manifest(tmp_path, "corpus", settings={}, inputs={}, counts={})
    manifest = read_manifest(tmp_path)
    assert manifest["hardware"] == hardware() and manifest.get("commit") == commit()
