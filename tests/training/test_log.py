"""The display on a terminal, the lines of logs, and the numbers that experiment trackers get."""

import io
import math
import re
import sys
from types import SimpleNamespace

import pytest
import torch
from json_files import read_lines
from rich.console import Console
from torch import nn
from transformers import TrainerCallback
from transformers.integrations import TensorBoardCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from mybert import UserError
from mybert.common.progress import Bar
from mybert.training.log import Display, log_line, start_trackers
from mybert.training.options import TRACKERS
from mybert.training.speed import StepMeasures

ARGUMENTS = SimpleNamespace(max_steps=-1, metric_for_best_model=None)


@pytest.mark.parametrize("width", [80, 100, 130])
def test_a_terminal_shows_bars_of_the_training_in_one_line_and_of_an_evaluation(width):
    screen, shown = (Console(file=io.StringIO(), force_terminal=True, width=width) for _ in range(2))
    display = Display(screen)
    state = SimpleNamespace(is_world_process_zero=True, global_step=0, max_steps=400_000)
    display.on_train_begin(None, state, None)
    state.global_step = 200_000
    display.on_step_end(None, state, None)
    display.on_log(ARGUMENTS, state, None, logs={"loss": 3.456})
    shown.print(display._progress.get_renderable())
    (line,) = shown.file.getvalue().rstrip("\n").split("\n")
    display.on_prediction_step(None, state, None, eval_dataloader=[0, 1])
    display.on_evaluate(None, state, None)
    display.on_train_end(None, state, None)
    for text in ("200,000 of 400,000 steps", "training, loss 3.456"):
        assert text in line and text in screen.file.getvalue()
    assert "evaluating" in screen.file.getvalue()


def test_a_file_gets_no_bar():
    file = io.StringIO()
    with Bar(total=3, desc="reading", unit="rows", console=Console(file=file)) as bar:
        bar.update(3)
    assert list(Bar([1, 2], desc="reading", unit="rows", console=Console(file=file))) == [1, 2]
    assert file.getvalue() == ""


def test_a_bar_counts_what_it_iterates_over():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    assert list(Bar("abc", total=3, desc="reading", unit="rows", console=console)) == ["a", "b", "c"]
    assert "3 of 3 rows" in screen.getvalue()


def test_the_update_ratio_is_the_change_of_the_weights_relative_to_their_norm(make_trainer):
    trainer = make_trainer()
    weights = {}

    class Watch(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            weights[state.global_step] = trainer.model.encoder["layer"].weight.item()

        on_step_end = on_step_begin

    trainer.add_callback(Watch())
    trainer.train()
    logged = {log["step"]: log["update_ratio"] for log in trainer.state.log_history if "update_ratio" in log}
    assert set(logged) == {2, 4, 6}
    for step, ratio in logged.items():
        assert ratio == pytest.approx(abs(weights[step] - weights[step - 1]) / abs(weights[step - 1]), rel=1e-3)
    # the weight rises towards 2 in every step, so that all gradients have the same direction
    noise = [log["gradient_noise"] for log in trainer.state.log_history if "gradient_noise" in log]
    assert noise == pytest.approx([0.0] * 3, abs=1e-6)


@pytest.mark.parametrize(("noise", "scale"), [(0.1, 1.0), (1.0, 1.0), (9.0, 1.0), (1.0, 1e-14), (1.0, 1e14)])
def test_gradient_noise_is_the_share_of_the_squared_gradient_that_is_not_common_to_the_steps(noise, scale):
    generator = torch.Generator().manual_seed(0)
    model = nn.ModuleDict({"encoder": nn.ModuleDict({"layer": nn.Linear(200, 200)})})
    weights, measures = model["encoder"]["layer"].weight, StepMeasures()
    common = torch.randn(200, 200, generator=generator)
    for step in range(4):
        weights.grad = scale * (common + noise**0.5 * torch.randn(200, 200, generator=generator))
        measures.on_pre_optimizer_step(None, SimpleNamespace(global_step=step, logging_steps=2), None, model=model)
    assert measures.take()["gradient_noise"] == pytest.approx(noise / (1 + noise), abs=0.02)
    assert measures.take() == {}


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["tensorboard", "mlflow"])
def test_a_tracker_gets_the_names_of_the_log(tracker, make_trainer, tmp_path, monkeypatch):
    """transformers groups the names for all trackers but mlflow."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlflow'}")  # before the import, which reads it
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    pytest.importorskip(tracker)
    monkeypatch.setattr(sys, "argv", ["mybert"])
    monkeypatch.chdir(tmp_path)
    trainer = make_trainer("run", report_to=[tracker], run_name="test", project="test")
    start_trackers(trainer)
    trainer.train()
    names = NAMES_OF[tracker](tmp_path)
    log = read_lines(tmp_path / "run/log.jsonl")
    assert any("tokens" in entry for entry in log)
    expected = {"loss", "tokens", "seconds", "update_ratio", "gradient_noise", "eval_loss"}
    if tracker != "mlflow":
        expected = {f"eval/{name[5:]}" if name.startswith("eval_") else f"train/{name}" for name in expected}
    assert expected <= names


def names_in_tensorboard(folder) -> set[str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (events,) = folder.rglob("events.out.tfevents*")
    found = EventAccumulator(str(events)).Reload()
    return set(found.Tags()["scalars"])


def names_in_mlflow(folder) -> set[str]:
    (metrics,) = folder.rglob("metrics")
    return {str(file.relative_to(metrics)) for file in metrics.rglob("*") if file.is_file()}


NAMES_OF = {"tensorboard": names_in_tensorboard, "mlflow": names_in_mlflow}


def test_transformers_trackers_are_known():
    assert set(INTEGRATION_TO_CALLBACK) <= set(TRACKERS)


def test_a_tracker_that_cannot_start_is_named_in_one_line(make_trainer, monkeypatch):
    def fail(*_arguments, **_kwargs):
        raise RuntimeError("no login\nmore lines")

    monkeypatch.setattr(TensorBoardCallback, "on_train_begin", fail)
    trainer = make_trainer(report_to=["tensorboard"])
    start_trackers(trainer)
    with pytest.raises(UserError, match=r"--report-to: .*no login"):
        trainer.train()
    monkeypatch.setattr(TensorBoardCallback, "setup", None, raising=False)  # as those have that need a login
    with pytest.raises(UserError, match=r"--report-to: .*no login"):
        start_trackers(make_trainer(report_to=["tensorboard"]))


@pytest.mark.parametrize("without_bar", [True, False])
def test_each_log_during_training_is_a_line_with_its_numbers(make_trainer, capsys, without_bar):
    trainer = make_trainer(max_steps=4, eval_steps=2, disable_tqdm=without_bar)
    trainer.train()
    trainer.evaluate()  # logged after training: not printed

    *logs, _, _ = trainer.state.log_history
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith("step ")]
    assert len(lines) == len(logs) == 4 and "{" not in printed
    for line, log in zip(lines, logs, strict=True):
        title, name = (", evaluation", "eval_loss") if "eval_loss" in log else ("", "loss")
        assert line.startswith(f"step {log['step']} of 4{title}: ")
        assert float(re.search(r"loss ([0-9.e+-]+)", line)[1]) == pytest.approx(log[name], rel=1e-3)
        assert "runtime" not in line
    assert re.search(r"^4 steps in [0-9]+ s: mean loss [0-9.]+$", printed, re.MULTILINE)


def test_an_evaluation_that_chooses_the_checkpoint_is_in_the_line_of_its_step(make_trainer, capsys):
    chooses = {"metric_for_best_model": "eval_loss", "save_strategy": "steps", "save_steps": 3}
    make_trainer(max_steps=6, eval_steps=3, logging_steps=1, **chooses).train()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]
    assert [line.partition(" of ")[0] for line in lines] == [f"step {step}" for step in range(1, 7)]
    assert ["evaluation: loss" in line for line in lines] == [False, False, True] * 2


def test_small_rates_keep_their_digits_and_amounts_have_units():
    logs = {
        "loss": 3.95182,
        "learning_rate": 7.7e-08,
        "tokens": 53_262_741,
        "tokens_per_second": 14_351,
        "seconds_left": 280,
        "mfu": 0.2363,
    }
    assert log_line(logs, 13_300, 13_400) == (
        "step 13,300 of 13,400: loss 3.952, lr 7.7e-08, 53,262,741 tokens, 14,351 tokens/s, 4 min 40 s left, "
        "24% of peak speed"
    )


def test_cores_that_other_programs_leave_are_named_when_this_begins_or_changes(capsys):
    display, state = Display(), SimpleNamespace(is_world_process_zero=True, global_step=0, max_steps=9)
    display.on_train_begin(None, state, None)
    for cores in (None, 1.1, 1.3, None, 1.2, 0.4):
        display.on_log(ARGUMENTS, state, None, logs={"loss": 1.0} | ({"free_cores": cores} if cores else {}))
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("leave ")[2] for line in lines] == ["", "1.1 cores", "", "", "", "0.4 cores"]


def test_an_evaluation_leaves_out_the_counts_that_are_the_same_each_time():
    logs = {"eval_loss": 4.5, "eval_mlm_accuracy": 0.25, "eval_mlm_tokens": 900, "eval_nsp_pairs": 70, "epoch": 0.5}
    assert log_line(logs, 5, 10) == "step 5 of 10, evaluation: loss 4.5, mlm accuracy 0.25"


def test_a_resumed_run_counts_the_steps_of_its_session():
    logs = {"train_runtime": 23.2, "train_loss": 5.497, "total_flos": 1e9}
    line = log_line(logs, 1000, 1000, first=412)
    assert line == "588 steps of this session, to 1,000, in 23 s: mean loss 5.497"
    logs = {"loss": 1e20, "grad_norm": math.inf, "mfu": 0.0042, "seconds_left": math.nan, "epoch": 1.0}
    assert (
        log_line(logs, 5, 10) == "step 5 of 10: loss 1e+20, gradient norm inf, 0.42% of peak speed, seconds left nan"
    )
