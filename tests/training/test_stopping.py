"""SIGTERM and Ctrl-C during training."""

import os
import pickle
import signal
import subprocess
import sys

import pytest
from forked import exit_status
from torch.utils.data import DataLoader

from mybert.training.loader_workers import ignore_signals_in_workers
from mybert.training.stopping import on_signals


@pytest.fixture
def interrupts():
    """Python's default handler of Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.usefixtures("interrupts")
def test_sigterm_and_the_first_ctrl_c_ask_and_a_second_interrupts(capfd):
    asked, sigterm_before = [], signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), on_signals(lambda: asked.append(len(asked))):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            send(number)
        assert asked == [0, 1, 2]
        send(signal.SIGINT)
    assert capfd.readouterr().err.count("saving after this step") == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) == sigterm_before


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_that_was_ignored_before_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
    asked = []
    with on_signals(lambda: asked.append(0)):
        send(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert not asked


def fail_while_a_worker_waits() -> None:
    batches = iter(ignore_signals_in_workers(DataLoader(range(8), num_workers=1)))
    next(batches)
    raise RuntimeError  # its traceback keeps the loader alive until the process ends


def test_a_process_that_fails_within_a_step_ends_although_its_loader_workers_ignore_signals():
    assert exit_status(fail_while_a_worker_waits) == 1


@pytest.mark.slow
def test_a_worker_that_is_not_forked_starts_without_transformers():
    """Its import takes seconds in each worker, and the data and collator of pretraining do not need all of it."""
    start = pickle.dumps(ignore_signals_in_workers(DataLoader(range(8), num_workers=1)).worker_init_fn)
    script = "import pickle, sys; pickle.load(sys.stdin.buffer)(0); print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], input=start, capture_output=True, check=True)
    assert done.stdout.split() == [b"False"]
