"""Progress of runs and comparisons in the terminal."""

from __future__ import annotations

import time
import warnings
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from deelbo import events
from deelbo._processes import is_first
from deelbo._wording import duration
from deelbo.cli.wording import as_options
from deelbo.compare.results import leaders

LINES = 30  # largest number of lines in the table of a comparison


class RunProgress:
    """Shows the events of a job: bars in a terminal, a line now and then in a log file.

    Args:
        quiet: Whether to show nothing but warnings.
        title: Text before every line, to tell several runs apart.
    """

    def __init__(self, quiet: bool = False, title: str = "") -> None:
        quiet = quiet or not is_first()  # only one of several processes prints
        self.console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True, markup=False)
        self.title = title
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bars = Progress(*columns, TextColumn("{task.fields[speed]}"), console=self.console, transient=True)
        self.live = self.console.is_terminal and not quiet
        self._tasks: dict[str, TaskID] = {}
        self._steps, self._steps_planned, self._batch = 0, 1, 1
        self._began = self._said = time.monotonic()

    def __enter__(self) -> RunProgress:
        if self.live:
            self.bars.start()
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        loud = Console(stderr=True, quiet=not is_first(), highlight=False, soft_wrap=True, markup=False)
        warnings.showwarning = lambda message, *rest: (self.console if self.live else loud).print(
            f"note: {as_options(str(message))}"
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._caught.__exit__(kind, error, trace)
        if self.live:
            self.bars.stop()

    def __call__(self, event: events.Event) -> None:
        """Show an event."""
        if isinstance(event, events.Note):
            self.console.print(self.title + as_options(event.text))
        elif isinstance(event, events.Stage):
            self._bar(event.name, event.done, event.total)
        elif isinstance(event, events.TrainingPlanned):
            self._steps_planned, self._batch, self._began = event.steps, event.batch_size, time.monotonic()
            self.console.print(self.title + event.summary)
        elif isinstance(event, events.ObjectiveEstimated) and event.step:  # not of a method without training steps
            self.console.print(
                f"{self.title}learning rate {event.learning_rate:g}, step {event.step}: "
                f"objective per example {event.per_example:.4f}"
            )
        elif isinstance(event, events.ObjectiveAwaited):
            self._describe(f"learning rate {event.learning_rate:g}, comparing")
        elif isinstance(event, events.StepTaken):
            self._step(event)
        elif isinstance(event, events.SourceStepTaken):
            text = f"source task, loss {event.loss:.3f}, {event.snapshots} snapshots"
            self._bar(text, event.step, event.steps, "training")

    def _step(self, event: events.StepTaken) -> None:
        if self._steps == 0 and event.step > 1:
            self._steps_planned -= event.step - 1  # a continued run: steps of an earlier command do not count
        self._steps += 1
        speed = f"{self._steps * self._batch / max(1e-9, time.monotonic() - self._began):.1f} examples/s"
        total = max(self._steps, self._steps_planned)
        self._bar(f"learning rate {event.learning_rate:g}", self._steps, total, "training", speed)

    def _describe(self, text: str) -> None:
        if "training" in self._tasks:
            self.bars.update(self._tasks["training"], description=self.title + text)

    def _bar(self, text: str, done: int, total: int, name: str | None = None, speed: str = "") -> None:
        name = name or text
        if not self.live:
            if time.monotonic() - self._said > 30:
                self._said = time.monotonic()
                self.console.print(f"{self.title}{text}: {done} of {total} {speed}")
            return
        if name not in self._tasks:
            self._tasks[name] = self.bars.add_task(self.title + text, total=total, speed="")
        self.bars.update(
            self._tasks[name], description=self.title + text, completed=done, total=total, speed=speed,
            visible=done < total or name == "training",
        )  # fmt: skip


class ComparisonProgress:
    """Shows a comparison: a bar with the time left, the present runs, and the best result of each method so far.

    Args:
        quiet: Whether to show nothing but warnings.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True, markup=False)
        self._live = (
            Live(console=self.console, refresh_per_second=2, transient=True) if self.console.is_terminal else None
        )
        self._said, self._counts = 0.0, (-1, -1)

    def __enter__(self) -> ComparisonProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: events.Event) -> None:
        """Show an event."""
        if isinstance(event, events.Note):
            self.console.print(as_options(event.text))
        if not isinstance(event, events.ComparisonState):
            return
        counts = event.comparison.counts()
        left = "" if event.seconds_left is None else f", about {duration(event.seconds_left)} left"
        if self._live is not None:
            self._live.update(self._view(event, f"{counts[0]} of {counts[1]} runs{left}"))
        elif counts != self._counts and time.monotonic() - self._said > 10:
            self._said, self._counts = time.monotonic(), counts
            self.console.print(f"{counts[0]} of {counts[1]} runs{left}")

    def _view(self, event: events.ComparisonState, title: str) -> Group:
        running = [f"  {name}" + ("" if fraction is None else f": {fraction:.0%}") for name, fraction in event.running]
        table = Table(box=None, title="best so far", title_justify="left")
        for column in ("model", "prior", "N", "seed", "method", "runs", "test result"):
            table.add_column(column)
        for line in leaders(event.comparison)[:LINES]:
            table.add_row(*line)
        return Group(title, *running, table)
