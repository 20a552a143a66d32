"""Run programs alternately: start them all, request one round of each in turn, and collect their results.

A simulator is a process that reads requests and writes replies, one per line (`simulators/protocol.py`). Because they
alternate, other load on the machine affects all of them; the order is reversed every time. A waiting simulator is
stopped with all its processes (SIGSTOP), since some are never idle: Flower polls for messages all the time.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedul._utils.openmp import WAIT_POLICY

ROUND_LIMIT = 60.0
"""Seconds per round above which a simulator is left out."""

REPLY_TIMEOUT = 300.0
"""Seconds without a reply after which a simulator has failed."""

RESUME_SECONDS = 0.2
"""Seconds between resuming a simulator and its rounds, so that it can handle pending work."""

TURN_SECONDS, WARM_SECONDS = 1.0, 0.5
"""Seconds of rounds in a row in one turn, at least, and seconds at its beginning that are not timed. A simulator that
has been stopped starts with cold caches and sleeping threads, which a run of many rounds does not."""

HERE = Path(__file__).resolve().parent


class SimulatorFailed(Exception):
    """A simulator cannot take part or has failed; the message gives the reason."""


@dataclass
class Measurement:
    """Measurements of one simulator."""

    seconds: list[float] = field(default_factory=list)  # of a round in each turn, without the warm-up
    set_up: float = 0.0  # from the start of the process to its first round
    warm_up: float = 0.0
    peak_mb: float | None = None  # summed over its processes: shared pages count in each
    shared_once_mb: float | None = None  # resident after the last round, shared pages counted once
    source: str = ""
    outputs: list[list[float]] = field(default_factory=list)  # of the model at the start and after one round


def run_interleaved(
    commands: Mapping[str, Sequence[str]], turns: int, progress: Callable[[str], None]
) -> tuple[dict[str, Measurement], dict[str, str]]:
    """Run simulators alternately.

    Parameters
    ----------
    commands : mapping of str to sequence of str
        Arguments of the Python interpreter, by name of the simulator.
    turns : int
        Turns of each.
    progress : callable
        Called with a message at every step.

    Returns
    -------
    measured, failed : tuple of dict
        Measurements by name, and reasons of failures by name.
    """
    measured: dict[str, Measurement] = {}
    failed: dict[str, str] = {}
    running: dict[str, SimulatorProcess] = {}

    def attempt(name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except SimulatorFailed as reason:
            failed[name] = str(reason)
            progress(f"{name}: {reason}")
            if name in running:
                running.pop(name).stop()
            measured.pop(name, None)

    def start(name: str) -> None:
        progress(f"{name} starts")
        running[name] = SimulatorProcess(commands[name])
        measured[name] = running[name].start()

    def run_turn(name: str) -> None:
        measured[name].seconds.append(running[name].run_turn())

    def end(name: str) -> None:
        running[name].end(measured[name])
        running.pop(name).stop()

    try:
        for name in commands:
            attempt(name, lambda name=name: start(name))  # type: ignore[misc]
        for number in range(turns):
            progress(f"turn {number + 1} of {turns}")
            for name in list(running)[:: 1 if number % 2 == 0 else -1]:
                attempt(name, lambda name=name: run_turn(name))  # type: ignore[misc]
        for name in list(running):
            attempt(name, lambda name=name: end(name))  # type: ignore[misc]
    finally:
        for process in running.values():
            process.stop()
    return measured, failed


class SimulatorProcess:
    """The process of a simulator and the processes that it starts."""

    def __init__(self, command: Sequence[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="simulator-", ignore_cleanup_errors=True)
        self._errors = Path(self._folder.name) / "stderr"
        self._started = time.perf_counter()
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
                env=environment(self._folder.name),
                start_new_session=True,
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self) -> Measurement:
        """Wait for the warm-up, and stop the process."""
        reply = self._receive()
        warm_up = reply["warm_up"]
        if warm_up > 2 * ROUND_LIMIT:
            raise SimulatorFailed(f"its first two rounds took {warm_up:.0f} s, so it is left out")
        set_up = time.perf_counter() - self._started - warm_up
        self._signal(signal.SIGSTOP)
        return Measurement(set_up=set_up, warm_up=warm_up, outputs=reply["outputs"])

    def run_turn(self) -> float:
        """Run rounds for a while, and return the mean seconds of those after the first part of it; at least one."""
        self._signal(signal.SIGCONT)
        time.sleep(RESUME_SECONDS)
        passed, timed = 0.0, list[float]()
        while passed < TURN_SECONDS:
            is_warm = passed >= WARM_SECONDS
            self._send("go")
            seconds = float(self._receive()["seconds"])
            timed = [*timed, seconds] if is_warm else [seconds]
            passed += seconds
        self._signal(signal.SIGSTOP)
        return statistics.mean(timed)

    def end(self, measurement: Measurement) -> None:
        """Add memory and the source of the data to the measurement."""
        self._signal(signal.SIGCONT)
        measurement.peak_mb, measurement.shared_once_mb = memory_mb(self._process.pid)
        self._send("end")
        measurement.source = self._receive()["data"]

    def stop(self) -> None:
        """Wait until the process has cleaned up and exited, then kill what is left."""
        self._signal(signal.SIGCONT)
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        children = descendants(self._process.pid)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pid, started in children.items():
            if started is not None and start_time(pid) == started:  # the pid was not reused
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._folder.cleanup()

    def _signal(self, number: signal.Signals) -> None:
        for pid in [self._process.pid, *descendants(self._process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _send(self, request: str) -> None:
        try:
            assert self._process.stdin
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SimulatorFailed(f"it exited: {self._last_error()}") from None

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=REPLY_TIMEOUT)
        except queue.Empty:
            raise SimulatorFailed(f"no reply for {REPLY_TIMEOUT:.0f} s") from None
        if line is None:
            raise SimulatorFailed(f"it exited: {self._last_error()}")
        reply: dict[str, Any] = json.loads(line)
        if "unavailable" in reply:
            raise SimulatorFailed(reply["unavailable"])
        return reply

    def _last_error(self) -> str:
        self._process.wait(20)
        lines = [line for line in self._errors.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line.partition(":")[0]]
        return (errors or lines or ["no output"])[-1].strip()


def environment(folder: str) -> dict[str, str]:
    """Return the environment of all simulators: fedul's wait policy of threads, no telemetry, files in one folder."""
    settings = {
        **WAIT_POLICY,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
        "PYTHONWARNINGS": "ignore",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_HOME": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": folder,
        "RAY_worker_niceness": "0",  # by default Ray's workers have a lower priority than the other simulators
    }
    return {**os.environ, **settings}


def memory_mb(root: int) -> tuple[float | None, float | None]:
    """Return megabytes of a process tree: the sum of peaks, and the current size with shared pages counted once."""
    if not Path("/proc/self/smaps_rollup").is_file():
        return None, None
    peak = once = 0
    for pid in [root, *descendants(root)]:
        try:
            status, mapped = (Path(f"/proc/{pid}/{name}").read_text() for name in ("status", "smaps_rollup"))
        except OSError:  # it has exited
            continue
        peak += _kilobytes(status, "VmHWM:")
        once += _kilobytes(mapped, "Pss:")
    return peak * 1024 / 1e6, once * 1024 / 1e6


def descendants(root: int) -> dict[int, str | None]:
    """Return the descendants of a process, with their start times."""
    children_of: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        if (stat := _stat(int(entry.name))) is not None:
            children_of.setdefault(int(stat[1]), []).append(int(entry.name))
    found, pending = [], [root]
    while pending:
        children = children_of.get(pending.pop(), [])
        found += children
        pending += children
    return {pid: start_time(pid) for pid in found}


def start_time(pid: int) -> str | None:
    """Return the start time of a process in clock ticks; None if it has exited."""
    stat = _stat(pid)
    return None if stat is None else stat[19]


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the command name: state, parent and so on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _kilobytes(text: str, key: str) -> int:
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(key)), 0)
