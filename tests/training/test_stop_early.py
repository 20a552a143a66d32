"""A callback can end a run on every engine; the result says why, and a resumed run continues."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedul
from fedul.core import RoundMetrics
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.errors import InputError
from fedul.training import Callback, RunFolder, RunInfo, StopRun

from ..callbacks import Recorder
from ..engines.flower.test_parity import settings
from ..engines.flower.wire import Wire, digits_sites
from ..factories import gaussian_study

SETTINGS = {"method": "fedul", "model": "linear", "rounds": 6, "checkpoint_every": 1}


class StopAfter(Callback):
    """Asks a run to stop after a round."""

    def __init__(self, number: int) -> None:
        self.number = number

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> StopRun | None:
        return StopRun("It is enough.") if metrics.round == self.number else None


def test_a_run_ends_after_the_round_in_which_a_callback_asks_for_it(tmp_path: Path) -> None:
    run = fedul.train(gaussian_study(), **SETTINGS, out=tmp_path / "run", callbacks=[StopAfter(2), Callback()])
    assert (len(run.history), run.result.stopped) == (2, "It is enough.")
    stored = RunFolder(tmp_path / "run").result()
    assert stored is not None
    assert stored.stopped == "It is enough."


def test_a_run_that_was_stopped_and_is_resumed_equals_one_that_was_not(tmp_path: Path) -> None:
    study = gaussian_study()
    fedul.train(study, **SETTINGS, out=tmp_path / "run", callbacks=[StopAfter(2)])
    resumed = fedul.train(study, **SETTINGS, out=tmp_path / "run", resume=True)
    assert resumed.result.stopped is None
    assert resumed.weights_sha256 == fedul.train(study, **SETTINGS).weights_sha256


def test_a_request_in_the_last_round_changes_nothing() -> None:
    assert fedul.train(gaussian_study(), **SETTINGS, callbacks=[StopAfter(6)]).result.stopped is None


def test_patience_is_recorded_as_the_reason() -> None:
    changed = {**SETTINGS, "rounds": 60, "patience": 2, "learning_rate": 0.5}
    run = fedul.train(gaussian_study(), **changed)
    assert len(run.history) < 60
    assert run.result.stopped == "No round was selected for 2 rounds (patience)."


def test_a_run_on_sites_ends_when_a_callback_asks_for_it(tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 2, rows=300))
    run = run_coordinator(wire, settings(tmp_path, 2, rounds=4), [StopAfter(2)])
    assert (len(run.history), run.result.stopped) == (2, "It is enough.")
    again = {"rounds": 4, "resume": True}
    resumed = run_coordinator(Wire(wire.settings), settings(tmp_path, 2, **again))
    assert (len(resumed.history), resumed.result.stopped) == (4, None)


def test_early_stopping_ends_a_run_whose_metric_no_longer_improves(tmp_path: Path) -> None:
    stopping = fedul.EarlyStopping("loss", patience=2, min_delta=1e6)
    run = fedul.train(gaussian_study(), **SETTINGS, out=tmp_path / "run", callbacks=[stopping])
    assert len(run.history) == 3
    assert run.result.stopped == "The loss has not improved for 2 rounds, since round 1."


def test_early_stopping_does_not_train_on_a_resumed_run_that_it_has_ended(tmp_path: Path) -> None:
    study, stopping = gaussian_study(), fedul.EarlyStopping("loss", patience=2, min_delta=1e6)
    first = fedul.train(study, **SETTINGS, out=tmp_path / "run", callbacks=[stopping])
    recorder = Recorder()
    again = fedul.train(study, **SETTINGS, out=tmp_path / "run", resume=True, callbacks=[stopping, recorder])
    assert recorder.calls == ["start", "end"]
    assert (again.result.stopped, again.weights_sha256) == (first.result.stopped, first.weights_sha256)


def test_early_stopping_does_not_change_the_choice_of_settings() -> None:
    study = gaussian_study(sets=8)
    stopping = fedul.EarlyStopping("loss", patience=1, min_delta=1e6)
    stopped = fedul.train(study, rounds=3, callbacks=[stopping, Recorder()])
    free = fedul.train(study, rounds=3, callbacks=[Recorder()])
    assert stopped.result.choice is not None
    assert stopped.result.choice == free.result.choice
    assert (len(stopped.history), len(free.history)) == (2, 3)


def test_early_stopping_refuses_metrics_that_there_are_not() -> None:
    with pytest.raises(InputError, match="unknown metric 'held_out_los': did you mean 'held_out_loss'"):
        fedul.EarlyStopping("held_out_los")
    with pytest.raises(InputError, match="round 1 has no held out loss"):
        fedul.train(gaussian_study(held_out=0.0), **SETTINGS, select="last", callbacks=[fedul.EarlyStopping()])
    with pytest.raises(InputError, match="patience: expected a number of rounds, at least 1"):
        fedul.EarlyStopping(patience=0)


def test_what_a_callback_returns_must_be_a_request() -> None:
    class Wrong(Callback):
        def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> StopRun | None:
            return True  # type: ignore[return-value]

    with pytest.raises(InputError, match=r"^callback Wrong \(package tests\): expected StopRun or None"):
        fedul.train(gaussian_study(), **SETTINGS, callbacks=[Wrong()])


class StopAlways(StopAfter):
    """Asks a run to stop after a round, and a resumed run to train no other one."""

    def on_run_start(self, run: RunInfo) -> StopRun | None:
        return StopRun("It was enough.") if len(run.history) >= self.number else None


def test_a_run_that_was_stopped_trains_one_more_round_unless_its_start_is_refused_too(tmp_path: Path) -> None:
    for callback, rounds in ((StopAfter(2), 2), (StopAlways(2), 2), (StopAfter(3), 3)):
        run = fedul.train(gaussian_study(), **SETTINGS, out=tmp_path / "run", resume=True, callbacks=[callback])
        assert len(run.history) == rounds


class FailOnce(Callback):
    """Raises an error after the first round."""

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> StopRun | None:
        raise ValueError("no")


def test_a_run_that_failed_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    settings = {**SETTINGS, "checkpoint_every": 3}
    with pytest.raises(ValueError, match="no"):
        fedul.train(gaussian_study(), **settings, out=tmp_path / "run", callbacks=[FailOnce()])
    again = fedul.train(gaussian_study(), **settings, out=tmp_path / "run", resume=True)
    assert again.weights_sha256 == fedul.train(gaussian_study(), **settings).weights_sha256
