"""A real MLflow server shows the runs of a comparison, and of a federation of real sites, and may disappear."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedul
from fedul._utils.processes import bound
from fedul.core import RoundMetrics
from fedul.engines.flower.deploy.loopback import loopback
from fedul.engines.flower.processes import free_port
from fedul.training import Callback, CollectWarnings, RunFolder, RunInfo

from ..factories import gaussian_study
from ..places import ROOT
from ..waiting import wait_until
from .mlflow_runs import Store

PROGRAMS = (ROOT / ".venv-mlflow" / "bin" / "mlflow", Path(os.environ.get("FEDUL_TEST_MLFLOW", "/nowhere")))
"""Where the server may be installed: it needs an environment of its own."""
pytestmark = pytest.mark.long


class Server:
    """A server on loopback with its database in a folder."""

    def __init__(self, folder: Path) -> None:
        programs = [program for program in PROGRAMS if program.exists()]
        if not programs:
            pytest.skip("there is no MLflow server; 'make test-slow' installs one in .venv-mlflow")
        self._folder, self._port = folder, free_port()
        self.uri = f"http://127.0.0.1:{self._port}"
        place = ["--backend-store-uri", f"sqlite:///{folder / 'server.db'}"]
        place += ["--artifacts-destination", str(folder / "artifacts")]
        where = ["--host", "127.0.0.1", "--port", str(self._port), "--workers", "1"]
        self._command = bound([str(programs[0]), "server", *place, *where])
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        quiet = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self._folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=quiet, cwd=self._folder, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._answers, lambda: (self._folder / "log.txt").read_text()[-2000:])

    def stop(self) -> None:
        """End the server and its workers."""
        os.killpg(self._process.pid, 9)
        self._process.wait()

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log.txt").read_text()[-2000:]
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"{self.uri}/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "server").mkdir()
    running = Server(tmp_path / "server")
    yield running
    running.stop()


def test_the_server_shows_every_run_of_a_comparison(server: Server, tmp_path: Path) -> None:
    command = ["compare", "--methods", "fedul,fedllp", "--seeds", "2", "--rounds", "2", "--clients", "2"]
    command += ["--rows", "400", "--jobs", "2", "--out", str(tmp_path / "compared")]
    command += ["--track", "mlflow", "--tracking-uri", server.uri, "--experiment", "compared"]
    ended = subprocess.run([sys.executable, "-m", "fedul", *command], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    store = Store(server.uri)
    runs = store.runs()
    assert sorted(runs) == ["fedllp, seed 0", "fedllp, seed 1", "fedul, seed 0", "fedul, seed 1"]
    for run in runs.values():
        assert run.info.status == "FINISHED"
        assert store.steps(run, "test_error") == [1, 2]
        assert store.steps(run, "sites/client-2/loss") == [1, 2]
        assert {"model", "report.html", "model-card.md"} <= store.files(run)


def test_the_server_shows_a_federation_with_a_series_for_each_site(server: Server, tmp_path: Path) -> None:
    settings = {
        "out": str(tmp_path / "run"),
        "classes": ",".join("0123456789"),
        "sites": 2,
        "rounds": 2,
        "method": "fedul",
        "track": "mlflow",
        "tracking-uri": server.uri,
    }
    with loopback(tmp_path / "federation", settings) as federation:
        federation.start_coordinator()
        for name in ("client-1", "client-2"):
            federation.register(name)
            text = f'name = "{name}"\nstate = "state"\n\n[data]\ndata = "digits"\nclients = 2\n'
            federation.start_site(name, text)
        folder = RunFolder(tmp_path / "run")
        number = federation.run({})
        assert federation.until_ended(number, folder, lambda: None) == "finished:completed", federation.reason(number)
    store = Store(server.uri)
    (run,) = store.runs().values()
    assert run.info.status == "FINISHED"
    for name in ("loss", "rows", "seconds", "bytes_sent", "bytes_received"):
        for site in ("client-1", "client-2"):
            assert store.steps(run, f"sites/{site}/{name}") == [1, 2]
    assert "report.html" in store.files(run)


def test_a_server_that_disappears_does_not_end_the_run_and_gets_what_it_missed(server: Server, tmp_path: Path) -> None:
    class Restart(Callback):
        """Ends the server after the first round, and starts it again after the last one."""

        def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
            if metrics.round == 1:
                server.stop()
            if metrics.round == 4:
                server.start()

    warnings = CollectWarnings()
    run = fedul.train(
        gaussian_study(),
        method="fedul",
        model="linear",
        rounds=4,
        out=tmp_path / "run",
        callbacks=[Restart(), fedul.MLflowTracker(server.uri), warnings],
    )
    assert len(run.history) == 4
    store = Store(server.uri)
    (found,) = store.runs().values()
    assert (store.steps(found, "loss"), found.info.status) == ([1, 2, 3, 4], "FINISHED")
