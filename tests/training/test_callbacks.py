"""Callbacks see every run start and end exactly once, also if it fails, is interrupted or runs in another process."""

from __future__ import annotations

import multiprocessing
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import fedul
from fedul.config import BenchmarkDataConfig, TrainConfig
from fedul.core import Study
from fedul.errors import FedulError, InputError
from fedul.experiments.executors.processes import ProcessExecutor
from fedul.experiments.job_pool import run_jobs
from fedul.experiments.run_job import RunJob
from fedul.training import Callback, CallbackList, RunFolder, RunInfo, RunResult

from ..callbacks import Recorder, StopAt
from ..factories import digits

DATA = BenchmarkDataConfig(clients=2, held_out=0.6)
TRAINING = TrainConfig(rounds=2, batch_size=256, model="linear", threads=1)


def two_clients() -> Study:
    """Return the data of `DATA`."""
    return digits(held_out=0.6)


@pytest.fixture
def no_process_left() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


def jobs_in(folder: Path, count: int) -> list[RunJob]:
    return [
        RunJob(f"seed {i}", RunFolder(folder / str(i)), replace(DATA, seed=i), replace(TRAINING, seed=i))
        for i in range(count)
    ]


class FailAtEnd(Callback):
    """Raises at the end of a run."""

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        raise ZeroDivisionError


def test_a_run_calls_start_rounds_and_end(tmp_path: Path) -> None:
    recorder = Recorder()
    fedul.train(two_clients(), TRAINING, out=tmp_path / "run", callbacks=[recorder])
    assert recorder.calls == ["start", "round 1", "round 2", "end"]
    (info,) = recorder.infos
    assert (info.rounds, info.number, info.total, info.concurrent) == (2, 1, 1, 1)
    assert (info.folder, info.history) == (tmp_path / "run", ())


def test_a_resumed_run_reports_its_new_rounds_and_has_the_others_as_history(tmp_path: Path) -> None:
    first = fedul.train(two_clients(), TRAINING, out=tmp_path / "run")
    recorder = Recorder()
    fedul.train(two_clients(), replace(TRAINING, rounds=3), out=tmp_path / "run", resume=True, callbacks=[recorder])
    assert recorder.calls == ["start", "round 3", "end"]
    assert list(recorder.infos[0].history) == list(first.history)


def test_a_run_that_fails_ends_without_a_result() -> None:
    recorder = Recorder()
    with pytest.raises(FedulError, match="no longer finite"):
        fedul.train(two_clients(), replace(TRAINING, learning_rate=1e38), callbacks=[recorder])
    assert recorder.calls[0] == "start"
    assert recorder.calls[-1] == "failed"
    assert recorder.calls.count("failed") == 1


def test_a_run_that_is_interrupted_ends_without_a_result() -> None:
    recorder = Recorder()
    with pytest.raises(KeyboardInterrupt):
        fedul.train(two_clients(), TRAINING, callbacks=[recorder, StopAt(1)])
    assert recorder.calls == ["start", "round 1", "failed"]


def test_a_run_that_is_refused_neither_starts_nor_ends(tmp_path: Path) -> None:
    fedul.train(two_clients(), TRAINING, out=tmp_path / "run")
    recorder = Recorder()
    with pytest.raises(InputError, match="already holds a run"):
        fedul.train(two_clients(), TRAINING, out=tmp_path / "run", callbacks=[recorder])
    assert recorder.calls == []


def test_jobs_one_after_another_report_every_run_with_its_rounds(tmp_path: Path) -> None:
    recorder = Recorder()
    list(run_jobs(jobs_in(tmp_path, 2), recorder))
    one, other = ([f"start seed {i}", "round 1", "round 2", f"end seed {i}"] for i in range(2))
    assert recorder.calls == one + other
    assert [(info.number, info.total, info.concurrent) for info in recorder.infos] == [(1, 2, 1), (2, 2, 1)]


def test_parallel_jobs_report_every_run_without_its_rounds(tmp_path: Path, no_process_left: None) -> None:
    recorder, jobs = Recorder(), jobs_in(tmp_path, 3)
    list(run_jobs(jobs[:1], Recorder()))
    list(run_jobs(jobs, recorder, executor=ProcessExecutor(2)))
    assert Counter(recorder.calls) == Counter(f"{what} seed {i}" for what in ("start", "end") for i in (1, 2))
    infos = {info.title: (info.number, info.total, info.concurrent, info.folder) for info in recorder.infos}
    assert infos == {f"seed {i}": (i + 1, 3, 2, tmp_path / str(i)) for i in (1, 2)}


def test_if_a_parallel_job_fails_all_started_runs_end_without_a_result(tmp_path: Path, no_process_left: None) -> None:
    jobs = [replace(job, training=replace(job.training, rounds=100_000)) for job in jobs_in(tmp_path, 2)]
    jobs[0] = replace(jobs[0], training=replace(jobs[0].training, learning_rate=1e38))
    recorder = Recorder()
    with pytest.raises(FedulError, match="no longer finite"):
        list(run_jobs(jobs, recorder, executor=ProcessExecutor(2)))
    assert Counter(recorder.calls) == Counter(f"{what} seed {i}" for what in ("start", "failed") for i in (0, 1))


def test_a_callback_that_interrupts_parallel_jobs_leaves_no_process(tmp_path: Path, no_process_left: None) -> None:
    recorder = Recorder(stop_at=2)
    with pytest.raises(KeyboardInterrupt):
        list(run_jobs(jobs_in(tmp_path, 2), recorder, executor=ProcessExecutor(2)))
    assert recorder.calls == ["start seed 0", "start seed 1", "failed seed 0", "failed seed 1"]


def test_a_callback_that_fails_at_the_end_of_a_run_leaves_no_process(tmp_path: Path, no_process_left: None) -> None:
    recorder = Recorder()
    with pytest.raises(ZeroDivisionError):
        list(run_jobs(jobs_in(tmp_path, 2), CallbackList([recorder, FailAtEnd()]), executor=ProcessExecutor(2)))
    assert sorted(call for call in recorder.calls if call.startswith("start")) == ["start seed 0", "start seed 1"]


def test_jobs_that_are_no_longer_wanted_leave_no_process(tmp_path: Path, no_process_left: None) -> None:
    recorder = Recorder()
    jobs = run_jobs(jobs_in(tmp_path, 3), recorder, executor=ProcessExecutor(2))
    next(jobs)
    jobs.close()
    started, finished = (sum(call.startswith(what) for call in recorder.calls) for what in ("start", ("end", "failed")))
    assert started == finished


def test_the_folds_of_an_evaluation_are_runs(tmp_path: Path) -> None:
    fedul.train(two_clients(), TRAINING, out=tmp_path / "run")
    recorder = Recorder()
    fedul.evaluate(tmp_path / "run", folds=2, callbacks=[recorder])
    starts_and_ends = [call for call in recorder.calls if not call.startswith("round")]
    assert starts_and_ends == ["start fold 1", "start fold 2", "end fold 1", "end fold 2"]  # they train as one
    assert [(info.number, info.total) for info in recorder.infos] == [(1, 2), (2, 2)]


def test_warnings_go_to_python_unless_a_callback_takes_them() -> None:
    with pytest.warns(UserWarning, match="a sentence"):
        CallbackList([Callback()]).on_warning("a sentence")
    recorder = Recorder()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CallbackList([Callback(), recorder]).on_warning("a sentence")
    assert recorder.messages == ["a sentence"]
