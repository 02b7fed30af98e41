"""Log lines: one line per log of Trainer, with its step, and no dictionaries."""

import math
import re

import pytest

from mybert.training.display import log_line


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
