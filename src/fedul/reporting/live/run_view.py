"""What a run folder says about a run at this moment, while the run may be writing it.

Nothing is written, and no file needs to be complete: a document that cannot be read is left out.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedul._utils.documents import read_document_file
from fedul._utils.folder_lock import is_locked
from fedul.core import RoundMetrics
from fedul.errors import InputError
from fedul.training import RunRecord, RunResult, run_files
from fedul.training.status import RunStatus

ViewState = Literal[
    "absent", "starting", "waiting", "choosing", "training", "finishing", "finished", "stopped", "failed"
]
"""What a run does, as the page shows it: "absent" before there is one, "starting" until it says more."""

GOING_ON: tuple[ViewState, ...] = ("starting", "waiting", "choosing", "training", "finishing")
"""States of a run whose process is there."""

RECENT_ROUNDS = 20
"""Rounds whose mean time tells the time left."""


@dataclass(frozen=True)
class RunView:
    """A run at one moment.

    Parameters
    ----------
    folder : str
        The run folder as the user named it.
    state : str
        What the run does.
    record : RunRecord or None
        Its configuration; None before it is written.
    status : RunStatus or None
        Its status; None before it is written, and for a run of an earlier version of fedul.
    history : sequence of RoundMetrics
        Rounds so far, in order.
    result : RunResult or None
        Its result; None if it is not finished.
    report : int
        Time of the report page, in nanoseconds; 0 if there is none.
    across_sites : bool
        Whether the run is that of a coordinator.
    problem : str
        Why a document of the folder cannot be read, or why the run failed.
    """

    folder: str
    state: ViewState
    record: RunRecord | None = None
    status: RunStatus | None = None
    history: Sequence[RoundMetrics] = ()
    result: RunResult | None = None
    report: int = 0
    across_sites: bool = False
    problem: str = ""

    @property
    def round(self) -> int:
        """Rounds that are done."""
        return self.history[-1].round if self.history else 0

    @property
    def rounds(self) -> int:
        """Rounds that are planned; 0 if this is not known."""
        if self.state == "finished":
            return self.round
        if self.status is not None and self.status.rounds:
            return self.status.rounds
        return 0 if self.record is None else self.record.training.rounds

    @property
    def seconds_left(self) -> float | None:
        """Time until the last round, at the pace of the latest ones; None if there is no such estimate."""
        recent = self.history[-RECENT_ROUNDS:]
        if self.state != "training" or not recent:
            return None
        return max(0, self.rounds - self.round) * sum(metrics.seconds for metrics in recent) / len(recent)

    @property
    def ends_early(self) -> bool:
        """Whether the run may end before its last planned round."""
        return self.status is not None and self.status.patience > 0

    @property
    def resume_command(self) -> str:
        """Command that continues the run; empty for one that a program started with its own data."""
        if self.across_sites:
            return "flwr run . --run-config 'resume=true'"
        if self.record is None or not self.record.data:
            return ""
        return f"fedul train --out {shlex.quote(self.folder)} --resume"


class LiveFolder:
    """Reads a run folder again and again; files that have not changed are not read again.

    Parameters
    ----------
    path : Path
        A run folder, or the folder of a federation with runs in it. It need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._given = path
        self._text = ""  # metrics that were read
        self._history: list[RoundMetrics] = []
        self._last: tuple[tuple[object, ...], RunView] | None = None

    @property
    def path(self) -> Path:
        """The run folder: the given one, or the latest run in it."""
        return find_run(self._given) or self._given

    def read(self) -> RunView:
        """Return the run as it is now."""
        folder = self.path
        locked = is_locked(folder)
        stamps = (folder, locked, *(_stamp(folder / name) for name in READ))
        if self._last is None or self._last[0] != stamps:
            self._last = stamps, self._read(folder, locked)
        return self._last[1]

    def _read(self, folder: Path, locked: bool | None) -> RunView:
        if not is_run(folder):
            return RunView(str(folder), "starting" if locked else "absent")
        problem, record, status, result = "", None, None, None
        try:
            if (folder / run_files.CONFIG).exists():
                record = RunRecord.read(folder / run_files.CONFIG)
            result = read_document_file(RunResult, folder / run_files.RESULT, "the run")
        except InputError as damaged:
            problem = str(damaged)
        with suppress(InputError):  # of another version of fedul
            status = read_document_file(RunStatus, folder / run_files.STATUS, "the run")
        state = _state(locked, status, result)
        if state == "failed" and status is not None:
            problem = status.problem
        history, latest = self._read_history(folder / run_files.METRICS), None if status is None else status.latest
        if state in GOING_ON and latest is not None and latest.round > (history[-1].round if history else 0):
            history = [*history, latest]  # since the last checkpoint
        return RunView(
            str(folder),
            state,
            record,
            status,
            tuple(history),
            result,
            _stamp(folder / run_files.REPORT),
            (folder / run_files.RUN_SPEC).exists(),
            problem,
        )

    def _read_history(self, file: Path) -> list[RoundMetrics]:
        """Return the complete rounds of a file; lines that were read before are not parsed again."""
        try:
            text = file.read_bytes().decode("utf-8", "replace")
        except OSError:
            text = ""
        if not text.startswith(self._text):  # a resumed run may have gone back
            self._text, self._history = "", []
        added = text[len(self._text) :]
        added = added[: added.rfind("\n") + 1]  # without a line that is half written
        self._history = parse_rounds(added, self._history)
        self._text += added
        return self._history


def parse_rounds(text: str, earlier: Sequence[RoundMetrics] = ()) -> list[RoundMetrics]:
    """Return rounds in order, after those that are known; of a round that comes twice, the last one counts.

    A line that is no round of metrics is left out.
    """
    rounds = {metrics.round: metrics for metrics in earlier}
    for line in text.splitlines():
        with suppress(ValueError):
            metrics = RoundMetrics.from_dict(json.loads(line))
            rounds[metrics.round] = metrics
    return [rounds[number] for number in sorted(rounds)]


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run, which may have just begun."""
    return any((folder / name).is_file() for name in (run_files.CONFIG, run_files.STATUS))


def find_run(folder: Path) -> Path | None:
    """Return a run folder itself, or the latest run in the folder of a federation; None if there is no run."""
    if is_run(folder):
        return folder
    found = [each for each in (folder / "run", *folder.glob("runs/*")) if is_run(each)]
    return max(found, key=lambda each: _stamp(each / run_files.STATUS) or _stamp(each / run_files.CONFIG), default=None)


def _state(locked: bool | None, status: RunStatus | None, result: RunResult | None) -> ViewState:
    """Return what a run does, from the lock of its folder, which ends with its process, and from its documents."""
    said = None if status is None else status.phase
    if locked or (locked is None and said in GOING_ON):
        return said if said in ("waiting", "choosing", "training", "finishing") else "starting"
    if said == "failed":
        return "failed"
    return "stopped" if result is None else "finished"


def _stamp(file: Path) -> int:
    """Return when a file was last changed, in nanoseconds; 0 if there is none."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


READ = (run_files.CONFIG, run_files.STATUS, run_files.METRICS, run_files.RESULT, run_files.REPORT, run_files.RUN_SPEC)
"""The files that are read or looked for."""
