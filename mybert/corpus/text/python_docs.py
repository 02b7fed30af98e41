"""The documentation that every CPython carries, as a corpus: nothing to download, nothing stored here."""

import ast
import re
import sysconfig
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

from mybert.common.errors import UserError

PYTHON_DOCS = "python-docs"

# Tests, demonstrations and what a distribution adds, which other installations of the same version may lack.
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "turtledemo", "_pyrepl"}
_LEAST_CHARACTERS = 100  # of a document; what is shorter is mostly one line such as "Return the name."
_ROLE = re.compile(r":[a-zA-Z:+-]+:`~?([^`<]+?)(?: <[^`>]*>)?`")
_LITERAL = re.compile(r"``([^`]+)``|`([^`]+)`_{0,2}")
_EMPHASIS = re.compile(r"(?<![\w*])\*{1,2}([^*\s](?:[^*\n]*[^*\s])?)\*{1,2}(?![\w*])")
_RULE = re.compile(r"[=\-~^*#+\"'`.|_ ]*")
_BULLET = re.compile(r"\s*(?:[*+•-]|\d+\.|\[\d+\])\s+")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*[.,;:)]?$")


def python_documents() -> Iterator[tuple[str, int]]:
    """The language reference of `pydoc_data.topics`, then the docstrings of the standard library, module by module.

    A document is one topic, one module's, one function's, or one class's docstring with those of its methods.
    Modules are parsed, never imported. The same Python version gives the same documents in the same order.

    Yields:
        (text, number): paragraphs of prose separated by blank lines, and the document's number from 1.

    Raises:
        UserError: this Python has come without its standard library's source.
    """
    library = Path(sysconfig.get_path("stdlib"))
    number, seen = 0, set()
    for texts in (_topics(library / "pydoc_data" / "topics.py"), _docstrings(library)):
        for text in texts:
            # Topics quote each other; a paragraph kept twice could stand in training and in held-out documents.
            paragraphs = [p for p in prose_paragraphs(text) if p not in seen]
            seen.update(paragraphs)
            if sum(map(len, paragraphs)) >= _LEAST_CHARACTERS:
                number += 1
                yield "\n\n".join(paragraphs), number
    if not number:
        raise UserError(f"{library} holds no Python sources with docstrings; give files instead of {PYTHON_DOCS}")


def prose_paragraphs(text: str) -> list[str]:
    """The paragraphs of `text` that are sentences, each on one line, without the marks of reStructuredText."""
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
    """Lines joined to one paragraph, or to one for each item of a list."""
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


def _topics(path: Path) -> Iterator[str]:
    """Every text of the topics file, whether it is one dictionary or strings in some other arrangement."""
    tree = _parse(path)
    for node in [] if tree is None else tree.body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        try:
            found = ast.literal_eval(value) if isinstance(value, ast.Dict) else None
        except ValueError:
            found = None
        if isinstance(found, dict):
            yield from (text for _, text in sorted(found.items()) if isinstance(text, str))
        elif value is not None:
            strings = (part.value for part in ast.walk(value) if isinstance(part, ast.Constant))
            yield from (text for text in strings if isinstance(text, str))


def _docstrings(library: Path) -> Iterator[str]:
    paths = (path.relative_to(library) for path in library.rglob("*.py"))
    for path in sorted(path for path in paths if not _LEFT_OUT.intersection(path.parts)):
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
    except (OSError, SyntaxError, ValueError):  # templates for code generators are not Python, though named *.py
        return None
