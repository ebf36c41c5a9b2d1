"""What a person sees while a run goes on."""

from __future__ import annotations

import os
import time
import warnings
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from deelbo.compare.results import duration, leaders
from deelbo.training.search import planned_steps
from deelbo.training.settings import Settings

LINES = 30  # of the table of a comparison


class Interrupted(Exception):
    """Ctrl-C, with a word on what was saved; the command line's library would swallow a KeyboardInterrupt's."""


class RunProgress:
    """Shows the events of `run_job`: bars in a terminal, a line now and then in a log file.

    Args:
        quiet: Show nothing but warnings.
        title: Before everything, where several runs follow each other.
    """

    def __init__(self, quiet: bool = False, title: str = "") -> None:
        quiet = quiet or os.environ.get("RANK", "0") != "0"  # of several processes, one speaks
        self.console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True, markup=False)
        self.title = title
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bars = Progress(*columns, TextColumn("{task.fields[speed]}"), console=self.console, transient=True)
        self.live = self.console.is_terminal and not quiet
        self._tasks: dict[str, TaskID] = {}
        self._steps, self._planned, self._scale = 0, 1, 1.0
        self._batch, self._began, self._said = 1, time.monotonic(), time.monotonic()
        self._settings: Settings | None = None

    def __enter__(self) -> RunProgress:
        if self.live:
            self.bars.start()
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        loud = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
        warnings.showwarning = lambda message, *rest: (self.console if self.live else loud).print(f"note: {message}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._caught.__exit__(kind, error, trace)
        if self.live:
            self.bars.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        """Show an event."""
        if "note" in event:
            self.console.print(event["note"])
        elif "stage" in event:
            self._bar(event["stage"], event["done"], event["total"])
        elif "model" in event:
            self._opening(event)
        elif "value" in event:
            self._value(event)
        elif "looking" in event:
            self._describe(f"learning rate {event['rate']:g}, comparing")
        else:
            self._step(event)

    def _opening(self, event: dict[str, Any]) -> None:
        data, model, settings = event["data"], event["model"], event["settings"]
        weights = sum(p.numel() for p in model.network.parameters() if p.requires_grad)
        self._settings, self._planned, self._batch = settings, planned_steps(settings), settings.batch_size
        self._batch = min(self._batch, len(data.train))
        kappa = {"elbo": 1.0}.get(settings.method, settings.kappa or max(1.0, weights / len(data.train)))
        self._scale = len(data.train) * (kappa if settings.method in ("de-elbo", "elbo") else 1.0)
        test = f", {len(data.test)} to test on" if data.test else ""
        self.console.print(
            f"{self.title}{model.spec}, {weights:,} weights; {len(data.train)} {data.kind}s of "
            f"{len(data.classes)} classes{test}; {settings.method}, {settings.steps} steps of {self._batch}",
        )
        self._began = time.monotonic()

    def _step(self, event: dict[str, Any]) -> None:
        if self._steps == 0 and event["step"] > 1 and self._settings is not None:
            self._planned -= event["step"] - 1  # resumed: what was done before is not shown as to do
        self._steps += 1
        speed = f"{self._steps * self._batch / max(1e-9, time.monotonic() - self._began):.1f} examples/s"
        self._bar(f"learning rate {event['rate']:g}", self._steps, max(self._steps, self._planned), "training", speed)

    def _value(self, event: dict[str, Any]) -> None:
        value = event["value"] / self._scale
        self.console.print(
            f"{self.title}learning rate {event['rate']:g}, step {event['step']}: objective per example {value:.4f}",
        )

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


class SourceProgress(RunProgress):
    """Shows the events of `collect_job`."""

    def _step(self, event: dict[str, Any]) -> None:
        text = f"source task, loss {event['loss']:.3f}, {event['snapshots']} snapshots"
        self._bar(text, event["step"], event["steps"], "training")


class ComparisonProgress:
    """Shows a comparison: a bar with the time left, what is running, and the best of each method so far.

    Args:
        quiet: Show nothing but warnings.
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

    def __call__(self, event: dict[str, Any]) -> None:
        """Show an event."""
        if "note" in event:
            self.console.print(event["note"])
            return
        counts = event["comparison"].counts()
        left = "" if event["left"] is None else f", about {duration(event['left'])} left"
        if self._live is not None:
            self._live.update(self._view(event, f"{counts[0]} of {counts[1]} runs{left}"))
        elif counts != self._counts and time.monotonic() - self._said > 10:
            self._said, self._counts = time.monotonic(), counts
            self.console.print(f"{counts[0]} of {counts[1]} runs{left}")

    def _view(self, event: dict[str, Any], title: str) -> Group:
        running = [
            f"  {name}" + ("" if fraction is None else f": {fraction:.0%}") for name, fraction in event["running"]
        ]
        table = Table(box=None, title="best so far", title_justify="left")
        for column in ("model", "prior", "N", "seed", "method", "runs", "test accuracy"):
            table.add_column(column)
        for line in leaders(event["comparison"])[:LINES]:
            table.add_row(*line)
        return Group(title, *running, table)
