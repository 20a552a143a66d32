"""Terminal output: progress with time left, notes, JSON. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from fedul.core import RoundMetrics
from fedul.errors import EnvironmentFailure
from fedul.training import Callback, RunInfo

if TYPE_CHECKING:
    from fedul.training import RunResult

SECONDS_BETWEEN_LINES = 10.0
"""Time between two lines of progress where there is no terminal for a bar."""

err = Console(stderr=True, highlight=False)
out = Console(highlight=False)


def print_json(document: Mapping[str, Any]) -> None:
    """Print a JSON document on stdout."""
    write_stdout(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def write_stdout(text: str) -> None:
    """Write text to stdout.

    Raises
    ------
    EnvironmentFailure
        If it cannot be written, for instance because the disk is full.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise EnvironmentFailure(
            f"could not write the output: {problem.strerror}; free some space, or write to another place."
        ) from None


def print_result(as_json: bool, document: Mapping[str, Any], *texts: RenderableType) -> None:
    """Print the result of a command on stdout: the JSON document, or texts and tables."""
    if as_json:
        print_json(document)
        return
    for text in texts:
        out.print(text, soft_wrap=isinstance(text, str))


def command(*words: str) -> str:
    """Return a fedul command as a user can type it, with words quoted for the shell, for printing with markup.

    >>> command("report", "my run")
    "fedul report 'my run'"
    """
    return escape(shlex.join(["fedul", *words]))


def print_note(message: str) -> None:
    """Print a warning on stderr."""
    err.print(f"[yellow]note:[/] {escape(' '.join(message.split()))}", soft_wrap=True)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout without markup or wrapping."""
    for line in lines:
        out.print(escape(line), soft_wrap=True)


class TrainingProgress(Callback):
    """Progress of one run, of runs one after another or together, or of concurrent runs.

    On a terminal there is a bar with metrics and time left, elsewhere one line every ten seconds. A warning that
    several runs share is printed once. Use it as a context manager: the bar is stopped at the end of the
    block, also after an error.

    Parameters
    ----------
    title : str
        Title of a run that has none.
    """

    def __init__(self, title: str = "") -> None:
        self._title = title
        self._messages: set[str] = set()
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._ended = 0  # number of runs that have ended
        self._going: dict[str, float] = {}  # rounds of the runs that train together, by their titles
        self._started = self._printed = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the bar and restore the cursor."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = None

    def on_run_start(self, run: RunInfo) -> None:
        if run.concurrent > 1:
            if self._bar is None:
                self._start_bar(f"{run.total} runs", total=run.total, completed=run.number - 1)
            return
        title = run.title or self._title
        if run.joint_runs > 1:
            if not self._going:
                total = run.joint_runs * run.rounds
                self._start_bar(f"{title} and {run.joint_runs - 1} more", total=total, completed=0)
            self._going[run.title] = len(run.history)
            self._update(completed=sum(self._going.values()))
            return
        if run.total > 1:
            self._print_line(f"run {run.number} of {run.total}{self._time_left(run)}: {title}")
            title = f"{run.number}/{run.total} {title}"
        self._start_bar(title, total=run.rounds, completed=len(run.history))

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        error = "" if metrics.test_error is None else f"error {metrics.test_error:.2%}"
        numbers = {
            "loss": metrics.loss,
            "held-out": metrics.held_out_loss,
            "epsilon": metrics.epsilon,
            "epsilon of clients": metrics.client_epsilon,
        }
        known = [f"{name} {value:.3f}" for name, value in numbers.items() if value is not None]
        text = " ".join([*known, error]).strip()
        self._print_line(f"round {metrics.round} of {'at most ' if run.patience else ''}{run.rounds}: {text}")
        if run.joint_runs > 1:
            self._going[run.title] = metrics.round
            self._update(completed=sum(self._going.values()), metrics=error)
            return
        if run.total > 1:  # short, to fit into 80 columns
            share = (metrics.round - len(run.history)) / run.rounds
            text = (error.removeprefix("error ") + self._time_left(run, share)).strip()
        self._update(completed=metrics.round, metrics=text)

    def on_warning(self, message: str) -> None:
        if message not in self._messages:
            self._messages.add(message)
            print_note(message)

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        if run.joint_runs > 1 and result is not None:
            self._going[run.title] = run.rounds  # it may have ended early
            self._update(completed=sum(self._going.values()))
            if sum(self._going.values()) == run.joint_runs * run.rounds:
                self._going.clear()
                self.close()
        elif run.concurrent == 1 or result is None:
            self._going.clear()
            self.close()
        else:
            self._update(advance=1, metrics=escape(run.title))
            self._print_line(f"run {run.number} of {run.total}{self._time_left(run, 1)}: {run.title}")
        self._ended += 1

    def _start_bar(self, title: str, *, total: int, completed: int) -> None:
        self.close()
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=10),  # so that the line fits into 80 columns
            MofNCompleteColumn(),
            TextColumn("{task.fields[metrics]}"),
            TimeRemainingColumn(),
            console=err,
            disable=not err.is_terminal,
        )
        self._task = self._bar.add_task(escape(title), total=total, completed=completed, metrics="")
        self._bar.start()

    def _update(self, **values: Any) -> None:
        if self._bar is not None:
            self._bar.update(self._task, **values)

    def _print_line(self, text: str) -> None:
        """Print a line of progress where there is no terminal for a bar, but not too often."""
        now = time.monotonic()
        if not err.is_terminal and now - self._printed > SECONDS_BETWEEN_LINES:
            self._printed = now
            err.print(escape(text), soft_wrap=True)

    def _time_left(self, run: RunInfo, share: float = 0.0) -> str:
        """Return the time left for all runs, in parentheses, when this share of a run is done; empty if unknown."""
        done, left = self._ended + share, run.total - run.number + 1 - share
        if not done:
            return ""
        seconds = (time.monotonic() - self._started) / done * left
        return f" (all: {timedelta(seconds=round(seconds))})"


class DownloadProgress:
    """A progress bar with the interface that pooch expects: `total`, then `update`, `reset`, `close` per file."""

    def __init__(self, title: str) -> None:
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=28),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=err,
            disable=not err.is_terminal,
        )
        self._title = title
        self._task: TaskID | None = None
        self.total = 0

    def update(self, count: int) -> None:
        """Add bytes that were downloaded."""
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=self.total or None)
        self._bar.advance(self._task, count)

    def reset(self) -> None:
        """Begin a new file."""
        self._task = None

    def close(self) -> None:
        """Stop the bar."""
        self._bar.stop()
        self._task = None
