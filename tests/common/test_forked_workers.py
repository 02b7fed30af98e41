"""The processes that run the tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = {
    "test_first.py": """
        import os
        def test_ends(): os._exit(3)
        def test_fails(): print("said"); os.system("echo by a program"); assert False
        def test_passes(tmp_path): pass
    """,
    "test_second.py": """
        import warnings
        def test_warns(): warnings.warn("of a worker", UserWarning)
    """,
}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process runs all tests")
def test_workers_report_as_one_process_does_and_one_that_ends_fails_its_test_only(tmp_path):
    for name, text in TESTS.items():
        (tmp_path / name).write_text("\n".join(line[8:] for line in text.splitlines()))
    plugin = {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = [sys.executable, "-m", "pytest", "-p", "forked_workers", "-p", "no:cacheprovider", "--workers", "2"]
    done = subprocess.run(words, cwd=tmp_path, env=os.environ | plugin, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "2 failed, 2 passed, 1 warning in" in done.stdout
    for line in ("FAILED test_first.py::test_ends - the process ended with status 3", "UserWarning: of a worker"):
        assert line in done.stdout
    assert "Captured stdout call -----------------------------\nsaid\nby a program\n" in done.stdout
