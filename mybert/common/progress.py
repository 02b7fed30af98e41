"""Progress bars on terminals; files and pipes get none."""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from mybert.common.tables import line_width


class Bar:
    """A progress bar with speed and time left. One that starts while another is shown is below it until it ends.

    Args:
        total: number of units; None if it is not known.
        unit: unit of `total` and `update`, in the plural.
        leave: whether the finished bar stays on the screen.
        console: the output (default: standard error).
    """

    _shown: ClassVar[Progress | None] = None

    def __init__(
        self,
        items: Iterable[Any] = (),
        *,
        total: int | None = None,
        desc: str,
        unit: str,
        leave: bool = True,
        console: Console | None = None,
    ):
        self._items, self._leave = items, leave
        self._console = console or Console(stderr=True, width=line_width(sys.stderr))
        self._fields: dict[str, Any] = {"description": desc, "total": total, "unit": unit}

    def update(self, count: int = 1) -> None:
        """Adds `count` units."""
        self._progress.advance(self._task, count)

    def __enter__(self) -> Self:
        self._outer = Bar._shown
        if self._outer is None:
            Bar._shown = self._progress = bars_on(self._console, self._leave)
            self._progress.start()
        else:
            self._progress = self._outer
        self._task = self._progress.add_task(**self._fields)
        return self

    def __exit__(self, *_: object) -> None:
        if self._outer is None:
            self._progress.stop()
            Bar._shown = None
        else:
            self._progress.remove_task(self._task)

    def __iter__(self) -> Iterator[Any]:
        with self:
            for item in self._items:
                yield item
                self.update()


@contextlib.contextmanager
def no_dataset_bars() -> Iterator[None]:
    """Disables the progress bars of datasets in this block."""
    import datasets  # here, since its import takes seconds

    with contextlib.ExitStack() as stack:
        if datasets.is_progress_bar_enabled():
            datasets.disable_progress_bars()
            stack.callback(datasets.enable_progress_bars)
        yield


@contextlib.contextmanager
def no_model_bars() -> Iterator[None]:
    """Disables transformers' progress bars of loading and saving in this block; they would interrupt printed lines."""
    from transformers.utils import logging  # here, since its import takes seconds

    # `disable_progress_bar` would also disable those of downloads
    before = logging.set_tqdm_hook(lambda bar, given, named: bar(*given, **{**named, "disable": True}))
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)


@contextlib.contextmanager
def no_library_bars() -> Iterator[None]:
    """Disables the progress bars of datasets and transformers in this block, except those of downloads."""
    with no_dataset_bars(), no_model_bars():
        yield


def bars_on(console: Console, leave: bool = True) -> Progress:
    """Bars for tasks with the field `unit`."""
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=16),
        _Amount(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True, table_column=Column(no_wrap=True)),
        console=console,
        transient=not leave,
        disable=not console.is_terminal,
        # otherwise it is closed, or a file or a pipe, which gets what is printed
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        refresh_per_second=4,
    )


class _Amount(ProgressColumn):
    """Units done, of all, and in a second."""

    def render(self, task: Task) -> Text:
        of = "" if task.total is None else f" of {int(task.total):,}"
        speed = task.finished_speed or task.speed
        rate = "" if speed is None else f", {speed:,.3g}/s" if speed < 1000 else f", {speed:,.0f}/s"
        return Text(f"{int(task.completed):,}{of} {task.fields['unit']}{rate}")
