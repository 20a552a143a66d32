"""Many runs, each once: what is finished is not done again, and a run that another process is at is left to it.

So a table or a comparison that was killed goes on where it was, and several processes may work in one folder.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fedul.config import DataConfig, TrainConfig
from fedul.data.study import load_config
from fedul.errors import FedulError, WorldError
from fedul.federation import Study
from fedul.hardware import cores
from fedul.rounds import Reporter
from fedul.runs import Busy, RunFolder
from fedul.settings import plain
from fedul.training import train

PATIENCE = 0.5
"""Seconds between two looks at runs that other processes are at."""


@dataclass(frozen=True)
class Job:
    """One run to be: its data, its training, and where it is kept."""

    title: str
    folder: RunFolder
    data: DataConfig
    training: TrainConfig
    force: bool = False

    def done(self) -> bool:
        result = self.folder.result()
        return result is not None and result.get("rounds") == self.training.rounds


class Together(Protocol):
    """Whoever watches runs that go on at the same time."""

    def finished(self, title: str, sentences: Sequence[str]) -> None:
        """A run is done; these are the notes it had."""
        ...


class Watcher(Protocol):
    """Whoever watches many runs."""

    def run(self, number: int, total: int, title: str) -> AbstractContextManager[Reporter]:
        """Run `number` of `total` begins: who watches it?"""
        ...

    def together(self, done: int, total: int) -> AbstractContextManager[Together]:
        """Several runs begin, of `total` runs of which so many are done: who watches them?"""
        ...


class Studies:
    """The study that was dealt last, which the next run often shares."""

    def __init__(self) -> None:
        self._last: tuple[DataConfig, Study] | None = None

    def of(self, config: DataConfig) -> Study:
        if self._last is None or self._last[0] != config:
            self._last = None  # two at a time need not fit into memory
            self._last = config, load_config(config)
        return self._last[1]


def run_all(
    jobs: Sequence[Job], watcher: Watcher, *, at_once: int = 1, studies: Studies | None = None
) -> Iterator[int]:
    """Does what is not done; yields the place of each job once it is, those first that are so already."""
    left = []
    for place, job in enumerate(jobs):
        if job.done():
            yield place
        else:
            left.append(place)
    at_once = min(at_once, len(left))
    if at_once > 1:
        yield from _side_by_side(jobs, left, watcher, at_once)
    else:
        yield from _in_turn(jobs, left, watcher, studies or Studies())


def _in_turn(jobs: Sequence[Job], left: Sequence[int], watcher: Watcher, studies: Studies) -> Iterator[int]:
    waiting, skipped = deque(left), 0
    while waiting:
        place = waiting.popleft()
        job = jobs[place]
        try:
            if not job.done():
                job.folder.check_free()  # before any data is read
                with watcher.run(place + 1, len(jobs), job.title) as reporter:
                    _train(job, studies, reporter)
        except Busy:
            waiting.append(place)
            skipped += 1
            if skipped >= len(waiting):
                time.sleep(PATIENCE)
            continue
        skipped = 0
        yield place


def _train(job: Job, studies: Studies, reporter: Reporter) -> None:
    study, settings = studies.of(job.data), plain(job.training)
    train(study, out=job.folder.path, resume=True, force=job.force, reporter=reporter, **settings)


def _side_by_side(jobs: Sequence[Job], left: Sequence[int], watcher: Watcher, at_once: int) -> Iterator[int]:
    """In processes of their own, which share the cores out among themselves."""
    context = multiprocessing.get_context("spawn")  # threads of torch do not survive a fork
    stop = context.Event()
    share = max(1, cores() // at_once)
    with (
        watcher.together(len(jobs) - len(left), len(jobs)) as together,
        ProcessPoolExecutor(at_once, mp_context=context, initializer=_begin, initargs=(stop,)) as pool,
    ):
        try:
            running = {_submitted(pool, jobs[place], share): place for place in left}
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    place = running.pop(future)
                    if (sentences := future.result()) is None:
                        running[_submitted(pool, jobs[place], share)] = place
                        continue
                    together.finished(jobs[place].title, sentences)
                    yield place
        except BrokenProcessPool:
            raise WorldError(
                "a process that was training was killed, maybe for want of memory; use fewer --jobs. What is finished "
                "is kept."
            ) from None
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _submitted(pool: ProcessPoolExecutor, job: Job, share: int) -> Future[list[str] | None]:
    training = replace(job.training, threads=job.training.threads or share, workers=job.training.workers or share)
    return pool.submit(_alone, replace(job, training=training))


class _Process:
    """What a worker process has."""

    studies = Studies()
    stop: Any = None


def _begin(stop: Any) -> None:
    """A worker process leaves Ctrl-C to its parent, and does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Process.stop = stop
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Stopped(FedulError):
    """The parent process has given up."""


class _Notes:
    """A reporter that keeps what is to be said, and ends the run when the parent process gives up."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def warn(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def round(self, figures: Mapping[str, Any], rounds: int) -> None:
        if _Process.stop.is_set():
            raise _Stopped(f"stopped in round {figures['round']}.")


def _alone(job: Job) -> list[str] | None:
    """Does the job in a worker process: what it had to say, or None where another process is at it."""
    notes = _Notes()
    try:
        if not job.done():
            job.folder.check_free()
            _train(job, _Process.studies, notes)
    except Busy:
        time.sleep(PATIENCE)
        return None
    return notes.sentences
