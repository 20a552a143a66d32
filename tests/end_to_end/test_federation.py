"""Runs over a real SuperLink and real sites on loopback, with TLS and keys."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from fedul.classifier import Classifier
from fedul.core import RoundMetrics
from fedul.training import RunFolder

if importlib.util.find_spec("flwr") is None:
    pytest.skip("Flower is not installed (fedul[flower])", allow_module_level=True)

from fedul.engines.flower.deploy.keys import make_keys
from fedul.engines.flower.deploy.loopback import Loopback, loopback
from fedul.engines.flower.server.coordinator import run_coordinator

from ..engines.flower.extension import installed_extension
from ..engines.flower.sabotage import sabotage
from ..engines.flower.wire import DIGITS, Wire, digits_sites
from ..waiting import wait_until
from .command import Warm

SITES = 2
ROUNDS = 6
BROKEN, KILLED, LOST = 2, 3, 5
"""Rounds in which site 2 sends a wrong update, in which it is killed, and in which the coordinator is killed."""
SETTINGS = {
    "classes": ",".join("0123456789"),
    "sites": SITES,
    "min-sites": 1,
    "rounds": ROUNDS,
    "method": "every-third-row",  # of another package
    "algorithm": "scaffold",
    "model": "mlp",
    "round-seconds": 120.0,  # longer than Flower takes to see that a site is gone, and to let it in again
    "start-seconds": 300.0,
}
# Replies to "train": a site waits while the gate of its round exists, and site 2 sends NaN in one round.
INSTEAD = f"""
    site, number = data.config.name, request.document["round"]
    gate = Path(os.environ["GATES"]) / f"{{site}}-{{number}}"
    while gate.exists():
        gate.with_suffix(".reached").touch()
        time.sleep(0.1)
    reply = right(data, request)
    if (site, number) != ("client-2", {BROKEN}):
        return reply
    return Message(reply.document, {{name: tensor * float("nan") for name, tensor in reply.tensors.items()}})
"""


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    with (
        installed_extension(tmp_path / "packages", monkeypatch),
        loopback(tmp_path / "federation", {**SETTINGS, "out": str(tmp_path / "run")}) as made,
    ):
        yield made


@dataclass(frozen=True)
class Gates:
    """Files at which sites wait in a round until they are removed."""

    folder: Path

    def close(self, site: str, number: int) -> None:
        (self.folder / f"{site}-{number}").touch()

    def reached(self, site: str, number: int) -> bool:
        return (self.folder / f"{site}-{number}.reached").exists()

    def open(self, site: str, number: int) -> None:
        (self.folder / f"{site}-{number}").unlink()


@pytest.fixture
def gates(tmp_path: Path) -> Gates:
    (tmp_path / "gates").mkdir()
    return Gates(tmp_path / "gates")


def start(federation: Loopback, site: str, gates: Gates, name: str | None = None) -> None:
    path = sabotage(gates.folder / "sabotage", "train", INSTEAD)
    federation.start_site(site, settings_of(name or site), PYTHONPATH=path, GATES=str(gates.folder))


def settings_of(site: str) -> str:
    return 'allow-methods = "every-third-row"\n' + DIGITS.format(name=site, clients=SITES, rows=0)


def history(run: RunFolder) -> list[RoundMetrics]:
    return run.history() if (run.path / "metrics.jsonl").exists() else []


def processes(folder: Path) -> list[Path]:
    """Processes with the environment of the federation in a folder, as the kernel lists them."""
    home = f"FLWR_HOME={folder}/".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if home in (process / "environ").read_bytes():
                found.append(process)
    return found


def outside(federation: Loopback) -> set[str]:
    """Addresses outside this machine that any process of the federation is connected to."""
    sockets = set()
    for process in processes(federation.folder):
        with suppress(OSError):
            links = [os.readlink(each) for each in (process / "fd").iterdir()]
            sockets |= {link[8:-1] for link in links if link.startswith("socket:[")}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[9] in sockets and words[3] != "0A":  # not those that listen
                found.add(words[2].partition(":")[0])
    return {each for each in found if each not in ("0100007F", "0000000000000000FFFF00000100007F")}


def reference(folder: Path, lines: list[RoundMetrics]) -> Classifier:
    """Classifier of the same run without Flower, in which sites fail in the same rounds."""

    def silent(site: str) -> Any:
        # A site may have failed only when it was asked to evaluate.
        missed = {line.round for line in lines if line.clients < SITES and site in line.site_errors}
        return lambda kind, request, reply: None if kind == "train" and request.document["round"] in missed else reply

    sites = digits_sites(folder, SITES, allowed="every-third-row")
    wire = Wire(sites, {number: silent(f"client-{number}") for number in range(1, SITES + 1)})
    return run_coordinator(wire, {**SETTINGS, "out": str(folder / "run")}).classifier


def flat(classifier: Classifier) -> torch.Tensor:
    return torch.cat([value.double().flatten() for value in classifier.module.state_dict().values()])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_survives_wrong_updates_killed_sites_and_a_killed_coordinator(
    federation: Loopback, gates: Gates, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path / "run")
    steady, unsteady = "client-1", "client-2"
    gates.close(unsteady, KILLED)
    gates.close(steady, LOST)
    federation.start_coordinator()
    for site in (steady, unsteady):
        federation.register(site)
        start(federation, site, gates)
    make_keys(federation.folder / "keys", sites=["stranger"])  # not registered
    start(federation, "stranger", gates, name=steady)  # with the name and the rows of another site
    federation.run({})

    wait_until(lambda: gates.reached(unsteady, KILLED), lambda: federation.log("superlink")[-3000:])
    elsewhere = outside(federation)
    federation.kill(unsteady)
    gates.open(unsteady, KILLED)
    wait_until(lambda: gates.reached(steady, LOST), lambda: federation.log("superlink")[-3000:])
    before = history(run)
    federation.kill("superlink")
    gates.open(steady, LOST)
    assert [line.round for line in before] == list(range(1, LOST - 1))  # the last one was not evaluated yet
    assert before[KILLED - 1].clients == 1
    assert unsteady in before[KILLED - 1].site_errors
    assert run.result() is None

    federation.start_coordinator()
    start(federation, unsteady, gates)
    number = federation.run({"resume": True})

    def keep_up() -> None:
        if federation.processes[unsteady].poll() is not None:  # Flower refuses a node that it takes for connected
            start(federation, unsteady, gates)

    status = federation.until_ended(number, run, keep_up)
    assert status == "finished:completed", federation.log("superlink")[-3000:]
    elsewhere |= outside(federation)
    lines = history(run)
    assert [line.round for line in lines] == list(range(1, ROUNDS + 1))
    assert lines[: LOST - 2] == before
    assert "not finite" in lines[BROKEN - 1].site_errors[unsteady]
    assert lines[-1].clients == SITES
    assert not any("stranger" in line.site_errors for line in lines)
    assert "ApiError:2004" in federation.log("superlink")  # its key is not known
    assert not (federation.folder / "stranger" / "state").exists()
    here, there = flat(run.load_classifier()), flat(reference(tmp_path / "alone", lines))
    assert float((here - there).norm() / there.norm()) < 1e-5
    estimate = json.loads((run.path / "evaluation.json").read_text())
    assert 0 < estimate["interval"][0] < estimate["estimated_accuracy"] < estimate["interval"][1] < 1
    assert elsewhere == set()
    federation.close()
    wait_until(lambda: not processes(federation.folder))


@pytest.mark.slow
def test_a_run_that_fails_says_why_in_one_sentence(federation: Loopback, tmp_path: Path) -> None:
    federation.start_coordinator()
    number = federation.run({"start-seconds": 1.0})
    assert federation.until_ended(number, RunFolder(tmp_path / "run"), lambda: None) == "finished:failed"
    assert federation.reason(number) == (
        "0 of 2 sites connected within 1 s (none); start the others, or set sites to a smaller number."
    )
    wait_until(lambda: federation.reason(number) in federation.flwr("log", str(number), "--show"))
    assert "Traceback" not in federation.flwr("log", str(number), "--show")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signals", "code"), [((signal.SIGHUP,), 129), ((signal.SIGINT,) * 3, 130), ((signal.SIGKILL,), -9)]
)
def test_a_demo_that_is_stopped_leaves_no_process_behind(
    warm: Warm, tmp_path: Path, signals: tuple[signal.Signals, ...], code: int
) -> None:
    federation = tmp_path / "demo" / "federation"
    demo = warm.start("federation demo --sites 2 --rounds 1000 --out demo", tmp_path)
    demo.wait_until((federation / "logs" / "client-2.log").exists, pause=0.1)
    assert processes(federation)
    for number in signals:
        demo.send(number)
        time.sleep(0.3)
    assert demo.outcome().code == code
    wait_until(lambda: not processes(federation), seconds=120)  # killed processes may take a moment
