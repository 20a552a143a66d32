"""MLflow's own client finds every run, round, site and file in what the tracker recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedul
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.errors import EnvironmentFailure, InputError
from fedul.training import CollectWarnings

from ..callbacks import StopAt
from ..engines.flower.test_parity import settings
from ..engines.flower.wire import Wire, digits_sites
from ..factories import gaussian_study
from .mlflow_runs import Store

pytestmark = pytest.mark.slow
SETTINGS = {"method": "fedul", "model": "linear", "rounds": 3}


def train(store: Store, folder: Path, *callbacks: Any, **changed: Any) -> fedul.Run:
    tracker = fedul.MLflowTracker(store.uri)
    return fedul.train(
        gaussian_study(),
        **{**SETTINGS, **changed},
        out=folder / "run",
        resume=True,
        callbacks=[tracker, CollectWarnings(), *callbacks],
    )


def test_a_run_has_its_settings_series_result_and_files(store: Store, tmp_path: Path) -> None:
    run = train(store, tmp_path)
    (found,) = store.runs().values()
    assert (found.info.run_name, found.info.status) == ("run", "FINISHED")
    assert (found.data.params["method"], found.data.params["rounds"]) == ("fedul", "3")
    assert store.series(found, "loss") == [(line.round, pytest.approx(line.loss)) for line in run.history]
    site = [(line.round, pytest.approx(line.sites["north"].loss)) for line in run.history]
    assert store.series(found, "sites/north/loss") == site
    assert found.data.metrics["final/test_error"] == pytest.approx(run.test_error)
    assert {"model", "report.html", "model-card.md", "config.json", "metrics.jsonl"} <= store.files(found)


def test_an_interrupted_and_resumed_run_is_one_run_with_every_round_once(store: Store, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(store, tmp_path, StopAt(2), checkpoint_every=3)
    assert [run.info.status for run in store.runs().values()] == ["KILLED"]
    train(store, tmp_path, checkpoint_every=3)
    train(store, tmp_path, rounds=5)
    (found,) = store.runs().values()
    assert found.info.status == "FINISHED"
    for name in ("loss", "seconds", "sites/north/loss"):
        assert store.steps(found, name) == [1, 2, 3, 4, 5]
    assert (found.data.params["rounds"], found.data.tags["fedul.now.rounds"]) == ("3", "5")


def test_a_run_that_fails_is_marked_as_failed_with_the_reason(store: Store, tmp_path: Path) -> None:
    with pytest.raises(fedul.FedulError):
        train(store, tmp_path, learning_rate=1e38)
    (found,) = store.runs().values()
    assert found.info.status == "FAILED"
    assert "no longer finite" in found.data.tags["fedul.failure"]


def test_a_coordinator_records_its_sites(store: Store, tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 3, rows=300))
    tracking = {"track": "mlflow", "tracking-uri": store.uri, "experiment": "hospitals"}
    run_coordinator(wire, settings(tmp_path, 3, rounds=2, **tracking))
    (found,) = store.runs().values()
    for name in ("loss", "rows", "seconds", "bytes_sent", "bytes_received", "failed"):
        assert store.steps(found, f"sites/client-3/{name}") == [1, 2]
    assert store.client.get_experiment(found.info.experiment_id).name == "hospitals"
    assert "report.html" in store.files(found)


def test_a_server_that_is_not_there_ends_the_run_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    tracker = fedul.MLflowTracker("http://me:secret@127.0.0.1:9")
    with pytest.raises(EnvironmentFailure, match=r"MLflow: http://127.0.0.1:9 does not work \(it cannot be connected"):
        fedul.train(gaussian_study(), **SETTINGS, callbacks=[tracker])


def test_there_is_no_default_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(InputError, match="needs the address of a server or a file"):
        fedul.MLflowTracker()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'runs.db'}")
    assert fedul.MLflowTracker().uri == f"sqlite:///{tmp_path / 'runs.db'}"


PROGRAM = """
import sys
contacted = []
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        contacted.append((event, str(arguments[-1])))
        raise OSError("no network")
sys.addaudithook(watch)
{before}
import fedul
from fedul.training import CollectWarnings
tracker = fedul.MLflowTracker(sys.argv[1])
study = fedul.load("digits", clients=2, rows=400)
fedul.train(study, method="fedul", rounds=1, out=sys.argv[2], callbacks=[tracker, CollectWarnings()])
from mlflow.telemetry.client import get_telemetry_client
assert get_telemetry_client() is None
print(contacted)
"""
HIDDEN = ("PYTEST", "CI", "GITHUB", "MLFLOW", "DO_NOT_TRACK")
"""Beginnings of variables by which MLflow notices a test."""


def test_nothing_is_contacted_that_was_not_named(store: Store, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}
    command = [sys.executable, "-c", PROGRAM.format(before=""), str(tmp_path / "runs.db"), str(tmp_path / "run")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "[]"
    assert len(store.runs()) == 1


def test_telemetry_of_a_client_that_was_imported_before_ends(store: Store, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}
    program = PROGRAM.format(before="import mlflow")
    command = [sys.executable, "-c", program, str(tmp_path / "runs.db"), str(tmp_path / "run")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
