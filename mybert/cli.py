"""The `mybert` command: each subcommand reads its settings, calls one function and says where the result is."""

import difflib
import errno
import importlib
import logging
import os
import sys

from mybert import __version__
from mybert.common.disk_space import FULL_DISK
from mybert.common.error_messages import short
from mybert.common.errors import UserError

# what transformers warns of though it is not so here, by the logger that says it
_FALSE_ALARMS = (
    ("transformers.trainer_utils", "do not match the ones in the `trainer_state.json`"),  # shares beside their steps
    ("transformers.trainer_utils", "mtime may not be reliable"),  # checkpoints of the same second
    ("transformers.tokenization_utils_base", "sequence length is longer than the specified maximum"),  # only counted
)
_UNREACHABLE = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS)  # names that lead nowhere, any command

# name -> (module, function taking the words after the name, one line of help); imported only when asked for
COMMANDS = {
    "tokenizer": ("mybert.corpus.train_tokenizer", "documents → WordPiece vocabulary"),
    "corpus": ("mybert.corpus.build", "documents → MLM + NSP examples"),
    "plan": (
        "mybert.pretraining.planning.cost_estimate",
        "model, tokens, devices → memory, traffic, time and price",
    ),
    "pretrain": ("mybert.pretraining.run", "examples → pretrained checkpoint"),
    "finetune": ("mybert.finetuning.run", "checkpoint + labelled rows → model with the head of a task"),
    "evaluate": (
        "mybert.finetuning.evaluation.evaluate",
        "fine-tuned model + labelled rows → scores and errors",
    ),
    "predict": ("mybert.finetuning.evaluation.predict", "fine-tuned model + rows → predictions as JSON lines"),
    "embed": ("mybert.embedding.run", "texts → vectors of texts or of words in context"),
    "export": ("mybert.release.convert.export", "checkpoint → plain BERT folder, or ONNX (also int8)"),
    "import": ("mybert.release.convert.import_bert", "BERT of transformers or Google → MyBERT folder"),
    "push": ("mybert.release.hub.push", "checkpoint → the Hugging Face Hub, verified, with a card"),
    "quickstart": ("mybert.quickstart", "the whole life of a small BERT on the documentation inside Python"),
}


def usage() -> str:
    lines = [f"  mybert {name:<12} {help}" for name, (_, help) in COMMANDS.items()]
    return "\n".join(["usage: mybert COMMAND [--help] …", "", *lines])


def main(argv: list[str] | None = None) -> int:
    """Runs one subcommand.

    Returns:
        The exit status: 0 when done, 2 for a mistake of the user's, 130 when interrupted, 141 when
        nobody reads the output any more, 143 when SIGTERM or Ctrl-C ended a training whose checkpoint is saved.
    """
    try:
        try:
            return _run(sys.argv[1:] if argv is None else argv)
        finally:
            if sys.stdout is not None:  # closed by who started us: `>&-`
                sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError) and error.errno not in FULL_DISK:
            raise
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at exit
        if isinstance(error, BrokenPipeError):  # who reads the output has seen enough: `| head`
            return 141
        print(f"mybert: error: {error.strerror}; free some space where the output goes", file=sys.stderr)
        return 2


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"mybert {__version__}")
        return 0
    name, rest = argv[0], argv[1:]
    if name not in COMMANDS:
        nearest = difflib.get_close_matches(name, COMMANDS, n=1)
        meant = f"; did you mean {nearest[0]!r}?" if nearest else ""
        print(f"mybert: error: unknown command {name!r}{meant}\n\n{usage()}", file=sys.stderr)
        return 2
    if sys.stderr is None or not sys.stderr.isatty():  # in files, bars bury the lines; read when they are imported
        for library in ("HF_DATASETS", "HF_HUB"):
            os.environ.setdefault(f"{library}_DISABLE_PROGRESS_BARS", "1")
    for logger, words in _FALSE_ALARMS:
        logging.getLogger(logger).addFilter(lambda record, words=words: words not in record.getMessage())
    try:
        importlib.import_module(COMMANDS[name][0]).main(rest, prog=f"mybert {name}")
    except UserError as error:
        if os.environ.get("MYBERT_TRACEBACK"):
            raise
        print(f"mybert {name}: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in _UNREACHABLE:
            raise
        print(f"mybert {name}: error: {short(error.filename)}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"mybert {name}: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
