"""The command line: help, completion, one-line errors and exit statuses."""

import argparse
import dataclasses
import io
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from forked import exit_status
from transformers import TrainingArguments

from modeling_mybert import NAMED_SIZES
from modeling_mybert.answer_decoding_mybert import MAX_ANSWER_LENGTH, MAX_LENGTH, MAX_WINDOWS
from mybert import cli
from mybert.commands import COMMANDS
from mybert.finetuning.arguments import FinetuningArguments
from mybert.pretraining.arguments import PretrainingArguments
from mybert.settings.options import OTHER_OPTIONS, arguments_class, options_of, options_without_import
from mybert.settings.parse import parse_settings
from mybert.settings.shared import SIZES
from mybert.tasks import TASKS, task_class
from mybert.tasks.options import ANSWER_LENGTH, ANSWER_WINDOW, ANSWER_WINDOWS, TaskOptions


def test_help_and_usage_errors_appear_without_importing_what_takes_long():
    script = """
import contextlib, sys
from mybert.cli import main
from mybert.commands import COMMANDS

for words in (["--help"], ["--version"], *([name, "--help"] for name in COMMANDS), ["pretrain", "--help-all"]):
    with contextlib.suppress(SystemExit):
        main(words)
for words in (["pretrain", "--corpus", "c", "--output", "o", "--learning-rat", "1"], ["finetune"], ["pretrian"]):
    assert main(words) == 2
print(sorted({"torch", "transformers", "datasets", "numpy", "pyarrow", "matplotlib"} & sys.modules.keys()))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert all(f"\n  {name} " in run.stdout for name in COMMANDS)
    assert run.stdout.endswith("[]\n")


@pytest.mark.parametrize("name", ["pretrain", "adapt", "distill", "finetune"])
def test_options_read_without_an_import_are_those_of_the_imported_class(name):
    kinds = COMMANDS[name].settings_types()
    read, imported = options_without_import(kinds), options_of(map(arguments_class, kinds))
    assert read.keys() == imported.keys()
    for option in imported.values():
        like = read[option.field.name]
        assert (like.flag, like.metavar, like.choices, like.default, like.inherited) == (
            *(option.flag, option.metavar, option.choices, option.default, option.inherited),
        )
        assert (like.kinds == {bool}) == (option.kinds == {bool}) and like.help == option.help


def test_names_known_without_an_import_are_those_of_the_modules_that_are_not_imported():
    inherited = [field.name for field in dataclasses.fields(TrainingArguments)]
    for arguments in (PretrainingArguments, FinetuningArguments):
        assert [field.name for field in dataclasses.fields(arguments)] == inherited
    assert tuple(NAMED_SIZES) == SIZES
    assert (ANSWER_LENGTH, ANSWER_WINDOW, ANSWER_WINDOWS) == (MAX_ANSWER_LENGTH, MAX_LENGTH, MAX_WINDOWS)
    for name in TASKS:
        assert task_class(name).name == name and issubclass(task_class(name).Options, TaskOptions)


def test_a_flag_of_training_arguments_is_read_though_the_help_does_not_list_it():
    settings = COMMANDS["pretrain"].settings_types()
    argv = ["--corpus", "c", "--output", "o", "--max-grad-norm", "0.5", "--no-tf32"]
    arguments = parse_settings(settings, argv, "mybert pretrain")[1]
    assert (arguments.max_grad_norm, arguments.tf32, arguments.learning_rate) == (0.5, False, 1e-4)
    assert arguments.given == {"max_grad_norm", "tf32"}


def test_a_word_with_spaces_is_a_value_though_it_begins_like_a_flag():
    (settings,) = parse_settings(
        COMMANDS["search"].settings_types(), ["v.npy", "--init-from of Trainer"], "mybert search"
    )
    assert settings.query == ["--init-from of Trainer"]


@pytest.mark.parametrize("flag", ["--help", "--help-all", "-h"])
def test_an_unknown_flag_beside_help_shows_the_help(flag, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_settings(COMMANDS["embed"].settings_types(), ["--unknown", flag], "mybert embed")
    assert ended.value.code == 0 and "usage: mybert embed" in capsys.readouterr().out


@pytest.mark.parametrize(("word", "meant"), [("pretrian", "pretrain"), ("report", "doctor")])
def test_an_unknown_command_is_answered_by_the_nearest(word, meant, capsys):
    assert cli.main([word]) == 2
    message = f"unknown command '{word}'; did you mean '{meant}'? (see `mybert --help`)"
    assert capsys.readouterr().err == f"mybert: error: {message}\n"


@pytest.mark.parametrize("flag", ["--help", "--help-all"])
@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_lists_its_options_and_three_examples(name, flag, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([name, flag])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and shown.startswith(f"usage: mybert {name} ")
    options = options_of(map(arguments_class, COMMANDS[name].settings_types())).values()
    listed = re.findall(r"^  (--[\w-]+)", shown.replace("--[no-]", "--"), re.M)
    for option in options:
        if option.field.metadata.get("help") == argparse.SUPPRESS:
            continue
        expected = not option.inherited or flag == "--help-all"
        assert expected == (option.flag in listed or f"  {option.metavar} " in shown), option.field.name
    assert shown.count(f"mybert {name}") >= 4 and len(COMMANDS[name].examples) >= 3
    assert not re.search(r"--[\w-]*-$", shown, re.M)  # no flag is divided
    assert "default: None" not in shown and "--mlm_probability" not in shown


@pytest.mark.parametrize("suffix", ["yaml", "json"])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_of_the_help_is_valid_and_is_saved_and_read_back(name, suffix, monkeypatch, tmp_path):
    monkeypatch.setattr("pathlib.Path.is_dir", lambda path: path.name in ("model", "classifier"))
    kinds, file = COMMANDS[name].settings_types(), str(tmp_path / f"run.{suffix}")
    for example in COMMANDS[name].examples:
        words = shlex.split(example.rpartition("| ")[2])
        assert words[:2] == ["mybert", name]
        given = parse_settings(kinds, [*words[2:], "--save-config", file], name)
        read = parse_settings(kinds, ["--config", file], name)
        assert [_values(one) for one in read] == [_values(one) for one in given]
        if getattr(given[0], "time_budget", None):  # chooses what is not given
            assert [one.given for one in read] == [one.given for one in given]


def _values(settings) -> dict:
    return settings.to_dict() if hasattr(settings, "to_dict") else vars(settings) | {"given": None}


def test_every_option_belongs_to_a_named_group_of_the_help():
    for name, command in COMMANDS.items():
        for option in options_of(command.settings_types()).values():
            assert option.group != OTHER_OPTIONS, f"{name}: declare a group of {option.field.name}"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_writes_a_file_or_folder_returns_its_path_for_the_closing_lines(name):
    writes = any(option.field.name == "output" for option in options_of(COMMANDS[name].settings_types()).values())
    returned = pkgutil.resolve_name(COMMANDS[name].function).__annotations__["return"]
    assert (returned in (Path, Path | None, "Path")) == writes  # a module may postpone annotations


ASK = {  # what a shell offers for an option, after its completion script
    "bash": "COMP_WORDS=(mybert corpus {0}); COMP_CWORD=2; _shtab_mybert 2>/dev/null; echo ${{COMPREPLY[@]}}",
    "fish": 'complete -C "mybert corpus {0}"',
}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_knows_commands_and_a_shell_completes_options(shell, capsys):
    assert cli.main(["--completion", shell]) == 0
    script = capsys.readouterr().out
    assert "pretrain" in script and "mlm-probability" in script
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, text=True).returncode == 0
        if shell in ASK:
            ask = f"{script}\n{ASK[shell].format('--dedup')}"
            run = subprocess.run([shell, "-c", ask], capture_output=True, text=True)
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
        ("<&- >&- 2>&-", 0, ""),
    ],
)
def test_a_full_or_closed_output_gives_no_stack_trace(output, status, error):
    command = f"{shlex.quote(sys.executable)} -m mybert.cli --help {output}"
    run = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (status, "", error)


def run_with_closed_streams(closed: tuple[int, ...], folder: Path, words: list[str]) -> None:
    """In a fork: what Python leaves of streams that were closed before its start."""
    os.chdir(folder)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if number in closed:
            os.close(number)
            setattr(sys, name, None)
        else:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
    raise SystemExit(cli.main(words))


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_commands_work_with_closed_streams_and_refuse_to_write_results_to_them(closed, models, tmp_path):
    (tmp_path / "rows.csv").write_text("text\na good film\n", encoding="utf-8")
    words = ["predict", str(models("classifier")), "rows.csv", "--device", "cpu"]

    def status(*more: str) -> int | None:
        return exit_status(run_with_closed_streams, closed, tmp_path, [*words, *more])

    assert status("--output", "out.csv") == 0
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").startswith("label,")
    assert status() == (2 if 1 in closed else 0)


def test_the_module_is_the_command_and_names_its_version():
    run = subprocess.run([sys.executable, "-m", "mybert", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"mybert {metadata.version('mybert')}\n"


def test_messages_are_utf_8_in_pipes_whose_encoding_is_another(monkeypatch):
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(pipe, encoding="cp1252", write_through=True))
    assert cli.main(["Übung→"]) == 2
    assert "'Übung→'" in pipe.getvalue().decode("utf-8")
