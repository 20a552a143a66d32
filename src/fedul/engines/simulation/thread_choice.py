"""The number of torch's threads that work on one batch of clients, chosen by how long batches take.

Two threads are 1.3 times as fast as one for a hundred small clients, and several times slower if another program keeps
a core busy, because every operation then waits for the slower thread. No rule can know the load of the machine, so both
are tried. The clients of a batch are computed independently, so the choice does not change what they learn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fedul._utils.hardware import torch_threads

SMALLEST_GAP = 16
"""Batches between two trials of a number of threads that was slower, at least."""
RECENT = 3
"""Batches that must all be slow before another number of threads is used."""
TRIAL_SHARE = 0.05
"""Share of the time that such trials may take: the slower a number of threads was, the later it is tried again."""


class ThreadChoice:
    """Runs batches of clients with one of several numbers of threads.

    Every number is tried on two batches, because the first of a run also fills caches, unless the first trial shows
    that it is several times slower. Then the fastest is used, and the second fastest is tried again now and then. One
    slow batch changes nothing: threads that have slept for long need some 50 milliseconds to be spread over the cores.

    Parameters
    ----------
    options : sequence of int
        Numbers of threads.
    clock : callable
        Returns seconds.
    """

    def __init__(self, options: Sequence[int], clock: Callable[[], float] = time.perf_counter) -> None:
        self._options, self._clock = list(dict.fromkeys(options)), clock
        self._recent: dict[int, list[float]] = {}  # seconds of a row in the last batches
        self._untried = self._options * 2
        self._since, self._gap = 0, SMALLEST_GAP

    @contextmanager
    def batch(self, work: int) -> Iterator[int]:
        """Context of one batch with this many rows; it yields the number of threads."""
        trial = bool(self._untried) or self._since >= self._gap
        threads = self._untried[0] if self._untried else self._next(trial)
        with torch_threads(threads):
            started = self._clock()
            yield threads
            seconds = (self._clock() - started) / max(work, 1)
        fastest = min(map(min, self._recent.values()), default=seconds)
        ratio = seconds / fastest if fastest else 1.0
        before = [] if trial and not self._untried else self._recent.get(threads, [])
        self._recent[threads] = [*before, seconds][-RECENT:]
        if self._untried:
            del self._untried[0]
            if _gap(ratio) > SMALLEST_GAP:
                self._untried = [each for each in self._untried if each != threads]
            self._gap = max(self._gap, _gap(ratio))
        elif trial:
            self._since, self._gap = 0, _gap(ratio)
        else:
            self._since += 1

    def _next(self, trial: bool) -> int:
        """Return the fastest number of threads, or the one to try again: the fastest of the others."""
        ranked = sorted(self._options, key=lambda count: min(self._recent[count]))
        return ranked[min(int(trial), len(ranked) - 1)]


def _gap(ratio: float) -> int:
    """Return the batches until the next trial of a number of threads that took this many times as long."""
    return max(SMALLEST_GAP, round((ratio - 1) / TRIAL_SHARE))
