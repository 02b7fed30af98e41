"""Packages import only packages below them; stages never import each other."""

import ast
import re
import sys
from pathlib import Path

import pytest

from modeling_mybert.configuration_mybert import MODULES_OF_HEADS

ROOT = Path(__file__).parents[2]
PACKAGES = ("modeling_mybert", "tokenization", "mybert")


def of(names: str) -> set[str]:
    return {f"mybert.{name}" for name in names.split()}


_BASE = of("common settings artifacts")
_BELOW = {"modeling_mybert", "tokenization", *_BASE, "mybert.io"}
_SHARED = {*_BELOW, "mybert.inference"}
_TASKS = {*_SHARED, "mybert.rows", "mybert.tasks"}
ALLOWED = {
    "modeling_mybert": {"mybert.inference"},  # where it is installed
    "tokenization": set(),
    "mybert.common": set(),
    "mybert.settings": {"mybert.common"},
    "mybert.artifacts": {"mybert.common", "mybert.settings", "tokenization", "modeling_mybert"},
    "mybert.rows": _BELOW,
    "mybert.tasks": {*_BELOW, "mybert.rows"},
    "mybert.inference": {*_BELOW, "mybert.rows", "mybert.tasks"},
    "mybert.io": {"modeling_mybert", "tokenization", *_BASE},
    "mybert.reports": {*_BASE, "modeling_mybert"},  # which tags name entities
    "mybert.training": _SHARED,
    "mybert.corpus": {*_SHARED, "mybert.reports"},
    "mybert.pretraining": _SHARED | of("training corpus reports"),
    "mybert.evaluation": {*_TASKS, "mybert.reports"},
    "mybert.finetuning": _TASKS | of("training evaluation reports"),
    "mybert.comparison": _TASKS | of("evaluation reports"),
    "mybert.distillation": _SHARED | of("training corpus pretraining"),
    "mybert.release": {*_SHARED, "mybert.tasks"},
    "mybert.embedding": {*_SHARED, "mybert.corpus"},
    "mybert.scoring": _SHARED,
    "mybert.adaptation": {*_SHARED, "mybert.corpus"},
    "mybert.explanation": _TASKS | of("embedding reports"),
    "mybert.suggestion": {*_TASKS, "mybert.evaluation"},
    "mybert.retrieval": _TASKS | of("training corpus finetuning embedding reports"),
    **dict.fromkeys(("mybert.demo", "mybert.serving"), _TASKS | of("embedding explanation release retrieval")),
    "mybert.workflows": _TASKS
    | of("corpus training pretraining finetuning adaptation evaluation embedding scoring reports release retrieval"),
}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module)
    return {name for name in names if name.split(".")[0] in PACKAGES}


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_lies_below_it(package):
    files = list((ROOT / package.replace(".", "/")).rglob("*.py"))
    assert files
    for path in files:
        above = {
            n for n in imported(path) if not any(f"{n}.".startswith(f"{p}.") for p in {package, *ALLOWED[package]})
        }
        assert not above, f"{path.relative_to(ROOT)} imports {above}"


def test_what_the_code_of_checkpoints_calls_imports_nothing_of_ours():
    folder, below = ROOT / "mybert/inference", ("mybert.inference.cpu", "mybert.inference.checks")
    for path in [folder / "__init__.py", folder / "checks.py", folder / "cuda.py", *(folder / "cpu").glob("*.py")]:
        assert all(name == "mybert.inference" or name.startswith(below) for name in imported(path)), path


def test_every_stage_is_listed_here():
    found = {f"mybert.{path.parent.name}" for path in (ROOT / "mybert").glob("*/__init__.py")}
    assert found == {name for name in ALLOWED if name.startswith("mybert.")}


def test_files_copied_with_checkpoints_follow_the_rules_of_remote_code():
    """transformers copies modules imported by `from .name import x`, and requires users to install all others.

    Imports inside `try` are not required.
    """
    for path in (ROOT / "modeling_mybert").glob("*_mybert.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tried = {id(node) for block in ast.walk(tree) if isinstance(block, ast.Try) for node in block.body}
        for node in ast.walk(tree):
            if id(node) in tried:
                continue
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.level == 1
                assert node.module
                assert "." not in node.module
                assert (path.parent / f"{node.module}.py").is_file()
            elif isinstance(node, ast.ImportFrom | ast.Import):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                roots = {name.split(".")[0] for name in names}
                libraries = {"torch", "transformers", "tokenizers", "huggingface_hub"}
                assert roots <= {*libraries, *sys.stdlib_module_names}, path


def test_files_copied_with_checkpoints_are_few_and_use_no_private_operator():
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "modeling_mybert").glob("*_mybert.py")}
    core = files.keys() - {f"{name}.py" for names in MODULES_OF_HEADS.values() for name in names}
    assert len(core) <= 12 and sum(len(files[name].splitlines()) for name in core) <= 1800
    for name, text in files.items():
        assert not re.search(r"torch\._|torch\.ops\.|_scaled_|mkldnn|onednn", text), name
