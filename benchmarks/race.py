"""Programs that do the same work in turn: started one after the other, told "go" alternately, and asked for the result.

A contestant is a process with a line in and a line out (`contestants/turns.py`). A busy moment of the machine falls on
all of them, since they alternate; the order is reversed every other time. Who waits is stopped with all its processes,
since some are never idle: Flower looks for messages all the time, the more often the more clients it has.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT = 60.0
"""Seconds a round; who needs more does not take part."""

PATIENCE = 300.0
"""Seconds without an answer after which a contestant counts as lost."""

AWAKE = 0.2
"""Seconds between waking a contestant and its round, for whatever it has to make up for."""

HERE = Path(__file__).resolve().parent


class Lost(Exception):
    """A contestant that cannot take part or does not go on; the message says why."""


@dataclass
class Finished:
    """What a contestant came to."""

    seconds: list[float] = field(default_factory=list)  # of each round, the warm-up left out
    set_up: float = 0.0  # from the start of the process to its first round
    warm_up: float = 0.0
    loss: float = float("nan")
    peak_mb: float | None = None  # summed over its processes: what they share counts in each
    shared_once_mb: float | None = None  # resident after the last round, what processes share counted once
    source: str = ""


def race(
    commands: Mapping[str, Sequence[str]], pairs: int, told: Callable[[str], None]
) -> tuple[dict[str, Finished], dict[str, str]]:
    """Those who came through, and of the others why not. `told` hears of every step."""
    finished: dict[str, Finished] = {}
    lost: dict[str, str] = {}
    running: dict[str, Contestant] = {}

    def attempt(name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Lost as reason:
            lost[name] = str(reason)
            told(f"{name}: {reason}")
            if name in running:
                running.pop(name).stop()
            finished.pop(name, None)

    def start(name: str) -> None:
        told(f"{name} starts")
        running[name] = Contestant(commands[name])
        finished[name] = running[name].start()

    def turn(name: str) -> None:
        finished[name].seconds.append(running[name].turn())

    def end(name: str) -> None:
        running[name].end(finished[name])
        running.pop(name).stop()

    try:
        for name in commands:
            attempt(name, lambda name=name: start(name))  # type: ignore[misc]
        for number in range(pairs):
            told(f"turn {number + 1} of {pairs}")
            for name in list(running)[:: 1 if number % 2 == 0 else -1]:
                attempt(name, lambda name=name: turn(name))  # type: ignore[misc]
        for name in list(running):
            attempt(name, lambda name=name: end(name))  # type: ignore[misc]
    finally:
        for contestant in running.values():
            contestant.stop()
    return finished, lost


class Contestant:
    """One process, with whatever processes it starts."""

    def __init__(self, command: Sequence[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="race-", ignore_cleanup_errors=True)
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

    def start(self) -> Finished:
        answer = self._answer()
        warm_up = answer["warm_up"]
        if warm_up > 2 * LIMIT:
            raise Lost(f"its first two rounds took {warm_up:.0f} s, so it is left out")
        set_up = time.perf_counter() - self._started - warm_up
        self._signal(signal.SIGSTOP)
        return Finished(set_up=set_up, warm_up=warm_up)

    def turn(self) -> float:
        self._signal(signal.SIGCONT)
        time.sleep(AWAKE)
        self._tell("go")
        seconds = float(self._answer()["seconds"])
        self._signal(signal.SIGSTOP)
        return seconds

    def end(self, finished: Finished) -> None:
        self._signal(signal.SIGCONT)
        finished.peak_mb, finished.shared_once_mb = memory_of(self._process.pid)
        self._tell("end")
        answer = self._answer()
        finished.loss, finished.source = answer["loss"], answer.get("data", "")

    def stop(self) -> None:
        """Waits a little for its end, as frameworks clean up behind themselves, and then ends what is left."""
        self._signal(signal.SIGCONT)
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        below = descendants(self._process.pid)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pid, started in below.items():
            if started is not None and started_at(pid) == started:  # not another process with a number used again
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._folder.cleanup()

    def _signal(self, number: signal.Signals) -> None:
        for pid in [self._process.pid, *descendants(self._process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _tell(self, word: str) -> None:
        try:
            assert self._process.stdin
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Lost(f"it ended: {self._last_error()}") from None

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise Lost(f"it did not answer for {PATIENCE:.0f} s") from None
        if line is None:
            raise Lost(f"it ended: {self._last_error()}")
        answer: dict[str, Any] = json.loads(line)
        if "unavailable" in answer:
            raise Lost(answer["unavailable"])
        return answer

    def _last_error(self) -> str:
        self._process.wait(20)
        lines = [line for line in self._errors.read_text(errors="replace").splitlines() if line.strip()]
        named = [line for line in lines if "Error" in line.partition(":")[0]]
        return (named or lines or ["it said nothing"])[-1].strip()


def environment(folder: str) -> dict[str, str]:
    """The same for all: threads that wait do not spin, nothing is reported home, and files stay in one folder."""
    own = {
        "OMP_WAIT_POLICY": "passive",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
        "PYTHONWARNINGS": "ignore",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_HOME": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": folder,
        "RAY_worker_niceness": "0",  # Ray's workers step back for all other work, which no other contestant does
    }
    return {**os.environ, **own}


def memory_of(root: int) -> tuple[float | None, float | None]:
    """Megabytes of a process and all below it: peaks of each summed, and now with what they share counted once."""
    if not Path("/proc/self/smaps_rollup").is_file():
        return None, None
    peak = once = 0
    for pid in [root, *descendants(root)]:
        try:
            status, mapped = (Path(f"/proc/{pid}/{name}").read_text() for name in ("status", "smaps_rollup"))
        except OSError:  # it ended meanwhile
            continue
        peak += _kilobytes(status, "VmHWM:")
        once += _kilobytes(mapped, "Pss:")
    return peak * 1024 / 1e6, once * 1024 / 1e6


def descendants(root: int) -> dict[int, str | None]:
    """Processes below one, with when they started."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        if (facts := _stat(int(entry.name))) is not None:
            below.setdefault(int(facts[1]), []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        children = below.get(waiting.pop(), [])
        found += children
        waiting += children
    return {pid: started_at(pid) for pid in found}


def started_at(pid: int) -> str | None:
    facts = _stat(pid)
    return None if facts is None else facts[19]


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the command, whose name may hold anything: state, parent and so on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _kilobytes(text: str, key: str) -> int:
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(key)), 0)
