"""Stopping on SIGTERM (sent by schedulers) and Ctrl-C: save after the step, exit with status 143."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import reduce
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from mybert.common.errors import resuming_call
from mybert.training.nonfinite import DeferredRead

PREEMPTED = 128 + signal.SIGTERM
"""Exit status of a run that was stopped by a signal and has saved a checkpoint."""


class Preempted(SystemExit):
    """A signal stopped the run after a checkpoint was saved; the process exits with status 143."""

    def __init__(self) -> None:
        super().__init__(PREEMPTED)


@contextlib.contextmanager
def on_signals(ask: Callable[[], None]) -> Iterator[None]:
    """Within this block SIGTERM and the first Ctrl-C only call `ask`; a second Ctrl-C interrupts."""
    if threading.current_thread() is not threading.main_thread():  # Python delivers signals to the main thread only
        yield
        return

    def interrupted(*_: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ask()
        with contextlib.suppress(OSError):  # stderr may be closed
            os.write(2, b"\nsaving after this step; press Ctrl-C again to stop without saving\n")  # print may be busy

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: ask())}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise it is ignored or handled elsewhere
        before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class StopOnSignal(TrainerCallback):
    """Saves a checkpoint after the step in which any process was asked to stop, and raises `Preempted` in all.

    On GPUs the processes exchange their requests without waiting, so the run stops one step later.

    Args:
        command: the command that continues the run, for the message.
    """

    def __init__(self, command: str):
        self.command = command
        self._asked = self._stops = False
        self._pending: DeferredRead | None = None

    def ask(self) -> None:
        """Requests the stop; safe to call from a signal handler."""
        self._asked = True

    def check(self, arguments: TrainingArguments, saved: str) -> None:
        """Raises `Preempted` if any process was asked to stop; its message tells what was `saved`."""
        if self._stops or self._any_process(arguments, wait=True):
            PartialState().wait_for_everyone()  # the main process may still be saving
            if arguments.process_index == 0:
                how = "the same start with --resume continues it"
                if arguments.world_size == 1:
                    how = f"to continue:\n  {resuming_call(self.command)}"
                print(f"stopped and saved after {saved}; {how}", flush=True)
            raise Preempted

    def _any_process(self, arguments: TrainingArguments, wait: bool = False) -> bool:
        if arguments.world_size == 1:
            return self._asked
        asked = torch.full((1,), float(self._asked), device=arguments.device)
        current = DeferredRead(reduce(asked, "sum"))
        if wait or current.is_immediate:
            self._pending = None
            return current.read() != [0.0]
        before, self._pending = self._pending, current
        return before is not None and before.read() != [0.0]

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._any_process(args):
            self._stops = control.should_training_stop = True
            args.save_only_model = False  # a checkpoint without the optimizer cannot be resumed

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._stops:
            control.should_save = True
            ends = float(state.epoch).is_integer() or state.global_step >= state.max_steps
            control.should_evaluate &= ends  # an epoch that was cut short is evaluated after --resume

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        # raised here because the end of Trainer.train deletes this checkpoint if another one is the best
        if not args.save_only_model:
            self.check(args, f"step {state.global_step:,} of {state.max_steps:,} in {args.output_dir}")
