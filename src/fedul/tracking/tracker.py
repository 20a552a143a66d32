"""Base of the trackers: when a run is recorded, and what happens if it cannot be.

Rounds are collected and written at most once per second. Runs that other processes train are recorded from their
folders when they end. Where a tracker fails after the start, training goes on with one warning; what is missing is
written as soon as the tracker works again, at the latest at the end of the run.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedul.core import RoundMetrics
from fedul.errors import EnvironmentFailure, FedulError, first_line
from fedul.training import Callback, RunFolder, RunInfo, RunRecord, RunResult
from fedul.training.run_files import METRICS

SECONDS_BETWEEN = 1.0
"""Least time between two writes."""
SECONDS_AFTER_FAILURE = 30.0
"""Time after which a tracker that failed is tried again."""

NO_CONNECTION = ("ConnectionRefusedError", "ConnectionError", "NewConnectionError", "MaxRetryError")
"""Exceptions of the libraries below MLflow whose messages are many lines."""


class Series(ABC):
    """One run at a tracker."""

    @abstractmethod
    def write_parameters(self, record: RunRecord) -> None:
        """Write the settings of the run."""

    @abstractmethod
    def write_rounds(self, rounds: Sequence[RoundMetrics]) -> None:
        """Write rounds; those that are there already are left out."""

    @abstractmethod
    def write_result(self, result: RunResult, folder: RunFolder | None) -> None:
        """Write the result and the files of a finished run."""

    @abstractmethod
    def close(self, failure: BaseException | None) -> None:
        """Mark the run as finished, or as failed or interrupted for this reason."""

    @abstractmethod
    def abandon(self) -> None:
        """Close the run as it is, because another process is training it."""


@dataclass(eq=False)
class _Tracked:
    """A run that goes on."""

    info: RunInfo
    record: RunRecord | None
    rounds: list[RoundMetrics]
    series: Series | None = None
    written: int = 0  # rounds
    has_parameters: bool = False
    next_try: float = 0.0
    tasks: list[Callable[[Series], None]] = field(default_factory=list)  # at the end of the run


class Tracker(Callback, ABC):
    """Base of callbacks that record runs elsewhere.

    Candidates that are only trained to choose settings are not recorded.
    """

    title = "the tracker"
    """Its name in messages."""

    def __init__(self) -> None:
        self._tracked: dict[tuple[Path | None, str, int], _Tracked] = {}
        self._is_connected = self._has_warned = False

    @abstractmethod
    def connect(self) -> None:
        """Check that runs can be recorded; EnvironmentFailure if they cannot."""

    @abstractmethod
    def open(self, run: RunInfo) -> Series:
        """Return the series of a run: a new one, or that which its folder names."""

    def check(self) -> None:
        """Check once that runs can be recorded. Without this, the start of the first run does it."""
        if not self._is_connected:
            self.connect()
            self._is_connected = True

    def on_run_start(self, run: RunInfo) -> None:
        self.check()
        if run.role == "choice":
            return
        tracked = self._tracked[run.key] = _Tracked(run, run.record, list(run.history))
        self._write(tracked)

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        if (tracked := self._tracked.get(run.key)) is None:
            return
        tracked.rounds.append(metrics)
        if time.monotonic() >= tracked.next_try:
            self._write(tracked)

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        if (tracked := self._tracked.pop(run.key, None)) is None:
            return
        folder = None if run.folder is None else RunFolder(run.folder)
        if run.concurrent > 1 and folder is not None:
            tracked.record = folder.stored_config()
            tracked.rounds = folder.history() if (folder.path / METRICS).exists() else []
        if result is not None:
            tracked.tasks.append(lambda series: series.write_result(result, folder))
        if result is None and run.failure is None:
            tracked.tasks.append(Series.abandon)
        else:
            tracked.tasks.append(lambda series: series.close(run.failure))
        self._write(tracked)

    def _write(self, tracked: _Tracked) -> None:
        """Write what is not written yet; warn if that is not possible."""
        try:
            self._write_all(tracked)
        except Exception as problem:
            self._warn(tracked, problem)
            tracked.next_try = time.monotonic() + SECONDS_AFTER_FAILURE
        else:
            tracked.next_try = time.monotonic() + SECONDS_BETWEEN

    def _write_all(self, tracked: _Tracked) -> None:
        if tracked.series is None:
            tracked.series = self.open(tracked.info)
        series, known = tracked.series, len(tracked.rounds)
        if tracked.record is not None and not tracked.has_parameters:
            series.write_parameters(tracked.record)
            tracked.has_parameters = True
        if tracked.written < known:
            series.write_rounds(tracked.rounds[tracked.written :])
            tracked.written = known
        while tracked.tasks:
            tracked.tasks[0](series)
            del tracked.tasks[0]

    def _warn(self, tracked: _Tracked, problem: Exception) -> None:
        if tracked.tasks:  # the run has ended
            how = "the same command with --resume records what is missing" if tracked.info.folder else "it is lost"
            tracked.info.warn(f"{self.title} does not have all of the run ({reason(problem)}); {how}.")
        elif not self._has_warned:
            self._has_warned = True
            tracked.info.warn(
                f"{self.title} cannot be written ({reason(problem)}); training goes on, and what is missing is "
                "written later."
            )


def reason(problem: BaseException) -> str:
    """Return why a tracker failed, in one line without passwords."""
    cause: BaseException | None = problem
    while cause is not None:
        if type(cause).__name__ in NO_CONNECTION:
            return "it cannot be connected to"
        cause = cause.__cause__ or cause.__context__
    return without_password(first_line(problem))


def unreachable(title: str, place: str, problem: Exception) -> FedulError:
    """Return the error of a tracker that does not work at the start."""
    return EnvironmentFailure(f"{title}: {place} does not work ({reason(problem)}); correct the address, or start it.")


def without_password(text: str) -> str:
    """Return a text with addresses without the name and password of a user.

    >>> without_password("https://me:secret@example.org/mlflow")
    'https://example.org/mlflow'
    """
    return re.sub(r"://[^/@\s]*@", "://", text)
