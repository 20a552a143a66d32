"""Methods, algorithms and callbacks of other packages in a run on sites."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fedul
from fedul.core import RoundMetrics
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.engines.flower.server.transport import Reply
from fedul.errors import EnvironmentFailure
from fedul.training import RunInfo, RunResult

from .extension import forget_installed, installed_extension
from .test_parity import assert_same, settings
from .wire import Wire, digits_sites

NAMES = {"method": "every-third-row", "algorithm": "counting"}


@pytest.fixture
def extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    with installed_extension(tmp_path / "packages", monkeypatch) as module:
        yield module


class WithoutExtension(Wire):
    """A wire on which the other package is not installed at one node."""

    def __init__(self, sites: dict[int, Path], node: int, path: str) -> None:
        super().__init__(sites)
        self.node, self.path = node, path

    def request_one(self, kind: str, node: int, message: Message) -> Reply:
        if node != self.node:
            return super().request_one(kind, node, message)
        sys.path.remove(self.path)
        forget_installed()
        try:
            return super().request_one(kind, node, message)
        finally:
            sys.path.insert(0, self.path)
            forget_installed()


def test_a_registered_method_trains_on_a_subset_of_the_rows_at_sites(tmp_path: Path, extension: ModuleType) -> None:
    sites = digits_sites(tmp_path, 3, allowed="every-third-row, counting")
    run = run_coordinator(Wire(sites), settings(tmp_path, 3, **NAMES))
    study = fedul.load("digits", clients=3)
    objects: dict[str, Any] = {"method": extension.EveryThirdRow(), "algorithm": extension.Counting()}
    assert_same(run, fedul.train(study, rounds=3, engine_mode="loop", **objects))
    assert run.result.data.rows == sum(-(-len(client.train) // 3) for client in study.federation.clients)


@pytest.mark.parametrize("part", ["method", "algorithm"])
def test_a_site_that_lacks_a_component_is_named_and_the_others_continue(
    tmp_path: Path, extension: ModuleType, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    sites = digits_sites(tmp_path, 3, rows=300, allowed=NAMES[part])
    wire = WithoutExtension(sites, 2, str(tmp_path / "packages"))
    run = run_coordinator(wire, settings(tmp_path, 2, rounds=1, **{part: NAMES[part]}))
    assert run.history[0].clients == 2
    reason = f"site 'client-2' is refused: {part} '{NAMES[part]}' is not installed here."
    assert capsys.readouterr().err.count(reason) == 1


@pytest.mark.parametrize("part", ["method", "algorithm"])
def test_a_site_runs_an_installed_component_only_if_its_operator_allows_it(
    tmp_path: Path, extension: ModuleType, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    sites = digits_sites(tmp_path / "allowed", 3, rows=300, allowed=NAMES[part])
    other = next(name for name in NAMES.values() if name != NAMES[part])
    sites[3] = digits_sites(tmp_path / "other", 3, rows=300, allowed=other)[3]
    run = run_coordinator(Wire(sites), settings(tmp_path, 3, rounds=1, min_sites=2, **{part: NAMES[part]}))
    assert run.history[0].clients == 2
    reason = f"site 'client-3' is refused: {part} '{NAMES[part]}' is of another package, and not in its allow-methods."
    assert capsys.readouterr().err.count(reason) == 1


class Recorder(fedul.Callback):
    """Keeps the calls of a run."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def on_run_start(self, run: RunInfo) -> None:
        self.calls.append("start")

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        self.calls.append(metrics.round)

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        self.calls.append(result)


def test_callbacks_are_called_at_the_coordinator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder()
    sites = digits_sites(tmp_path, 2, rows=300)
    run = run_coordinator(Wire(sites), settings(tmp_path, 2, rounds=2), callbacks=[recorder])
    assert recorder.calls == ["start", 1, 2, run.result]
    log = capsys.readouterr().err
    assert "fedul: round 1/2  loss " in log
    assert f"fedul: done: round {run.selected_round} of 2 is delivered, in {tmp_path / 'run'}." in log


def test_callbacks_hear_of_a_run_that_fails(tmp_path: Path) -> None:
    recorder = Recorder()
    wire = Wire(
        digits_sites(tmp_path, 2, rows=300),
        dict.fromkeys((1, 2), lambda kind, _, reply: None if kind == "train" else reply),
    )
    with pytest.raises(EnvironmentFailure):
        run_coordinator(wire, settings(tmp_path, 2), callbacks=[recorder])
    assert recorder.calls == ["start", None]
