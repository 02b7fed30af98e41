import pytest
import torch

from mybert.pretraining.data.batching import FILLER
from mybert.pretraining.data.epoch_order import EpochSampler, Shuffled
from mybert.training.nonfinite import Diverged


def poison(trainer, steps):
    """Sets a NaN in the gradients of some steps (from 1)."""
    backward = trainer.accelerator.backward

    def broken(loss, **kwargs):
        step = trainer.state.global_step + 1
        backward(loss, **kwargs)
        if step in steps:
            next(trainer.model.parameters()).grad.view(-1)[0] = torch.nan

    trainer.accelerator.backward = broken


def test_a_gradient_that_is_not_finite_stops_the_run_before_the_weights_change(make_trainer):
    trainer = make_trainer(max_steps=6, per_device_train_batch_size=16, gradient_accumulation_steps=2)
    poison(trainer, {5})
    before, check = {}, trainer.nonfinite.check_gradient

    def look(*args):
        before.update({name: p.detach().clone() for name, p in trainer.model.named_parameters()})
        return check(*args)

    trainer.nonfinite.check_gradient = look
    with pytest.raises(Diverged, match="step 5"):
        trainer.train()
    assert all(torch.isfinite(p).all() and torch.equal(p, before[n]) for n, p in trainer.model.named_parameters())


def test_nothing_is_saved_after_a_gradient_that_is_not_finite(make_trainer, tmp_path):
    trainer = make_trainer(max_steps=6, save_strategy="steps", save_steps=1, save_total_limit=None)
    poison(trainer, {3})
    with pytest.raises(Diverged, match="step 3"):
        trainer.train()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["checkpoint-1", "checkpoint-2", "log.jsonl"]


def test_a_skipped_step_changes_nothing_and_the_run_goes_on(make_trainer, caplog):
    trainer = make_trainer(trainer={"skip_nonfinite": True}, max_steps=5, logging_steps=1, learning_rate=1e-3)
    poison(trainer, {2, 4})
    weights, moments = [], []
    log = trainer.log

    def look(logs, *args):
        if "loss" in logs:
            weights.append(torch.cat([p.detach().flatten() for p in trainer.model.parameters()]))
            state = trainer.optimizer.state[next(trainer.model.parameters())]
            moments.append((state["exp_avg"].clone(), float(state["step"])))
        log(logs, *args)

    trainer.log = look
    trainer.train()
    changed = [not torch.equal(weights[i], weights[i - 1]) for i in range(1, 5)]
    assert changed == [False, True, False, True]
    assert torch.equal(moments[0][0], moments[1][0]) and [step for _, step in moments] == [1, 1, 2, 2, 3]
    assert trainer.nonfinite.skipped == [1, 3]
    skipped = [entry["steps_skipped"] for entry in trainer.state.log_history if "steps_skipped" in entry]
    assert skipped == [1, 1, 2, 2]
    assert caplog.text.count("skipped: the gradient norm is nan") == 2


def test_a_resumed_run_knows_the_steps_that_were_skipped(make_trainer, tmp_path):
    def log_of(output, checkpoint=None) -> dict:
        arguments = {"save_strategy": "steps", "save_steps": 3, "save_total_limit": None, "logging_steps": 4}
        trainer = make_trainer(trainer={"skip_nonfinite": True}, output=output, max_steps=4, **arguments)
        poison(trainer, {2})
        add = trainer.metrics.add_losses

        def spoil(losses):
            add([loss * torch.nan for loss in losses] if trainer.state.global_step == 1 else losses)

        trainer.metrics.add_losses = spoil
        trainer.train(checkpoint)
        return {name: trainer.state.log_history[0][name] for name in ("step", "loss", "mlm_loss", "steps_skipped")}

    whole = log_of("whole")
    assert whole["loss"] == pytest.approx(whole["loss"]) and whole["steps_skipped"] == 1, "not NaN"
    assert log_of("cut", str(tmp_path / "whole" / "checkpoint-3")) == whole


def test_a_run_ends_after_20_skipped_steps_in_a_row(make_trainer):
    trainer = make_trainer(trainer={"skip_nonfinite": True}, max_steps=60)
    poison(trainer, range(2, 61))
    with pytest.raises(Diverged, match="step 21"):
        trainer.train()


def test_a_resumed_epoch_skips_keys_and_leaves_the_others_unchanged():
    sampler = EpochSampler(Shuffled(50, seed=1), multiple=16)
    for epoch in (0, 1):
        sampler.epoch, sampler.skip = epoch, 0
        keys = list(sampler)
        assert len(keys) == len(sampler) == 64 and keys[50:] == [(FILLER, 0)] * 14
        for skip in (16, 48):
            sampler.skip = skip
            assert list(sampler) == [None] * skip + keys[skip:]
