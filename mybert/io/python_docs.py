"""The documentation inside Python and its packages as a corpus: topics of the language reference and docstrings."""

import ast
import importlib.util
import re
import sysconfig
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

from mybert.common.errors import UserError
from mybert.io.sources import PYTHON_DOCS

# Tests, demonstrations and packages that other installations of the same version may lack.
_EXCLUDED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "turtledemo", "_pyrepl"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MIN_CHARACTERS = 100  # of a document; shorter ones are mostly one line such as "Return the name."
_ROLE = re.compile(r":[a-zA-Z:+-]+:`~?([^`<]+?)(?: <[^`>]*>)?`")
_LITERAL = re.compile(r"``([^`]+)``|`([^`]+)`_{0,2}")
_EMPHASIS = re.compile(r"(?<![\w*])\*{1,2}([^*\s](?:[^*\n]*[^*\s])?)\*{1,2}(?![\w*])")
_RULE = re.compile(r"[=\-~^*#+\"'`.|_ ]*")
_BULLET = re.compile(r"\s*(?:[*+•-]|\d+\.|\[\d+\])\s+")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*[.,;:)]?$")


def python_documents(name: str = PYTHON_DOCS) -> Iterator[tuple[str, int]]:
    """Yields the docstrings of a package, or the language reference and the docstrings of the standard library.

    A document is a topic of `pydoc_data.topics`, or the docstring of a module, a function, or a class with its
    methods: paragraphs of prose separated by blank lines, and the number of the document, from 1. Modules are parsed,
    never imported. The same version of Python or of the package gives the same documents in the same order.

    Args:
        name: `python-docs` for the standard library, `python-docs:PACKAGE` for an installed package.

    Raises:
        UserError: the package is not installed, or has no docstrings.
    """
    package = name.partition(":")[2]
    folder = _package_folder(package) if package else Path(sysconfig.get_path("stdlib"))
    number, seen = 0, set()
    for texts in ([] if package else _topics(), _docstrings(folder)):
        for text in texts:
            # Topics quote each other; a repeated paragraph could be in training and in held-out documents.
            paragraphs = [p for p in prose_paragraphs(text) if p not in seen]
            seen.update(paragraphs)
            if sum(map(len, paragraphs)) >= _MIN_CHARACTERS:
                number += 1
                yield "\n\n".join(paragraphs), number
    if not number:
        raise UserError(f"{folder} holds no Python sources with docstrings; give files instead of {name}")


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"{PYTHON_DOCS}:{package}: no Python package of this name is installed")
    return Path(next(iter(spec.submodule_search_locations)))


def prose_paragraphs(text: str) -> list[str]:
    """The paragraphs of `text` that are prose, each on one line, without reStructuredText markup."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", text.expandtabs()):
        lines = [line for line in block.splitlines() if not _RULE.fullmatch(line)]
        if any(line.lstrip().startswith((">>>", "...", ".. ", "|", "$")) for line in lines):
            continue
        for item in _items(lines):
            plain = _ROLE.sub(r"\1", item)
            plain = _LITERAL.sub(lambda match: match[1] or match[2], plain)
            plain = _EMPHASIS.sub(r"\1", plain).replace("::", ":")
            if _is_prose(plain):
                paragraphs.append(plain)
    return paragraphs


def _items(lines: list[str]) -> list[str]:
    """Joins lines to one paragraph, or to one per item of a list."""
    items: list[list[str]] = []
    for line in lines:
        start = _BULLET.match(line)
        if start or not items:
            items.append([])
        items[-1].append(line[start.end() :] if start else line)
    return [" ".join(" ".join(item).split()) for item in items]


def _is_prose(paragraph: str) -> bool:
    words = paragraph.split()
    plain = sum(1 for word in words if _WORD.match(word))
    ends = paragraph.endswith((".", ":", ";", "!", "?", ")", '"', "'"))
    return plain >= 0.7 * len(words) and len(words) >= (4 if ends else 8)


def _topics() -> list[str]:
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError:  # some distributions leave it out
        return []
    return [text for _, text in sorted(topics.items())]


def _docstrings(library: Path) -> Iterator[str]:
    paths = (path.relative_to(library) for path in library.rglob("*.py"))
    for path in sorted(path for path in paths if not _EXCLUDED.intersection(path.parts)):
        if path.parts[0] == "pydoc_data" or (tree := _parse(library / path)) is None:
            continue
        yield _docstring(tree)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                methods = [child for child in node.body if isinstance(child, _FUNCTIONS)]
                yield "\n\n".join(filter(None, map(_docstring, [node, *methods])))
            elif isinstance(node, _FUNCTIONS):
                yield _docstring(node)


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return cleandoc(ast.get_docstring(node, clean=False) or "")


def _parse(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):  # some *.py files are templates
        return None
