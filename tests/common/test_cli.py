"""The command line: help, completion, one-line errors and exit statuses."""

import argparse
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from mybert import cli
from mybert.commands import COMMANDS
from mybert.common.command_line import parse_settings
from mybert.common.help_text import group_of
from mybert.common.options import options_of


def test_help_lists_every_command_without_loading_torch():
    script = "import sys; from mybert.cli import main; main(['--help']); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert all(f"\n  {name} " in run.stdout for name in COMMANDS)
    assert run.stdout.endswith("False\n")


def test_a_users_mistake_is_one_line_with_exit_status_2(capsys):
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
def test_flags_of_other_programs_are_suggested_by_our_names(capsys, flag, meant):
    assert cli.main(["pretrain", "--corpus", "nowhere", "--output", "o", flag]) == 2
    assert f"unknown argument {flag!r}; did you mean {meant!r}?" in capsys.readouterr().err


def test_an_unknown_command_is_refused_with_the_nearest_one(capsys):
    assert cli.main(["pretrian"]) == 2
    assert "unknown command 'pretrian'; did you mean 'pretrain'?" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--help", "--help-all", "-h"])
@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_lists_its_options_and_three_examples(name, flag, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([name, flag])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and shown.startswith(f"usage: mybert {name} ")
    options = options_of(COMMANDS[name].settings_types()).values()
    for option in options:
        if option.field.metadata.get("help") == argparse.SUPPRESS:
            continue
        expected = not option.inherited or flag == "--help-all"
        assert expected == (f"  {option.flag}" in shown or f"  {option.metavar} " in shown), option.field.name
    assert shown.count(f"mybert {name}") >= 4 and len(COMMANDS[name].examples) == 3
    assert "default: None" not in shown and "--mlm_probability" not in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_of_the_help_is_a_valid_command_line(name, monkeypatch):
    monkeypatch.setattr("pathlib.Path.is_dir", lambda path: path.name in ("model", "classifier"))
    for example in COMMANDS[name].examples:
        words = shlex.split(example.rpartition("| ")[2])
        assert words[:2] == ["mybert", name]
        parse_settings(COMMANDS[name].settings_types(), words[2:], f"mybert {name}")


def test_every_option_belongs_to_a_named_group_of_the_help():
    for name, command in COMMANDS.items():
        for option in options_of(command.settings_types()).values():
            group = group_of(option.field.name, option.required, option.inherited)
            assert group != "other options", f"{name}: add {option.field.name} to a group in help_text.py"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_knows_commands_and_options(shell, capsys):
    assert cli.main(["--completion", shell]) == 0
    script = capsys.readouterr().out
    assert "pretrain" in script and "mlm-probability" in script
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, text=True).returncode == 0


def test_bash_completes_options(capsys):
    cli.main(["--completion", "bash"])
    ask = "\nCOMP_WORDS=(mybert corpus --dedup); COMP_CWORD=2; _shtab_mybert 2>/dev/null; echo ${COMPREPLY[@]}"
    run = subprocess.run(["bash", "-c", capsys.readouterr().out + ask], capture_output=True, text=True)
    assert "--deduplicate-near" in run.stdout.split(), run.stdout + run.stderr


def test_a_closed_pipe_is_not_an_error():
    script = "import sys; from mybert.cli import main; sys.exit(main(['--help']))"
    run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    run.stdout.close()
    assert (run.stderr.read(), run.wait()) == ("", 141)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("output", "status", "error"),
    [
        (">/dev/full", 2, "mybert: error: No space left on device; free some disk space for the output\n"),
        (">&-", 0, ""),
    ],
)
def test_a_full_or_closed_output_gives_no_stack_trace(output, status, error):
    command = f"{shlex.quote(sys.executable)} -m mybert.cli --help {output}"
    run = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (status, "", error)


def test_the_module_is_the_command_and_names_its_version():
    run = subprocess.run([sys.executable, "-m", "mybert", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"mybert {metadata.version('mybert')}\n"
