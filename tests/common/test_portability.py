"""What Windows and macOS need, where ruff has no rule: newlines and names of files, and no Unix path."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(path for name in ("modeling_mybert", "mybert", "tokenization") for path in (ROOT / name).rglob("*.py"))
UNIX_PATHS = {  # guarded: they are looked up, and need not exist
    "mybert/common/machine.py": ["/proc/cpuinfo", "/proc/self/cgroup", "/sys/fs/cgroup"],
    "mybert/artifacts/staging.py": ["/dev"],
}


def writes_without_newline(path: Path) -> Iterator[str]:
    """Calls that open text for writing without its newline; ruff finds those without an encoding (PLW1514)."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) == "os.open":
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        texts = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        mode = next((text for text in texts if re.fullmatch(r"[rwax][bt+]*", str(text))), "r")
        writes = name == "write_text" or (name == "open" and "b" not in mode and mode[0] in "wax")
        if writes and "newline" not in {keyword.arg for keyword in node.keywords}:
            yield f"{path}:{node.lineno}"


def test_text_is_written_with_the_same_bytes_on_every_system():
    assert not [found for path in FILES for found in writes_without_newline(path)]


def test_unix_paths_are_only_in_guarded_places():
    found = {}
    for path in FILES:
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        texts = [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
        if named := [text for text in texts if re.match(r"/(dev|proc|tmp|sys|etc|var|usr)\b", text)]:
            found[path.relative_to(ROOT).as_posix()] = named
    assert found == UNIX_PATHS


def test_names_of_files_are_legal_and_distinct_on_windows_and_macos():
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if done.returncode:
        pytest.skip("not a git repository")
    names = [name.decode() for name in done.stdout.split(b"\0") if name]
    assert len({name.lower() for name in names}) == len(names)
    parts = {part for name in names for part in name.split("/")}
    assert not [part for part in parts if re.search(r'[<>:"\\|?*\x00-\x1f]|[. ]$', part)]
    assert not [part for part in parts if re.fullmatch(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?", part)]
    assert max(map(len, names)) < 120  # of the 260 characters of a path on Windows
