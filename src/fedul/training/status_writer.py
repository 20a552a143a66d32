"""Writer of `status.json`: a callback that keeps the document up to date while a run goes on, at little cost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from fedul._utils.documents import read_document_file
from fedul._utils.extensions import explanation
from fedul._utils.files import write_bytes
from fedul.core import RoundMetrics
from fedul.errors import FedulError, InputError
from fedul.privacy.statement import finite
from fedul.training import run_files
from fedul.training.callbacks import Callback, RunInfo
from fedul.training.result import RunResult
from fedul.training.rounds import RunContext
from fedul.training.status import Phase, RunStatus, RunWarning, SiteStatus, SiteTable

SECONDS_BETWEEN = 1.0
"""Least time between two writes after rounds that are quick."""
QUICK_ROUND = 0.1
"""Seconds of a round that is quick. The status is written after every other one: this takes about 0.4 ms."""
MAX_WARNINGS = 50
MAX_SITES = 200
"""Most clients that are trained in process and listed."""
IN_PROCESS = (
    "The clients are trained in this process, as one computation where possible: there is no time, traffic or "
    "connection of a single one."
)


class StatusWriter(Callback):
    """Keeps the status of a run in its folder up to date.

    Use it as a context manager around the run: the end of the block says how the run ended. Nothing is written before
    `begin`, which must come after the folder is locked; `on_run_start` calls it for a run that is not finished yet. A
    status that cannot be written does not stop the run.

    Parameters
    ----------
    folder : Path
        The run folder.
    """

    def __init__(self, folder: Path) -> None:
        self._file, self._result = folder / run_files.STATUS, folder / run_files.RESULT
        self._begun = False
        self._written = -SECONDS_BETWEEN
        now = round(time.time(), 3)
        self._status = RunStatus(now, now)
        self.table: Callable[[], SiteTable] = SiteTable
        """Returns what is known of the sites whenever the status is written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, problem: BaseException | None, traceback: object) -> None:
        phase: Phase = "finished" if problem is None else "stopped"
        if isinstance(problem, Exception):
            phase = "failed"
            self._status = replace(self._status, problem=_sentence(problem))
        self._write(phase)

    def begin(self) -> None:
        """Write the status from now on. Warnings of earlier processes of the run are kept."""
        if self._begun:
            return
        self._begun = True
        earlier = None
        with suppress(InputError):  # of another version of fedul
            earlier = read_document_file(RunStatus, self._file, "the run")
        if earlier is not None:
            mine = {warning.message for warning in self._status.warnings}
            others = [warning for warning in earlier.warnings if warning.message not in mine]
            self._keep([*others, *self._status.warnings], earlier.warnings_left_out)
        self._write()

    def refresh(self) -> None:
        """Write the status, unless this was done a moment ago: something has changed at a site."""
        self._write_if_due()

    def on_run_start(self, run: RunInfo) -> None:
        if run.role == "choice":  # its rounds are none of this run
            if self._status.phase != "choosing":
                self._status = replace(self._status, phase="choosing")
                self.begin()
            return
        latest = run.history[-1] if run.history else None
        phase: Phase = "training"
        done = len(run.history)
        self._status = replace(
            self._status, phase=phase, rounds=run.rounds, patience=run.patience, resumed_after=done, latest=latest
        )
        if self._begun:
            self._write()
        elif not self._result.exists():
            self.begin()

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        if run.role == "choice":
            return
        self._status = replace(self._status, latest=metrics)
        if not self._begun:  # a run that was finished has another round
            self.begin()
        elif metrics.seconds >= QUICK_ROUND:
            self._write()
        else:
            self._write_if_due()

    def on_warning(self, message: str) -> None:
        if all(warning.message != message for warning in self._status.warnings):
            latest = self._status.latest
            warning = RunWarning(round(time.time(), 3), 0 if latest is None else latest.round, message)
            self._keep([*self._status.warnings, warning], self._status.warnings_left_out)
            self._write()

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        if result is not None and run.role != "choice":
            self._write("finishing")

    def _keep(self, warnings: list[RunWarning], left_out: int) -> None:
        more = max(0, len(warnings) - MAX_WARNINGS)
        self._status = replace(self._status, warnings=tuple(warnings[more:]), warnings_left_out=left_out + more)

    def _write_if_due(self) -> None:
        if time.monotonic() - self._written >= SECONDS_BETWEEN:
            self._write()

    def _write(self, phase: Phase | None = None) -> None:
        """Write the status, if it has begun."""
        if phase is not None:
            self._status = replace(self._status, phase=phase)
        if not self._begun:
            return
        self._status = replace(self._status, updated=round(time.time(), 3), table=self.table())
        self._written = time.monotonic()
        with suppress(FedulError):
            write_bytes(self._file, json.dumps(self._status.to_dict()).encode(), durable=False)


def _sentence(problem: Exception) -> str:
    if isinstance(problem, FedulError):
        return str(problem)
    found = explanation(problem)
    return f"{found}." if found else f"internal error ({type(problem).__name__})"


def client_table(context: RunContext) -> SiteTable:
    """Return what is known of the clients of a run in process: their epsilon, if rows are protected."""
    names, epsilon = context.engine.names, context.engine.epsilon
    if not epsilon or len(names) > MAX_SITES:
        return SiteTable(len(names), note=IN_PROCESS)
    clients = [SiteStatus(name, "ready", epsilon=finite(epsilon.get(name, 0.0))) for name in names]
    return SiteTable(len(names), clients, IN_PROCESS)
