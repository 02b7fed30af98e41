"""The `mybert` command."""

import argparse
import contextlib
import errno
import io
import logging
import os
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from mybert import __version__
from mybert.artifacts.places import check_places, places
from mybert.artifacts.staging import FULL_DISK
from mybert.commands import COMMANDS
from mybert.common.errors import UserError, command_line, short
from mybert.common.machine import keep_freed_memory
from mybert.io.files import is_unicode
from mybert.settings.options import options_without_import, unknown_name
from mybert.settings.parse import build_parser, parse_settings

_BAD_PATH = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS)
_WITHOUT_MODELS = ("tokenizer", "corpus", "plan", "compare", "doctor")
_VERBOSE = ("transformers.trainer_utils", "transformers.tokenization_utils_base", "matplotlib")
"""Loggers that warn about checkpoints and long texts which MyBERT handles, or about a home that cannot be written."""


def usage() -> str:
    """The help of `mybert` without a command."""
    import shtab  # here, since the help of a command does not need it

    lines = [f"  {name:<12} {command.summary}" for name, command in COMMANDS.items()]
    head = "usage: mybert COMMAND [options]\n\ncommands:"
    tail = "`mybert COMMAND --help` describes a command. `mybert --completion SHELL` prints completions for\n" + (
        f"{', '.join(shtab.SUPPORTED_SHELLS)}. `mybert --version` prints the version."
    )
    return "\n".join([head, *lines, "", tail])


def main(argv: list[str] | None = None) -> int:
    """Runs one command.

    Returns:
        The exit status: 0 for success, 2 for a user's mistake, 130 after Ctrl-C, 141 if the reader of the output has
        closed it, 143 if SIGTERM or Ctrl-C ended a training whose checkpoint is saved.
    """
    has_output = _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":  # pipes on Windows
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="replace")
    try:
        try:
            return _run(sys.argv[1:] if argv is None else argv, has_output)
        finally:
            sys.stdout.flush()
    except OSError as error:
        is_reader_gone = isinstance(error, BrokenPipeError)  # for example that of `| head`
        if not is_reader_gone and error.errno not in FULL_DISK:
            raise
        with _without_complaint(sys.stdout):
            sys.stdout.flush()
        with _without_complaint(sys.stderr):
            if not is_reader_gone:
                print(f"mybert: error: {error.strerror}; free some disk space for the output", file=sys.stderr)
            sys.stderr.flush()
        return 141 if is_reader_gone else 2


def _open_closed_streams() -> bool:
    """Opens the null device in place of closed standard streams, whose numbers other files would get.

    Returns:
        Whether standard output was open.
    """
    has_output = sys.stdout is not None
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # in the order of their numbers
        if getattr(sys, name) is None:
            stream = os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8")
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    return has_output


@contextlib.contextmanager
def _without_complaint(stream: TextIO) -> Iterator[None]:
    """Drops what a stream that cannot be written still holds, or Python complains at exit."""
    try:
        yield
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(argv: list[str], has_output: bool) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"mybert {__version__}")
        return 0
    name, rest = argv[0], argv[1:]
    try:
        if name.startswith("--completion"):
            print(completion("".join(rest) or name.partition("=")[2]))
        elif name in COMMANDS:
            _run_command(name, rest, has_output)
        else:
            raise UserError(f"{unknown_name('command', name, COMMANDS)} (see `mybert --help`)")
    except UserError as error:
        if os.environ.get("MYBERT_TRACEBACK"):
            raise
        print(f"mybert{f' {name}' if name in COMMANDS else ''}: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in _BAD_PATH:
            raise
        print(f"mybert {name}: error: {short(error.filename)}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"mybert {name}: interrupted", file=sys.stderr)
        return 130
    return 0


def _run_command(name: str, argv: list[str], has_output: bool) -> None:
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")  # read at import; commands have bars of their own
    if not sys.stderr.isatty():  # no progress bars in log files
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    for logger in _VERBOSE:
        logging.getLogger(logger).setLevel(logging.ERROR)
    if odd := [word for word in argv if not is_unicode(word)]:  # safetensors and Arrow cannot name such a file
        raise UserError(
            f"{short(odd[0])} has bytes that are not UTF-8; rename the file or folder, or correct the text"
        )
    command = COMMANDS[name]
    settings = parse_settings(
        command.settings_types(), argv, f"mybert {name}", command.summary, command.examples, check_places
    )
    if not has_output and getattr(settings[0], "output", "") in ("-", None):
        raise UserError("standard output is closed; name a file or folder by --output")
    if "torch" not in sys.modules:  # its import takes seconds
        print(f"mybert {name}: {places(settings) or command.summary}", file=sys.stderr, flush=True)
    if name not in ("tokenizer", "corpus"):  # whose memory grows with the text
        keep_freed_memory()
    command_line.set((name, *argv))
    from mybert.common.progress import no_model_bars  # here, since `--help` does not need it

    with contextlib.nullcontext() if name in _WITHOUT_MODELS else no_model_bars():
        output = pkgutil.resolve_name(command.function)(*settings)
        command.add_report(settings, output)
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()  # now and then its threads abort a process at its exit
    if getattr(settings[-1], "process_index", 0) != 0:
        return
    if getattr(settings[0], "dry_run", False):
        print("dry run: nothing was written")
    elif isinstance(output, Path):
        from mybert.reports.findings import closing_lines

        print(closing_lines(output))


def completion(shell: str) -> str:
    """A script for `shell` that completes commands, options and file names."""
    import shtab

    if shell not in shtab.SUPPORTED_SHELLS:
        raise UserError(f"--completion: expected {' or '.join(shtab.SUPPORTED_SHELLS)}, found {shell!r}")
    root = argparse.ArgumentParser("mybert")
    commands = root.add_subparsers()
    for name, command in COMMANDS.items():
        parser = build_parser(options_without_import(command.settings_types()), f"mybert {name}")
        actions: list[Any] = parser._actions  # shtab reads an attribute of theirs
        for action in actions:
            if action.type is str and not action.choices:
                action.complete = shtab.FILE
        commands.add_parser(name, parents=[parser], add_help=False, help=command.summary)
    return shtab.complete(root, shell)


if __name__ == "__main__":
    sys.exit(main())
