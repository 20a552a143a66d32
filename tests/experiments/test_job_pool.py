"""Every job runs once, in whichever process, with the same result in series and in parallel."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fedul._utils.folder_lock import FolderLock
from fedul.config import BenchmarkDataConfig, TrainConfig
from fedul.core import RoundMetrics
from fedul.errors import EnvironmentFailure, FedulError
from fedul.experiments.executors.processes import ProcessExecutor
from fedul.experiments.job_pool import run_jobs
from fedul.experiments.run_job import RunJob, StudyCache
from fedul.training import Callback, RunBusy, RunFolder, RunInfo
from fedul.training.train import train

from ..callbacks import Recorder
from ..waiting import wait_until

DATA = BenchmarkDataConfig(clients=2, sets=(10,), held_out=0.6)
TRAINING = TrainConfig(rounds=2, batch_size=256, model="linear", threads=1)


def jobs_in(folder: Path, count: int, **changes: object) -> list[RunJob]:
    return [
        RunJob(f"seed {i}", RunFolder(folder / str(i)), replace(DATA, seed=i), replace(TRAINING, seed=i, **changes))
        for i in range(count)
    ]


def digests(jobs: Sequence[RunJob]) -> list[str]:
    return [result.weights_sha256 for job in jobs if (result := job.folder.result())]


def test_parallel_runs_give_the_same_weights_as_serial_runs(tmp_path: Path) -> None:
    serial, parallel = jobs_in(tmp_path / "a", 4), jobs_in(tmp_path / "b", 4)
    serial_calls, parallel_calls = Recorder(), Recorder()
    assert list(run_jobs(serial, serial_calls)) == [0, 1, 2, 3]
    assert list(run_jobs(parallel[:1], Recorder())) == [0]
    places = list(run_jobs(parallel, parallel_calls, executor=ProcessExecutor(2)))
    assert places[0] == 0
    assert sorted(places) == [0, 1, 2, 3]
    assert digests(serial) == digests(parallel)
    assert [title for _, _, title in serial_calls.started] == ["seed 0", "seed 1", "seed 2", "seed 3"]
    assert sorted(parallel_calls.ended) == ["seed 1", "seed 2", "seed 3"]


def test_a_run_that_ends_early_counts_as_unfinished(tmp_path: Path) -> None:
    assert list(run_jobs(jobs_in(tmp_path, 1), Recorder())) == [0]
    longer = jobs_in(tmp_path, 1, rounds=3)
    assert not longer[0].is_done()
    recorder = Recorder()
    list(run_jobs(longer, recorder))
    assert longer[0].is_done()
    assert len(recorder.started) == 1


def test_a_run_of_another_process_is_waited_for(tmp_path: Path) -> None:
    jobs, recorder = jobs_in(tmp_path, 3), Recorder()
    theirs = FolderLock(jobs[0].folder.path)
    assert theirs.__enter__()

    def let_go() -> None:
        try:
            wait_until(lambda: jobs[1].is_done() and jobs[2].is_done())
        finally:
            theirs.__exit__()

    other = threading.Thread(target=let_go)
    other.start()
    assert list(run_jobs(jobs, recorder)) == [1, 2, 0]
    other.join()
    assert [number for number, _, _ in recorder.started] == [2, 3, 1]


def test_a_run_cannot_be_trained_twice_at_the_same_time(tmp_path: Path) -> None:
    study, out = StudyCache().of(DATA), tmp_path / "R"

    class Second(Callback):
        def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
            with pytest.raises(
                RunBusy, match=r"R: another process is training this run; wait for it, or choose another"
            ):
                train(study, out=out, resume=True, model="linear", rounds=2)

    train(study, out=out, callbacks=[Second()], model="linear", rounds=2)
    RunFolder(out).check_free()


def test_the_first_run_that_fails_ends_the_others(tmp_path: Path) -> None:
    jobs = jobs_in(tmp_path, 2, rounds=100_000)
    jobs[0] = replace(jobs[0], training=replace(jobs[0].training, learning_rate=1e38, rounds=3))
    with pytest.raises(FedulError, match="the loss is no longer finite") as caught:
        list(run_jobs(jobs, Recorder(), executor=ProcessExecutor(2)))
    assert "iterate_rounds" in "".join(caught.value.__notes__)  # where in the worker it was
    assert not any(job.is_done() for job in jobs)


def is_loading(folder: Path) -> bool:
    return len(multiprocessing.active_children()) == 2


def is_training(folder: Path) -> bool:
    return any(folder.glob("*/metrics.jsonl"))


@pytest.mark.parametrize(("which", "is_ready"), [(0, is_training), (1, is_loading)])
def test_a_killed_worker_is_reported(tmp_path: Path, which: int, is_ready: Callable[[Path], bool]) -> None:
    jobs = jobs_in(tmp_path, 2, rounds=100_000)

    def kill_one() -> None:
        wait_until(lambda: is_ready(tmp_path))
        sorted(multiprocessing.active_children(), key=lambda child: child.pid or 0)[which].kill()

    other = threading.Thread(target=kill_one)
    other.start()
    with pytest.raises(
        EnvironmentFailure, match="a worker process was killed, maybe because memory ran out; use fewer --jobs"
    ):
        list(run_jobs(jobs, Recorder(), executor=ProcessExecutor(2)))
    other.join()
    assert multiprocessing.active_children() == []


def test_ctrl_c_while_workers_start_ends_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawned = multiprocessing.get_context("spawn").Process
    start, started = spawned.start, []

    def interrupted(process: multiprocessing.Process) -> None:
        start(process)
        started.append(process)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(spawned, "start", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore Ctrl-C
    try:
        with pytest.raises(KeyboardInterrupt):
            list(run_jobs(jobs_in(tmp_path, 2), Recorder(), executor=ProcessExecutor(2)))
        assert [process.exitcode is None for process in started] == [False, False]
    finally:
        signal.signal(signal.SIGINT, before)
        for process in started:
            process.kill()
