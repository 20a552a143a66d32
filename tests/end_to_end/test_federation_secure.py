"""Secure aggregation over a real SuperLink with TLS, keys and a roster: killed sites, and every algorithm."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedul
from fedul.training import RunFolder, test_error

if importlib.util.find_spec("flwr") is None:
    pytest.skip("Flower is not installed (fedul[flower])", allow_module_level=True)

from fedul.engines.flower.deploy.loopback import Loopback, loopback
from fedul.engines.flower.server.coordinator import run_coordinator

from ..engines.flower.sabotage import WAIT_AT_GATE, sabotage
from ..engines.flower.wire import DIGITS, Fault, Wire, digits_sites
from ..waiting import wait_until
from .test_federation import Gates, flat

SITES, ROUNDS, KILLED = 5, 4, 2
"""Sites, rounds, and the round in which the last site is killed."""
SITE = "require-secure-aggregation = true\n" + DIGITS
SETTINGS = {
    "classes": ",".join("0123456789"),
    "sites": SITES,
    "min-sites": 3,
    "secure-aggregation": True,
    "method": "fedul",
    "model": "mlp",
    "select": "last",
    "round-seconds": 300.0,  # longer than Flower takes to see that a site is gone
    "start-seconds": 600.0,
}
NAMES = tuple(f"client-{number}" for number in range(1, SITES + 1))


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Loopback]:
    folder = tmp_path / "federation"
    roster = str(folder / "roster.toml")
    with loopback(folder, {**SETTINGS, "rounds": ROUNDS, "out": str(tmp_path / "run"), "roster": roster}) as made:
        made.start_coordinator()
        for name in NAMES:
            made.register(name)
        made.write_roster()
        yield made


def finish(federation: Loopback, run: RunFolder, settings: dict[str, Any]) -> RunFolder:
    """Run the federation with these settings to its end."""
    number = federation.run({**settings, "out": str(run.path)})
    status = federation.until_ended(number, run, lambda: None)
    assert status == "finished:completed", federation.reason(number)
    return run


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_site_that_is_killed_between_keys_and_vector_does_not_stop_the_run(
    federation: Loopback, tmp_path: Path
) -> None:
    folder, lost = tmp_path / "gates", NAMES[-1]
    folder.mkdir()
    gates, run = Gates(folder), RunFolder(tmp_path / "run")
    gates.close(lost, KILLED)
    path = sabotage(folder / "sabotage", "train", WAIT_AT_GATE)
    for name in NAMES:
        text = SITE.format(name=name, clients=SITES, rows=500)
        federation.start_site(name, text, PYTHONPATH=path, GATES=str(folder))
    number = federation.run({})
    wait_until(lambda: gates.reached(lost, KILLED), lambda: federation.log("superlink")[-3000:], seconds=1800)
    federation.kill(lost)
    assert federation.until_ended(number, run, lambda: None) == "finished:completed", federation.reason(number)

    history = run.history()
    assert [line.clients for line in history] == [5, 4, 4, 4]
    assert lost in history[KILLED - 1].site_errors
    result = run.result()
    assert result is not None
    assert result.secure_aggregation is not None
    assert result.secure_aggregation.fewest_clients == 4

    missed: Fault = lambda kind, request, reply: (  # noqa: E731
        None if kind == "train" and request.document["round"] >= KILLED else reply
    )
    open_settings = {**SETTINGS, "secure-aggregation": False, "rounds": ROUNDS, "out": str(tmp_path / "open" / "run")}
    wire = Wire(digits_sites(tmp_path / "open", SITES, rows=500), {SITES: missed})
    expected = run_coordinator(wire, open_settings)
    here, there = flat(run.load_classifier()), flat(expected.classifier)
    assert float((here - there).norm() / there.norm()) < 1e-4

    ledger = next((federation.folder / NAMES[0] / "state").rglob("sums.json"))
    revealed = json.loads(ledger.read_text())["revealed"]
    assert revealed["round 1"] == [list(NAMES)]
    assert all(revealed[f"round {each}"] == [list(NAMES[:-1])] for each in range(KILLED, ROUNDS + 1))


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_every_algorithm_and_private_rows_end_as_without_secure_aggregation(
    federation: Loopback, tmp_path: Path
) -> None:
    for name in NAMES:
        federation.start_site(name, SITE.format(name=name, clients=SITES, rows=0))
    study = fedul.load("digits", clients=SITES)
    assert study.truth is not None
    differences = {}
    for algorithm in ("fedavg", "fedprox", "fednova", "scaffold", "fedavgm", "fedadam", "fedyogi"):
        run = finish(federation, RunFolder(tmp_path / algorithm), {"algorithm": algorithm, "rounds": 10})
        expected = fedul.train(
            study, method="fedul", model="mlp", select="last", algorithm=algorithm, rounds=10, engine_mode="loop"
        )
        assert expected.test_error is not None
        found = test_error(run.load_classifier().module, study.truth, study.federation.scaling)[0]
        differences[algorithm] = found - expected.test_error
    # Rounding moves single rows across a decision boundary: one is 0.06 points.
    assert all(abs(each) <= 0.005 for each in differences.values()), differences
    assert abs(sum(differences.values()) / len(differences)) <= 0.002, differences

    run = finish(federation, RunFolder(tmp_path / "private"), {"dp-epsilon": 8.0, "rounds": 2})
    result = run.result()
    assert result is not None
    assert result.epsilon == dict.fromkeys(NAMES, 8.0)
