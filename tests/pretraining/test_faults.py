"""Faults injected into real processes; `pytest tests/pretraining/test_faults.py -s` prints their cost as a table."""

import functools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest
import torch
from trained_runs import have_same_weights, read_log, read_results, weights_of

from mybert.common.tables import print_table
from mybert.training.sealed_checkpoints import find_damage, last_undamaged
from mybert.training.stopping import PREEMPTED

STEPS, SAVE, EVALUATE = 18, 4, 5  # 200 examples, 16 a step: an epoch has 13 steps
KILLED = -signal.SIGKILL


def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def at_step(step, act):
    """Calls `act` before the optimizer applies the given step."""
    from mybert.training.nonfinite import NonFiniteSteps

    check = NonFiniteSteps.check_gradient

    def wrapped(self, done, *args):
        if done == step - 1:
            act()
        return check(self, done, *args)

    NonFiniteSteps.check_gradient = wrapped


def kill_while_the_optimizer_is_written():
    save = torch.save

    def half(value, path, *args, **kwargs):
        save(value, path, *args, **kwargs)
        if str(path).endswith("checkpoint-8/optimizer.pt"):
            os.truncate(path, os.path.getsize(path) // 2)
            die()

    torch.save = half


def kill_before_the_rename():
    from mybert.training import sealed_checkpoints

    replace = sealed_checkpoints.replace_folder
    sealed_checkpoints.replace_folder = lambda new, path: die() if path.name == "checkpoint-8" else replace(new, path)


def count_time_by_steps(seconds, killed_at=None):
    """Each step takes so many seconds of a time budget, everything else takes none, whatever else the machine does."""
    from mybert.pretraining import clock
    from mybert.pretraining.planning.rules import budget_rules
    from mybert.training.nonfinite import NonFiniteSteps

    budget_rules()["passes"]["most"] = 1e9  # few would end before the time that was not measured by this clock
    now, check = [0.0], NonFiniteSteps.check_gradient

    def wrapped(self, done, *args):
        now[0] += seconds
        if done + 1 == killed_at:
            die()
        return check(self, done, *args)

    NonFiniteSteps.check_gradient = wrapped
    clock.process_start = lambda: 0.0
    clock.time = SimpleNamespace(monotonic=lambda: now[0], process_time=lambda: now[0])


def kill_in_evaluation():
    from mybert.training.trainer import RunTrainer

    predict = RunTrainer.prediction_step
    RunTrainer.prediction_step = lambda self, *args, **kwargs: (
        die() if self.state.global_step == 10 else predict(self, *args, **kwargs)
    )


def kill_while_the_model_is_finished():
    from mybert.pretraining import run

    run.final_metrics = die


terminate = functools.partial(at_step, 7, functools.partial(signal.raise_signal, signal.SIGTERM))


def terminate_the_group():
    """From outside, as schedulers do: torch's loader workers treat a signal of their parent differently."""
    os.setpgrp()
    words = ["kill", "-TERM", "--", f"-{os.getpgrp()}"]
    at_step(7, lambda: subprocess.run(words, check=True, start_new_session=True))


def interrupt_the_group():
    """As a terminal does at Ctrl-C; processes in the background of a shell ignore it."""
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    at_step(7, lambda: os.killpg(0, signal.SIGINT))


def tell_the_seed():
    at_step(1, lambda: print(f"drawn from {torch.initial_seed()}"))


@pytest.fixture(scope="module")
def start(start_processes, corpus_folder):
    """A function that runs the command in `count` processes and returns exit statuses, seconds and output."""

    def call(output, *extra, fault=None, count=1, batch=16):
        argv = ["--corpus", corpus_folder, "--output", output, "--size", "tiny", "--use-cpu", "--disable-tqdm", True]
        argv += ["--max-steps", STEPS, "--save-steps", SAVE, "--eval-steps", EVALUATE, "--learning-rate", 1e-3]
        argv += ["--logging-steps", 1, "--peak-flops", 1e9]
        argv += ["--per-device-train-batch-size", batch // count, *extra]
        began = time.perf_counter()
        statuses, text = start_processes(["pretrain", *argv], count, fault)
        return statuses, time.perf_counter() - began, text

    return call


@pytest.fixture(scope="module")
def whole(start, tmp_path_factory):
    """An uninterrupted run."""
    output = tmp_path_factory.mktemp("whole") / "run"
    statuses, _, text = start(output)
    assert statuses == [0], text
    return output


@pytest.fixture(scope="module")
def table():
    rows = []
    yield rows
    names = ("fault", "status", "lost steps", "lost tokens", "seconds to the end", "weights equal")
    print_table("Faults", rows, names)


def finish(start, whole, output, reached, table, name, status, *extra, **how):
    """Resumes, compares with the uninterrupted run, and adds a row to the table."""
    checkpoint, _ = last_undamaged(output)
    statuses, seconds, text = start(output, "--resume", *extra, **how)
    assert set(statuses) == {0}, text
    equal = have_same_weights(output, whole)
    lost = read_results(whole)["tokens_seen"] - read_results(output)["tokens_seen"]
    steps = reached - int(checkpoint.name.removeprefix("checkpoint-"))
    table.append((name, status, steps, lost, f"{seconds:.1f}", "yes" if equal else "no"))
    return equal, lost, steps, text


@pytest.mark.parametrize(
    ("when", "fault", "reached", "lost_steps", "workers"),
    [
        ("in the second epoch", functools.partial(at_step, 15, die), 14, 2, 2),
        ("while the optimizer is written", kill_while_the_optimizer_is_written, 8, 4, 0),
        ("before the rename", kill_before_the_rename, 8, 4, 0),
        ("in evaluation", kill_in_evaluation, 10, 2, 2),
        ("while the model is finished", kill_while_the_model_is_finished, 18, 0, 0),
    ],
)
def test_a_killed_process_costs_only_the_steps_since_its_last_checkpoint(
    start, whole, table, tmp_path, when, fault, reached, lost_steps, workers
):
    output, words = tmp_path / "run", ("--dataloader-num-workers", workers)
    statuses, _, text = start(output, *words, fault=fault)
    assert statuses == [KILLED], text
    found = finish(start, whole, output, reached, table, f"SIGKILL: {when}, {workers} workers", "-9", *words)
    assert found[:3] == (True, 0, lost_steps)
    assert not list(output.glob(".*")), "nothing half-written is left"


def truncate(file):
    os.truncate(file, file.stat().st_size - 1)


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_a_damaged_checkpoint_is_named_and_the_previous_one_is_used(start, whole, table, tmp_path):
    output = tmp_path / "run"
    shutil.copytree(whole, output)
    flip_a_bit(output / "checkpoint-18" / "model.safetensors")
    equal, lost, steps, text = finish(start, whole, output, 18, table, "checkpoint damaged: a bit flipped", "-")
    assert (equal, lost, steps) == (True, 0, 2)
    assert re.search("checkpoint-18 is damaged: model.safetensors .*SHA-256 differs", text)
    assert (output / "damaged-checkpoint-18").is_dir()


def test_truncated_and_missing_files_are_damage(whole, tmp_path):
    shutil.copytree(whole / "checkpoint-18", tmp_path / "checkpoint-18")
    assert find_damage(tmp_path / "checkpoint-18") is None
    truncate(tmp_path / "checkpoint-18" / "optimizer.pt")
    assert re.match("optimizer.pt has .* bytes instead of", find_damage(tmp_path / "checkpoint-18"))
    shutil.copy(whole / "checkpoint-18" / "optimizer.pt", tmp_path / "checkpoint-18")
    (tmp_path / "checkpoint-18" / "rng_state.pth").unlink()
    assert find_damage(tmp_path / "checkpoint-18") == "rng_state.pth is missing"
    (tmp_path / "checkpoint-18" / "checkpoint.json").write_text('{"files":')
    assert find_damage(tmp_path / "checkpoint-18") == "checkpoint.json is damaged"
    (tmp_path / "checkpoint-18" / "checkpoint.json").unlink()
    assert find_damage(tmp_path / "checkpoint-18") == "no checkpoint.json: it was not saved completely"
    assert last_undamaged(tmp_path) == (
        None,
        {tmp_path / "checkpoint-18": "no checkpoint.json: it was not saved completely"},
    )


def test_when_every_checkpoint_is_damaged_a_run_is_not_resumed(start, whole, tmp_path):
    output = tmp_path / "run"
    shutil.copytree(whole, output)
    for folder in output.glob("checkpoint-*"):
        truncate(folder / "scheduler.pt")
    statuses, _, text = start(output, "--resume")
    assert statuses == [2]
    assert "checkpoint-16/" not in text and text.count("scheduler.pt has") == 2
    assert "start again with --overwrite" in text and "Traceback" not in text


@pytest.mark.parametrize(
    ("name", "fault", "words"),
    [
        # this checkpoint has the optimizer, as resuming needs it
        ("SIGTERM", terminate, ("--save-only-model", True)),
        ("SIGTERM to the group", terminate_the_group, ("--dataloader-num-workers", 2)),
        ("Ctrl-C to the group", interrupt_the_group, ("--dataloader-num-workers", 2)),
    ],
)
def test_sigterm_and_ctrl_c_save_and_exit_with_143(start, whole, table, tmp_path, name, fault, words):
    output = tmp_path / "run"
    statuses, _, text = start(output, *words, fault=fault)
    assert statuses == [PREEMPTED] == [143], text
    assert "stopped and saved after step 7 of 18" in text and " --resume\n" in text
    label = " ".join(map(str, (name, *words)))
    assert finish(start, whole, output, 7, table, label, "143")[:3] == (True, 0, 0)


def test_on_a_full_disk_the_last_checkpoint_stays_and_the_message_has_the_size_needed(start, whole, table, tmp_path):
    output = tmp_path / "run"
    fill_the_disk = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))
    statuses, _, text = start(output, fault=functools.partial(at_step, 7, fill_the_disk))
    assert statuses == [2]
    assert re.search(
        r"error: no room to write \S+checkpoint-8 \(.*it takes about \d\S* [kM]B; .* free on that disk", text
    )
    assert "repeat with --resume" in text and "Traceback" not in text
    assert [path.name for path in output.glob("*checkpoint*")] == ["checkpoint-4"]
    assert finish(start, whole, output, 8, table, "full disk", "2")[:3] == (True, 0, 4)


def test_a_killed_run_with_a_time_budget_is_continued_and_all_sessions_count(start_processes, corpus_folder, tmp_path):
    argv = ["pretrain", "--corpus", corpus_folder, "--size", "tiny", "--output", tmp_path / "run", "--use-cpu"]
    argv += ["--resume", "--save-steps", 3, "--time-budget", "1h"]
    session = functools.partial(count_time_by_steps, 200)  # 18 steps, less the time reserved for the end
    statuses, text = start_processes(argv, fault=functools.partial(session, killed_at=9))
    assert statuses == [KILLED], text
    plan = json.loads((tmp_path / "run" / "budget.json").read_text())
    assert last_undamaged(tmp_path / "run")[0].name == "checkpoint-6" and 1200 <= plan["seconds"] <= 1800
    statuses, text = start_processes(argv, fault=session)
    assert statuses == [0], text
    steps, results = [log["step"] for log in read_log(tmp_path / "run", "loss")], read_results(tmp_path / "run")
    assert steps == sorted(set(steps)) and steps[-1] == results["steps"]
    # steps 7 and 8 are done twice, and the time of both counts
    lost = round(plan["seconds"] / 200) - 6
    assert 11 < results["steps"] <= 18 - lost, "the second session ignores the time of the first"
    assert results["budget"]["choices"] == plan["choices"]


@pytest.fixture(scope="module")
def alone(start, tmp_path_factory):
    """One process without dropout, for comparison with several processes."""
    output = tmp_path_factory.mktemp("alone") / "run"
    statuses, _, text = start(output, "--dropout", 0)
    assert statuses == [0], text
    return output


def follows(output, alone):
    found, expected = ({log["step"]: log["loss"] for log in read_log(folder, "loss")} for folder in (output, alone))
    assert found == pytest.approx(expected, rel=2e-4)
    torch.testing.assert_close(weights_of(output), weights_of(alone), atol=1e-3, rtol=0)


def test_two_processes_have_the_losses_of_one_also_at_the_last_batch_of_an_epoch(start, alone, tmp_path):
    smaller = ("--gradient-accumulation-steps", 2, "--per-device-train-batch-size", 4, "--gradient-checkpointing")
    statuses, _, text = start(tmp_path / "run", "--dropout", 0, *smaller, count=2)
    assert statuses == [0, 0], text
    follows(tmp_path / "run", alone)
    assert read_results(tmp_path / "run")["training_arguments"]["gradient_accumulation_steps"] == 2


def test_dropout_differs_between_processes(start, tmp_path):
    statuses, _, text = start(tmp_path / "run", "--max-steps", 1, "--seed", 7, fault=tell_the_seed, count=2)
    assert statuses == [0, 0], text
    assert sorted(re.findall(r"drawn from (\d+)", text)) == ["7", "8"]


def test_a_run_is_resumed_with_another_number_of_processes(start, alone, table, tmp_path):
    output = tmp_path / "run"
    statuses, _, text = start(output, "--dropout", 0, fault=terminate, count=2)
    assert statuses == [PREEMPTED] * 2, text
    statuses, seconds, text = start(output, "--dropout", 0, "--resume")
    assert statuses == [0], text
    follows(output, alone)
    table.append(("SIGTERM, 2 processes, resumed with 1", "143", 0, 0, f"{seconds:.1f}", "to rounding"))
