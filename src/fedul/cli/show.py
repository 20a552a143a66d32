"""How things look on a terminal: progress with time left, tables, bars. Progress and messages go to stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedul.errors import WorldError

PLAIN_SECONDS = 10.0
"""Where there is no terminal for a bar, the time between two lines of progress."""

err = Console(stderr=True, highlight=False)
out = Console(highlight=False)


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout and nothing else there."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
    sys.stdout.flush()


class Rounds:
    """A reporter for training: a bar with round, loss, held-out loss and time left.

    As one of many runs it shows the error and the time left for `all` of them, to fit into 80 columns.
    """

    def __init__(self, title: str, all_left: str | None = None, told: set[str] | None = None) -> None:
        self._all_left = all_left
        self._sentences = set() if told is None else told
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=10),  # so that all of it fits into 80 columns
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=err,
            transient=not err.is_terminal,
            disable=not err.is_terminal,
        )
        self._task = self._progress.add_task(title, total=None, figures="")
        self._told = time.monotonic()

    def __enter__(self) -> Rounds:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def warn(self, sentence: str) -> None:
        if sentence not in self._sentences:  # many runs of one federation need not say it many times
            self._sentences.add(sentence)
            err.print(f"[yellow]note:[/] {escape(sentence)}", soft_wrap=True)

    def round(self, figures: Mapping[str, Any], rounds: int) -> None:
        text = f"loss {figures['loss']:.3f}"
        if figures.get("held_out_loss") is not None:
            text += f" held-out {figures['held_out_loss']:.3f}"
        if "test_error" in figures:
            text += f" error {figures['test_error']:.2%}"
        if not err.is_terminal and time.monotonic() - self._told > PLAIN_SECONDS:
            err.print(f"round {figures['round']} of {rounds}: {text}", soft_wrap=True)
            self._told = time.monotonic()
        if self._all_left is not None:
            text = f"{figures['test_error']:.2%}" if "test_error" in figures else ""
            text += f" (all: {self._all_left})" if self._all_left else ""
        self._progress.update(self._task, completed=figures["round"], total=rounds, figures=text)


class Runs:
    """A watcher of many runs: a line for each, with how many there are and how long the rest will take."""

    def __init__(self) -> None:
        self._done: list[float] = []
        self._sentences: set[str] = set()
        self._told = time.monotonic()

    @contextmanager
    def run(self, number: int, total: int, title: str) -> Iterator[Rounds]:
        started = time.monotonic()
        left = ""
        if self._done:
            seconds = round(sum(self._done) / len(self._done) * (total - number + 1))
            left = str(timedelta(seconds=seconds))
        if not err.is_terminal and started - self._told > PLAIN_SECONDS:
            self._told = started
            err.print(f"run {number} of {total}{left and f', {left} left'}: {escape(title)}", soft_wrap=True)
        with Rounds(f"{number}/{total} {title}", all_left=left, told=self._sentences) as reporter:
            yield reporter
        self._done.append(time.monotonic() - started)

    @contextmanager
    def together(self, done: int, total: int) -> Iterator[Together]:
        with Together(done, total) as watcher:
            yield watcher


class Together:
    """Watches runs that go on at the same time: one bar for all, with time left."""

    def __init__(self, done: int, total: int) -> None:
        self._progress = Progress(
            TextColumn("[bold]runs"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=err,
            transient=not err.is_terminal,
            disable=not err.is_terminal,
        )
        self._total, self._before, self._done = total, done, 0
        self._task = self._progress.add_task("", total=total, completed=done)
        self._sentences: set[str] = set()
        self._started = self._told = time.monotonic()

    def __enter__(self) -> Together:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def finished(self, title: str, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            if sentence not in self._sentences:
                self._sentences.add(sentence)
                err.print(f"[yellow]note:[/] {escape(sentence)}", soft_wrap=True)
        self._done += 1
        number = self._before + self._done
        self._progress.update(self._task, completed=number, description=escape(title))
        now = time.monotonic()
        if not err.is_terminal and now - self._told > PLAIN_SECONDS:
            self._told = now
            left = timedelta(seconds=round((now - self._started) / self._done * (self._total - number)))
            err.print(f"run {number} of {self._total}, {left} left: {escape(title)}", soft_wrap=True)


class Download:
    """A progress bar in the form that pooch asks for: `total`, then `update`, `reset`, `close` for each file."""

    def __init__(self, title: str) -> None:
        from rich.progress import DownloadColumn, TransferSpeedColumn

        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=28),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=err,
            disable=not err.is_terminal,
        )
        self._title = title
        self._task: Any = None
        self.total = 0

    def update(self, count: int) -> None:
        if self._task is None:
            self._progress.start()
            self._task = self._progress.add_task(self._title, total=self.total or None)
        self._progress.advance(self._task, count)

    def reset(self) -> None:
        self._task = None

    def close(self) -> None:
        self._progress.stop()
        self._task = None


def bars(rows: Sequence[tuple[str, float]], width: int = 36) -> list[str]:
    """One bar for each value, the largest as long as `width`.

    >>> bars([("a", 0.5), ("bb", 1.0)], width=4)
    ['a   ██', 'bb  ████']
    """
    longest = max(len(name) for name, _ in rows)
    top = max(value for _, value in rows) or 1
    return [f"{name:<{longest}}  {'█' * max(1, round(width * value / top))}" for name, value in rows]


def write_stdout(text: str) -> None:
    """Text on stdout, with a sentence if nobody can take it."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise WorldError(f"could not write the output: {problem.strerror}.") from None
