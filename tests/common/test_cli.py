"""The command: short errors, exit statuses, and a help that costs nothing."""

import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from mybert import cli


def test_help_lists_every_command_without_loading_torch():
    script = "import sys; from mybert.cli import main; main(['--help']); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert all(f"mybert {name}" in run.stdout for name in cli.COMMANDS)
    assert run.stdout.endswith("False\n")


def test_a_users_mistake_is_one_line_and_exit_status_2(capsys):
    assert cli.main(["pretrain", "--corpus", "nowhere", "--output", "o", "--learning-rat", "1"]) == 2
    error = capsys.readouterr().err
    assert error == "mybert pretrain: error: unknown argument '--learning-rat'; did you mean '--learning-rate'?\n"


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--lr", "--learning-rate"),
        ("--batch_size=8", "--per-device-train-batch-size"),
        ("--epochs", "--num-train-epochs"),
    ],
)
def test_flags_that_others_call_otherwise_are_known_by_ours(capsys, flag, meant):
    assert cli.main(["pretrain", "--corpus", "nowhere", "--output", "o", flag]) == 2
    assert f"unknown argument {flag!r}; did you mean {meant!r}?" in capsys.readouterr().err


def test_an_unknown_command_is_refused_with_the_known_ones(capsys):
    assert cli.main(["pretrian"]) == 2
    assert "unknown command 'pretrian'; did you mean 'pretrain'?" in capsys.readouterr().err


def test_help_shows_our_settings_and_transformers_only_when_asked(capsys):
    shown = {}
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit):
            cli.main(["pretrain", flag])
        shown[flag] = capsys.readouterr().out
    assert shown["--help"].startswith("usage: mybert pretrain --corpus CORPUS --output OUTPUT [--option VALUE …]\n")
    for text in shown.values():
        assert "--mlm-probability" in text and "--mlm_probability" not in text and "default: None" not in text
        assert "peak learning rate" in text.lower()
    assert "Switches --dataloader-pin-memory off." in " ".join(shown["--help-all"].split())
    assert "--torch-compile" in shown["--help-all"] and "--torch-compile" not in shown["--help"]


def test_a_reader_that_has_seen_enough_is_no_error():
    script = "import sys; from mybert.cli import main; sys.exit(main(['--help']))"
    run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    run.stdout.close()
    assert (run.stderr.read(), run.wait()) == ("", 141)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize(
    ("output", "status", "error"),
    [
        (">/dev/full", 2, "mybert: error: No space left on device; free some space where the output goes\n"),
        (">&-", 0, ""),
    ],
)
def test_an_output_that_takes_nothing_ends_in_no_stack_trace(output, status, error):
    command = f"{shlex.quote(sys.executable)} -m mybert.cli --help {output}"
    run = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (status, "", error)


def test_the_module_is_the_command_and_names_its_version():
    said = subprocess.run([sys.executable, "-m", "mybert", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"mybert {metadata.version('mybert')}\n"
