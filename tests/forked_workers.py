"""pytest plugin: `--workers N` runs the tests in N forks of the process that has collected them.

All is imported once. A worker that is free takes the tests of the next file, or of all files that use the fixture
ONE_WORKER, or one test of a single file. What it reports is sent to the process that has collected, which prints it.
A worker that ends fails the test that it ran, and a new one takes the rest of the file.
"""

import multiprocessing
import os
import sys
import tempfile
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

ONE_WORKER = "clean_processes"  # it starts a process that imports for seconds
_SECONDS = 10  # for a worker to end


def pytest_addoption(parser: pytest.Parser) -> None:
    description = "processes that run the tests (auto: one more than cores, since many tests wait for processes)"
    parser.addoption("--workers", type=number_of_workers, default=1, metavar="N", help=description)


def number_of_workers(text: str) -> int:
    cores = (os.process_cpu_count if sys.version_info >= (3, 13) else os.cpu_count)() or 1
    return cores + 1 if text == "auto" else int(text)


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    if option.workers < 2 or sys.platform != "linux" or len(session.items) < 2:  # libraries of macOS fail in forks
        return None  # pytest runs the tests in this process
    if option.collectonly or option.usepdb or session.testsfailed:
        return None
    workers = Workers(session, option.workers)
    try:
        workers.run()
    finally:
        workers.stop()
    return True


def group_tests(items: list[pytest.Item]) -> list[list[int]]:
    """Numbers of the tests that one worker takes at a time."""
    shared = {item.path: ONE_WORKER for item in items if ONE_WORKER in item.fixturenames}
    groups: dict[object, list[int]] = {}
    for number, item in enumerate(items):
        groups.setdefault(shared.get(item.path, item.path), []).append(number)
    return list(groups.values()) if len(groups) > 1 else [[number] for number in range(len(items))]


@dataclass
class Worker:
    process: multiprocessing.Process
    connection: Connection
    left: list[int] = field(default_factory=list)
    """Numbers of the tests that it has not finished. It runs the first."""


class Workers:
    """The process that has collected the tests: gives them to workers and prints what they report."""

    def __init__(self, session: pytest.Session, count: int):
        self.session, self.hook = session, session.config.hook
        self.groups = group_tests(session.items)
        self.workers: list[Worker] = []
        session.config._tmp_path_factory.getbasetemp()  # one for all: the names of its folders are numbered
        for _ in range(min(count, len(self.groups))):
            self.start()

    def start(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        others = [ours, *(worker.connection for worker in self.workers)]
        process = multiprocessing.get_context("fork").Process(target=work, args=(self.session, theirs, others))
        process.start()
        theirs.close()
        self.workers.append(Worker(process, ours))

    def run(self) -> None:
        while self.workers:
            wait([worker.connection for worker in self.workers], timeout=1)
            for worker in list(self.workers):
                ended = self.receive(worker)
                if self.session.shouldfail:
                    raise self.session.Failed(self.session.shouldfail)
                if self.session.shouldstop:
                    raise self.session.Interrupted(self.session.shouldstop)
                if ended:
                    self.workers.remove(worker)
                    self.take_over(worker)

    def receive(self, worker: Worker) -> bool:
        """Handles what a worker has sent. Returns whether it has ended; processes of tests may keep its connection."""
        ended = not worker.process.is_alive()
        while worker.connection.poll():
            try:
                message = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                worker.process.join()
                return True
            self.handle(worker, *message)
        return ended

    def handle(self, worker: Worker, kind: str, content: Any) -> None:
        if kind == "free":
            worker.left = self.groups.pop(0) if self.groups else []
            with suppress(BrokenPipeError):
                worker.connection.send(worker.left)
        elif kind == "report":
            report = self.hook.pytest_report_from_serializable(config=self.session.config, data=content)
            self.hook.pytest_runtest_logreport(report=report)
        elif kind == "warning":
            self.print_warning(*content)
        else:
            item = self.session.items[worker.left.pop(0)]
            self.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def print_warning(self, name: str, text: str, nodeid: str, file: str, line: int) -> None:
        message = warnings.WarningMessage(text, type(name, (Warning,), {}), file, line)
        reporter = self.session.config.pluginmanager.getplugin("terminalreporter")
        reporter.pytest_warning_recorded(message, nodeid)

    def take_over(self, worker: Worker) -> None:
        """Reports the failure of a worker that has ended before its tests, and starts another for the rest."""
        place = ("worker", ("worker", None, "worker"))
        if worker.left:
            item = self.session.items[worker.left.pop(0)]
            place = item.nodeid, item.location
        elif not worker.process.exitcode:
            return
        message = f"the process ended with status {worker.process.exitcode}"
        self.hook.pytest_runtest_logreport(report=pytest.TestReport(*place, {}, "failed", message, "call"))
        if worker.left:
            self.groups.insert(0, worker.left)
            self.start()

    def stop(self) -> None:
        """Ends workers, after their test if the run is interrupted."""
        for worker in self.workers:
            with suppress(OSError):
                worker.connection.send([])
        for worker in self.workers:
            worker.process.join(_SECONDS)
            worker.process.kill()


class Sender:
    """In a worker: sends what its tests report."""

    def __init__(self, config: pytest.Config, connection: Connection):
        self.config, self.connection = config, connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.connection.send(("report", data))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.connection.send(("finished", nodeid))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str, nodeid: str) -> None:
        if when == "runtest":  # others were recorded by the process that has collected
            name, place = warning_message.category.__name__, (warning_message.filename, warning_message.lineno)
            self.connection.send(("warning", (name, f"{warning_message.message}", nodeid, *place)))


def work(session: pytest.Session, connection: Connection, others: list[Connection]) -> None:
    """A worker."""
    for other in others:
        other.close()  # otherwise it would not notice that the process that has collected ends
    plugins = session.config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(Sender(session.config, connection))
    if session.config.option.capture == "fd":
        capture_apart(plugins.getplugin("capturemanager"))
    with suppress(KeyboardInterrupt, EOFError, BrokenPipeError):
        try:
            run_groups(session, connection)
        finally:
            session._setupstate.teardown_exact(None)
            save_coverage()


def capture_apart(manager) -> None:
    """Captures output in other files than the workers beside. Loggers keep the streams that they have."""
    manager.resume_global_capture()
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), stream.fileno())
            os.dup2(file.fileno(), number)
    manager.suspend_global_capture()


def run_groups(session: pytest.Session, connection: Connection) -> None:
    while True:
        connection.send(("free", None))
        items = [session.items[number] for number in connection.recv()]
        if not items:
            return
        for item, following in zip(items, [*items[1:], session], strict=True):  # fixtures of the session stay
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail or session.shouldstop or connection.poll():
                return


def save_coverage() -> None:
    if "coverage" in sys.modules and (measurement := sys.modules["coverage"].Coverage.current()):
        measurement.stop()
        measurement.save()
