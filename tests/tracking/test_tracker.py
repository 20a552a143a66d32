"""A tracker that fails does not end a run, and what it missed is written when it works again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import fedul
from fedul.config import BenchmarkDataConfig, TrainConfig
from fedul.core import RoundMetrics
from fedul.errors import EnvironmentFailure
from fedul.experiments.executors.processes import ProcessExecutor
from fedul.experiments.job_pool import run_jobs
from fedul.experiments.run_job import RunJob
from fedul.tracking.tracker import Series, Tracker
from fedul.training import Callback, CallbackList, CollectWarnings, RunFolder, RunInfo, RunRecord, RunResult

from ..callbacks import StopAt
from ..factories import gaussian_study

SETTINGS = {"method": "fedul", "model": "linear", "rounds": 4}


class MemorySeries(Series):
    """A run in memory, which fails while `down` holds."""

    def __init__(self, tracker: MemoryTracker) -> None:
        self.tracker = tracker
        self.rounds: list[int] = []
        self.parameters: dict[str, object] = {}
        self.result: RunResult | None = None
        self.ended = ""

    def write_parameters(self, record: RunRecord) -> None:
        self.tracker.use()
        self.parameters = {"rounds": record.training.rounds}

    def write_rounds(self, rounds: Sequence[RoundMetrics]) -> None:
        self.tracker.use()
        self.rounds += [metrics.round for metrics in rounds]

    def write_result(self, result: RunResult, folder: RunFolder | None) -> None:
        self.tracker.use()
        self.result = result

    def close(self, failure: BaseException | None) -> None:
        self.tracker.use()
        self.ended = type(failure).__name__ if failure else "finished"

    def abandon(self) -> None:
        self.ended = "abandoned"


class MemoryTracker(Tracker):
    """A tracker in memory, which does not work from the start of one round to that of another."""

    title = "the memory"

    def __init__(self, down: range = range(0)) -> None:
        super().__init__()
        self._down, self._round, self.connections = down, 0, 0
        self.series: dict[str, MemorySeries] = {}

    def use(self) -> None:
        if self._round in self._down:
            raise ConnectionError("gone")

    def connect(self) -> None:
        self.connections += 1
        try:
            self.use()
        except ConnectionError as problem:
            raise EnvironmentFailure(str(problem)) from None

    def open(self, run: RunInfo) -> Series:
        self.use()
        return self.series.setdefault(run.title, MemorySeries(self))

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        self._round = metrics.round
        super().on_round_end(run, metrics)

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        self._round += 1
        super().on_run_end(run, result)


def train(tracker: Tracker, *others: Callback, rounds: int = 4) -> list[str]:
    warnings = CollectWarnings()
    fedul.train(gaussian_study(), **{**SETTINGS, "rounds": rounds}, callbacks=[tracker, warnings, *others])
    return [message for message in warnings.messages if "memory" in message]


def test_every_round_is_written_once_with_parameters_and_result() -> None:
    tracker = MemoryTracker()
    assert train(tracker) == []
    series = tracker.series[""]
    assert (series.rounds, series.parameters, series.ended) == ([1, 2, 3, 4], {"rounds": 4}, "finished")
    assert series.result is not None


def test_rounds_that_were_missed_are_written_at_the_end_after_one_warning() -> None:
    tracker = MemoryTracker(down=range(1, 4))
    messages = train(tracker)
    assert tracker.series[""].rounds == [1, 2, 3, 4]
    assert len(messages) <= 1  # none if all rounds took less than the time between two writes


def test_a_tracker_that_is_gone_at_the_end_does_not_cost_the_run() -> None:
    tracker = MemoryTracker(down=range(1, 100))
    messages = train(tracker)
    assert messages[-1].startswith("the memory does not have all of the run (it cannot be connected to)")


def test_a_tracker_that_does_not_work_at_the_start_ends_the_run() -> None:
    tracker = MemoryTracker(down=range(100))
    with pytest.raises(EnvironmentFailure, match="gone"):
        train(tracker)


def test_a_tracker_is_connected_before_settings_are_chosen() -> None:
    tracker = MemoryTracker(down=range(100))
    with pytest.raises(EnvironmentFailure, match="gone"):
        fedul.train(gaussian_study(sets=8), rounds=2, callbacks=[tracker, CollectWarnings()])
    assert tracker.connections == 1


def test_runs_that_only_choose_settings_are_not_recorded() -> None:
    tracker = MemoryTracker()
    fedul.train(gaussian_study(sets=8), rounds=2, callbacks=[tracker, CollectWarnings()])
    assert list(tracker.series) == [""]
    assert tracker.series[""].rounds == [1, 2]


def test_the_end_of_a_run_says_how_it_ended() -> None:
    tracker = MemoryTracker()
    with pytest.raises(KeyboardInterrupt):
        train(tracker, StopAt(2))
    assert (tracker.series[""].rounds, tracker.series[""].ended) == ([1, 2], "KeyboardInterrupt")
    failing = MemoryTracker()
    with pytest.raises(fedul.FedulError):
        fedul.train(gaussian_study(), **SETTINGS, learning_rate=1e38, callbacks=[failing])
    assert failing.series[""].ended in ("FedulError", "InputError")


def test_runs_in_other_processes_are_recorded_with_their_rounds_and_settings(tmp_path: Path) -> None:
    data, training = BenchmarkDataConfig(clients=2, held_out=0.6), TrainConfig(**{**SETTINGS, "batch_size": 256})
    jobs = [RunJob(f"seed {i}", RunFolder(tmp_path / str(i)), data, training) for i in range(2)]
    tracker = MemoryTracker()
    list(run_jobs(jobs, CallbackList([tracker, CollectWarnings()]), executor=ProcessExecutor(2)))
    for series in tracker.series.values():
        assert (series.rounds, series.parameters, series.ended) == ([1, 2, 3, 4], {"rounds": 4}, "finished")
    assert sorted(tracker.series) == ["seed 0", "seed 1"]
