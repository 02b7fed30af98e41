"""A page for each `mybert` command, and the directive `command`: its options, read from its argument parser."""

import argparse
import re
from pathlib import Path
from typing import ClassVar
from unittest import mock

from docutils import nodes
from docutils.statemachine import StringList
from pygments.lexer import inherit
from pygments.lexers.shell import BashLexer
from pygments.token import Name
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from mybert import cli


class _Captured(Exception):
    pass


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of a command, taken when it is about to print its help."""

    def capture(parser: argparse.ArgumentParser, file: object = None) -> None:
        raise _Captured(parser)

    with mock.patch.object(argparse.ArgumentParser, "print_help", capture):
        try:
            cli.main([command, "--help"])
        except _Captured as captured:
            return captured.args[0]
    raise RuntimeError(f"mybert {command} --help printed no help")


def markdown(parser: argparse.ArgumentParser) -> list[str]:
    """Usage, examples, and a definition list of all options that the help shows, group by group."""
    formatter = parser._get_formatter()
    lines = ["```console", *parser.format_usage().strip().splitlines(), "```", ""]
    examples, _, note = (parser.epilog or "").partition("\n\n")
    if examples.startswith("examples:"):
        lines += ["```bash", *(line.strip() for line in examples.splitlines()[1:]), "```", "", _escaped(note), ""]
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help not in (None, argparse.SUPPRESS)]
        actions = [action for action in actions if action.dest not in ("help", "help_all")]
        if not actions:
            continue
        if group.title:
            lines += [f"**{group.title[0].upper()}{group.title[1:]}**", ""]
        for action in actions:
            lines += [f"`{term(action)}`", f": {_escaped(formatter._expand_help(action))}", ""]
    return lines


def term(action: argparse.Action) -> str:
    """How an option is written: its flags with dashes and the placeholder of its value."""
    if not action.option_strings:
        return action.metavar or action.dest
    flags = [flag for flag in action.option_strings if "_" not in flag]
    if action.nargs == 0:
        return ", ".join(flags)
    return f"{', '.join(flags)} {action.metavar or action.dest.upper()}"


def _escaped(help: str) -> str:
    """Help is plain text: Markdown's marks in it stand for themselves, except for `code`. Options become code."""
    parts = re.split(r"(`[^`]+`|(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9])", " ".join(help.split()))
    parts[::2] = [re.sub(r"([\\*_<>\[\]#~{}$])", r"\\\1", part) for part in parts[::2]]
    return "".join(f"`{part}`" if part.startswith("--") and place % 2 else part for place, part in enumerate(parts))


class CommandDirective(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        node = nodes.container()
        self.state.nested_parse(StringList(markdown(parser_of(self.arguments[0]))), self.content_offset, node)
        return [node]


def write_pages(folder: Path) -> None:
    """Writes a page for each command; others in the folder are removed."""
    folder.mkdir(exist_ok=True)
    pages = {
        folder / f"{name}.md": f"# mybert {name}\n\n{command.summary}\n\n```{{command}} {name}\n```\n"
        for name, command in cli.COMMANDS.items()
    }
    for other in set(folder.iterdir()) - set(pages):
        other.unlink()
    for page, text in pages.items():
        if not page.exists() or page.read_text(encoding="utf-8") != text:  # an equal page is not built again
            page.write_text(text, encoding="utf-8")


class ShellLexer(BashLexer):
    """Marks the options of commands, so that they have a colour and the style sheet keeps them whole."""

    tokens: ClassVar[dict] = {"data": [(r"(?<=\s)--?[a-z][\w-]*", Name.Attribute), inherit]}


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / "reference" / "commands"))
    app.add_lexer("bash", ShellLexer)
    app.add_directive("command", CommandDirective)
    return {"parallel_read_safe": False}
