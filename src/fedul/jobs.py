"""Many runs, each once: what is finished is not done again, and a run that another process is at is left to it.

So a table or a comparison that was killed goes on where it was, and several processes may work in one folder.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, Self

from fedul.config import DataConfig, TrainConfig
from fedul.data.study import load_config
from fedul.errors import WorldError
from fedul.hardware import cores
from fedul.rounds import Reporter
from fedul.runs import Busy, RunFolder
from fedul.settings import plain
from fedul.training import train
from fedul.truth import Study

PATIENCE = 0.5
"""Seconds between two looks at runs that other processes are at."""

GRACE = 5.0
"""Seconds that a worker process has to leave its run when it is told to end."""


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
    share = max(1, cores() // at_once)
    with watcher.together(len(jobs) - len(left), len(jobs)) as together, ExitStack() as stack:
        idle = [stack.enter_context(_Worker()) for _ in range(at_once)]
        waiting, busy = deque(left), dict[_Worker, int]()
        while waiting or busy:
            while waiting and idle:
                place, worker = waiting.popleft(), idle.pop()
                worker.give(_on_its_share(jobs[place], share))
                busy[worker] = place
            answered = wait([worker.pipe for worker in busy])
            for worker in [worker for worker in busy if worker.pipe in answered]:
                place = busy.pop(worker)
                if (sentences := worker.answer()) is None:
                    waiting.append(place)
                else:
                    together.finished(jobs[place].title, sentences)
                    yield place
                idle.append(worker)


def _on_its_share(job: Job, share: int) -> Job:
    training = job.training
    return replace(
        job, training=replace(training, threads=training.threads or share, workers=training.workers or share)
    )


class _Worker:
    """A process that does one job after the other, and ends when the block does.

    A pipe is all that the two have in common: killed at any point, the process closes it and leaves no lock behind.
    """

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")  # threads of torch do not survive a fork
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join(GRACE)
        self._process.kill()
        self._process.join()
        self.pipe.close()

    def give(self, job: Job) -> None:
        with _killed_if_gone():
            self.pipe.send(job)

    def answer(self) -> list[str] | None:
        """What the job had to say; None where another process is at it."""
        with _killed_if_gone():
            answer: list[str] | Exception | None = self.pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def _killed_if_gone() -> Iterator[None]:
    try:
        yield
    except (EOFError, ConnectionError):
        raise WorldError(
            "a process that was training was killed, maybe for want of memory; use fewer --jobs. What is finished "
            "is kept."
        ) from None


def _work(pipe: Connection) -> None:
    """What a worker process does: it leaves Ctrl-C to its parent, ends when it is told to, and does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    studies = Studies()
    while True:
        job = pipe.recv()
        try:
            answer: list[str] | Exception | None = _done_alone(job, studies)
        except Exception as problem:
            problem.add_note(traceback.format_exc())
            answer = problem
        pipe.send(answer)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Notes:
    """A reporter that keeps what is to be said."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def warn(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def round(self, figures: Mapping[str, Any], rounds: int) -> None:
        pass


def _done_alone(job: Job, studies: Studies) -> list[str] | None:
    notes = _Notes()
    try:
        if not job.done():
            job.folder.check_free()
            _train(job, studies, notes)
    except Busy:
        time.sleep(PATIENCE)
        return None
    return notes.sentences
