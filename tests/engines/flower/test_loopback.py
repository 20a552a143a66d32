"""A federation on this machine: Ctrl-C at any moment leaves no process behind."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("flwr") is None:
    pytest.skip("Flower is not installed (fedul[flower])", allow_module_level=True)

from fedul.engines.flower.deploy import loopback as module
from fedul.engines.flower.deploy.loopback import Loopback, loopback
from fedul.errors import EnvironmentFailure
from fedul.training import RunFolder

SETTINGS = {"out": "run", "classes": "a,b", "sites": 2}


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are started; Ctrl-C arrives during each start, after the fork."""
    started: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore Ctrl-C
    monkeypatch.setattr(module.subprocess, "Popen", Interrupted)
    yield started
    signal.signal(signal.SIGINT, before)
    for process in started:
        process.kill()
        process.wait()


def test_a_process_is_ended_if_ctrl_c_arrives_while_it_starts(
    interrupted: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt), loopback(tmp_path / "federation", SETTINGS) as federation:
        federation.start_coordinator()
    assert [process.returncode is not None for process in interrupted] == [True]


def test_ctrl_c_waits_while_processes_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    def close(made: Loopback) -> None:
        signal.raise_signal(signal.SIGINT)
        closed.append("whole")

    monkeypatch.setattr(Loopback, "close", close)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), loopback(tmp_path / "federation", SETTINGS):
            pass
    finally:
        signal.signal(signal.SIGINT, before)
    assert closed == ["whole"]


def test_flowers_commands_are_not_told_to_colour_their_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as notebooks and some CI services do
    monkeypatch.setattr(module, "flower_program", lambda name: Path(shutil.which("env") or "env"))
    with loopback(tmp_path / "federation", SETTINGS) as federation:
        assert "FORCE_COLOR" not in federation.flwr()


def test_a_run_that_flower_has_lost_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Loopback(tmp_path / "federation", SETTINGS)
    run = tmp_path / "run"
    run.mkdir()
    states = iter(["pending", "running", "running"])

    def status(number: int) -> str:
        state = next(states)
        if state == "pending":
            (run / "metrics.jsonl").touch()  # progress after the first look
        return state

    monkeypatch.setattr(module, "STATUS_SECONDS", 0.0)
    monkeypatch.setattr(module, "STALLED_SECONDS", 0.0)
    monkeypatch.setattr(federation, "status", status)
    with pytest.raises(EnvironmentFailure, match="has not progressed"):
        federation.until_ended(1, RunFolder(run), lambda: None)
    assert len(list(states)) <= 1  # the change of the folder was noticed, and the run was given up without another
