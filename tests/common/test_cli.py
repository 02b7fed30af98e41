"""The command: short errors, exit statuses, and a help that costs nothing."""

import subprocess
import sys

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


def test_an_unknown_command_is_refused_with_the_known_ones(capsys):
    assert cli.main(["pretrian"]) == 2
    assert "unknown command 'pretrian'" in capsys.readouterr().err
