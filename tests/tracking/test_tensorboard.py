"""TensorBoard's own reader finds every run, round and site in the files of the tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedul
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.errors import EnvironmentFailure, InputError
from fedul.training import CollectWarnings

from ..callbacks import StopAt
from ..engines.flower.secure_sites import secure_digits_sites, secure_settings
from ..engines.flower.test_parity import settings
from ..engines.flower.wire import Wire, digits_sites
from ..factories import gaussian_study
from .events import read_events, scalars, texts

SETTINGS = {"method": "fedul", "model": "linear", "rounds": 3}


def train(folder: Path, *callbacks: Any, **changed: Any) -> fedul.Run:
    return fedul.train(
        gaussian_study(),
        **{**SETTINGS, **changed},
        out=folder / "run",
        resume=True,
        callbacks=[fedul.TensorBoardTracker(), CollectWarnings(), *callbacks],
    )


def test_the_series_of_a_run_are_its_rounds_and_sites(tmp_path: Path) -> None:
    run = train(tmp_path)
    events = read_events(tmp_path / "run" / "tensorboard")
    assert scalars(events, "loss") == [(line.round, pytest.approx(line.loss)) for line in run.history]
    site = [(line.round, pytest.approx(line.sites["north"].loss)) for line in run.history]
    assert scalars(events, "sites/north/loss") == site
    assert scalars(events, "final/test_error") == [(3, pytest.approx(run.test_error))]


def test_settings_and_model_card_are_texts(tmp_path: Path) -> None:
    train(tmp_path)
    events = read_events(tmp_path / "run" / "tensorboard")
    assert "| learning_rate | 0.003 |" in texts(events, "parameters")
    assert "# " in texts(events, "model card")
    assert texts(events, "status") == "finished"


def test_an_interrupted_and_resumed_run_has_every_round_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, StopAt(2), checkpoint_every=3)  # round 1 and 2 are trained again
    assert texts(read_events(tmp_path / "run" / "tensorboard"), "status") == "interrupted"
    train(tmp_path, checkpoint_every=3)
    train(tmp_path, rounds=5)
    steps = [step for step, _ in scalars(read_events(tmp_path / "run" / "tensorboard"), "loss")]
    assert steps == [1, 2, 3, 4, 5]


def test_a_run_that_is_tracked_from_its_resumption_has_its_earlier_rounds_too(tmp_path: Path) -> None:
    fedul.train(gaussian_study(), **SETTINGS, out=tmp_path / "run")
    train(tmp_path, rounds=4)
    assert [step for step, _ in scalars(read_events(tmp_path / "run" / "tensorboard"), "loss")] == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_every_run_of_a_comparison_has_its_series(tmp_path: Path, jobs: int) -> None:
    fedul.compare(
        "digits",
        methods="fedul,fedllp",
        seeds=2,
        rounds=2,
        clients=2,
        rows=400,
        jobs=jobs,
        out=tmp_path / "compared",
        callbacks=[fedul.TensorBoardTracker(tmp_path / "logs"), CollectWarnings()],
    )
    runs = sorted(folder.name for folder in (tmp_path / "logs").iterdir())
    assert runs == ["fedllp-seed-0", "fedllp-seed-1", "fedul-seed-0", "fedul-seed-1"]
    for name in runs:
        events = read_events(tmp_path / "logs" / name)
        assert [step for step, _ in scalars(events, "test_error")] == [1, 2]
        assert [step for step, _ in scalars(events, "sites/client-1/loss")] == [1, 2]


def test_a_coordinator_records_its_sites(tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 3, rows=300))
    run = run_coordinator(wire, settings(tmp_path, 3, rounds=2, track="tensorboard"))
    events = read_events(tmp_path / "run" / "tensorboard")
    for name in ("loss", "rows", "seconds", "bytes_sent", "bytes_received", "failed"):
        assert [step for step, _ in scalars(events, f"sites/client-2/{name}")] == [1, 2]
    assert scalars(events, "sites/client-2/loss")[0][1] == pytest.approx(run.history[0].sites["client-2"].loss)


def test_a_coordinator_with_secure_aggregation_records_no_losses_of_sites(tmp_path: Path) -> None:
    wire = Wire(secure_digits_sites(tmp_path, 3, rows=300))
    run_coordinator(wire, secure_settings(tmp_path, 3, rounds=2, track="tensorboard"))
    tags = {tag for tag in read_events(tmp_path / "run" / "tensorboard").Tags()["scalars"] if "/client-1/" in tag}
    assert tags == {f"sites/client-1/{name}" for name in ("failed", "seconds", "bytes_sent", "bytes_received")}


def test_a_run_without_a_folder_needs_one_for_its_events() -> None:
    with pytest.raises(InputError, match="log_dir: is needed for a run without a folder"):
        fedul.train(gaussian_study(), **SETTINGS, callbacks=[fedul.TensorBoardTracker()])


def test_a_folder_that_is_gone_does_not_end_the_run(tmp_path: Path) -> None:
    tracker, warnings = fedul.TensorBoardTracker(tmp_path / "logs"), CollectWarnings()
    tracker.check()
    (tmp_path / "logs").rmdir()
    (tmp_path / "logs").write_text("in the way")
    run = fedul.train(gaussian_study(), **SETTINGS, callbacks=[tracker, warnings])
    assert len(run.history) == 3
    assert any("TensorBoard does not have all of the run" in message for message in warnings.messages)


def test_a_folder_that_cannot_be_made_ends_the_run_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EnvironmentFailure, match=r"the folder of TensorBoard: .*logs does not work"):
        fedul.train(gaussian_study(), **SETTINGS, callbacks=[fedul.TensorBoardTracker(tmp_path / "file" / "logs")])
