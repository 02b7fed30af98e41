"""The documentation inside Python as a corpus: topics of the language reference and docstrings."""

import ast
import importlib
import re
import sysconfig
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

from mybert.common.errors import UserError

PYTHON_DOCS = "python-docs"

# Tests, demonstrations and packages that other installations of the same version may lack.
_EXCLUDED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "turtledemo", "_pyrepl"}
_MIN_CHARACTERS = 100  # of a document; shorter ones are mostly one line such as "Return the name."
_ROLE = re.compile(r":[a-zA-Z:+-]+:`~?([^`<]+?)(?: <[^`>]*>)?`")
_LITERAL = re.compile(r"``([^`]+)``|`([^`]+)`_{0,2}")
_EMPHASIS = re.compile(r"(?<![\w*])\*{1,2}([^*\s](?:[^*\n]*[^*\s])?)\*{1,2}(?![\w*])")
_RULE = re.compile(r"[=\-~^*#+\"'`.|_ ]*")
_BULLET = re.compile(r"\s*(?:[*+•-]|\d+\.|\[\d+\])\s+")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*[.,;:)]?$")


def python_documents() -> Iterator[tuple[str, int]]:
    """Yields the language reference of `pydoc_data.topics`, then the docstrings of the standard library.

    A document is a topic, or the docstring of a module, a function, or a class with its methods. Modules are parsed,
    never imported. The same Python version gives the same documents in the same order.

    Yields:
        (text, number): paragraphs of prose separated by blank lines, and the number of the document, from 1.

    Raises:
        UserError: this Python has no source files of its standard library.
    """
    library = Path(sysconfig.get_path("stdlib"))
    number, seen = 0, set()
    for texts in (_topics(), _docstrings(library)):
        for text in texts:
            # Topics quote each other; a repeated paragraph could be in training and in held-out documents.
            paragraphs = [p for p in prose_paragraphs(text) if p not in seen]
            seen.update(paragraphs)
            if sum(map(len, paragraphs)) >= _MIN_CHARACTERS:
                number += 1
                yield "\n\n".join(paragraphs), number
    if not number:
        raise UserError(f"{library} holds no Python sources with docstrings; give files instead of {PYTHON_DOCS}")


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
                yield "\n\n".join(filter(None, map(_docstring, [node, *_functions(node)])))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield _docstring(node)


def _functions(node: ast.ClassDef) -> list[ast.AST]:
    return [child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)]


def _docstring(node: ast.AST) -> str:
    return cleandoc(ast.get_docstring(node, clean=False) or "")


def _parse(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):  # some *.py files are templates
        return None
