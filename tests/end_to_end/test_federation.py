"""A real SuperLink and real SuperNodes on loopback, with TLS and keys: what a coordinator and its sites go through."""

from __future__ import annotations

import importlib.util
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedul.classifier import Classifier
from fedul.runs import RunFolder

if importlib.util.find_spec("flwr") is None:
    pytest.skip("Flower is not installed (fedul[flower])", allow_module_level=True)

from fedul.engines.flower.coordinator import coordinate
from fedul.engines.flower.keys import make_site_key
from fedul.engines.flower.loopback import Loopback, loopback

from ..engines.flower.wire import DIGITS, Wire, digits_sites

SITES = 2
ROUNDS = 5
BROKEN = 2
"""The round in which site 2 sends an update that is not one."""
SETTINGS = {
    "classes": ",".join("0123456789"),
    "sites": SITES,
    "min-sites": 1,
    "rounds": ROUNDS,
    "algorithm": "scaffold",
    "model": "mlp",
    "round-seconds": 45.0,
    "start-seconds": 180.0,
}
# Loaded by every Python that site 2 starts: its answers in one round are not numbers.
SABOTAGE = f"""
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

class Saboteur(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "fedul.engines.flower.site":
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module
        def spoiled(module):
            run(module)
            train = module.ANSWERS["train"]
            def answer(own, asked):
                found = train(own, asked)
                if asked.notes["round"] != {BROKEN}:
                    return found
                return module.Letter(found.notes, {{k: t * float("nan") for k, t in found.tensors.items()}})
            module.ANSWERS["train"] = answer
        spec.loader.exec_module = spoiled
        return spec

sys.meta_path.insert(0, Saboteur())
"""


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Loopback]:
    with loopback(tmp_path / "federation", {**SETTINGS, "out": str(tmp_path / "run")}) as made:
        yield made


def settings_of(site: str) -> str:
    return DIGITS.format(name=site, clients=SITES, rows=0)


def until(happened: Callable[[], object], what: str, federation: Loopback, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"{what} did not happen\n{federation.log('superlink')[-3000:]}"
        time.sleep(0.5)


def troubles(run: RunFolder) -> set[str]:
    return {site for line in history(run) for site in line.get("troubles", {})}


def history(run: RunFolder) -> list[dict[str, Any]]:
    return run.history() if (run.path / "metrics.jsonl").exists() else []


def addresses(pid: int) -> set[str]:
    """The addresses outside this machine that a process group has a connection to, as the kernel lists them."""
    sockets = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) != pid:
                continue
            links = [os.readlink(each) for each in (process / "fd").iterdir()]
        except OSError:
            continue
        sockets |= {link[8:-1] for link in links if link.startswith("socket:[")}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[9] in sockets and words[3] != "0A":  # not those that listen
                found.add(words[2].partition(":")[0])
    return {each for each in found if each not in ("0100007F", "0000000000000000FFFF00000100007F")}


def reference(folder: Path, lines: list[dict[str, Any]]) -> Classifier:
    """The classifier of the same run without Flower, in which sites failed in the rounds in which they did."""

    def silent(site: str) -> Any:
        missed = {line["round"] for line in lines if site in line.get("troubles", {})}
        return lambda kind, asked, answer: None if kind == "train" and asked.notes["round"] in missed else answer

    wire = Wire(digits_sites(folder, SITES), {number: silent(f"client-{number}") for number in range(1, SITES + 1)})
    return coordinate(wire, {**SETTINGS, "out": str(folder / "run")}).classifier


def flat(classifier: Classifier) -> torch.Tensor:
    return torch.cat([value.double().flatten() for value in classifier.module.state_dict().values()])


@pytest.mark.sites
@pytest.mark.timeout(780)
def test_sites_come_and_go_lie_and_the_coordinator_is_lost_and_the_result_is_what_it_should_be(
    federation: Loopback, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path / "run")
    (tmp_path / "sabotage").mkdir()
    (tmp_path / "sabotage" / "sitecustomize.py").write_text(SABOTAGE)
    sites = [f"client-{number}" for number in range(1, SITES + 1)]
    federation.start_coordinator()
    for site in sites:
        federation.register(site)
    federation.start_site(sites[0], settings_of(sites[0]))
    federation.start_site(sites[1], settings_of(sites[1]), PYTHONPATH=str(tmp_path / "sabotage"))
    make_site_key(federation.folder / "keys", "stranger")  # and nobody registers it
    federation.start_site("stranger", settings_of("stranger"))
    federation.run({})

    outside: set[str] = set()
    until(lambda: history(run), "round 1", federation)
    outside |= set().union(*(addresses(process.pid) for process in federation.processes.values()))
    federation.kill(sites[1])  # round 3 is under way
    until(
        lambda: any(line["round"] > BROKEN and "troubles" in line for line in history(run)), "its absence", federation
    )
    federation.start_site(sites[1], settings_of(sites[1]))
    federation.kill("superlink")

    before = len(history(run))
    assert 0 < before < ROUNDS
    assert run.result() is None
    federation.start_coordinator()
    number = federation.run({"resume": True})
    until((run.path / "evaluation.json").exists, "the end", federation)
    until(lambda: federation.status(number).startswith("finished"), "the end", federation, 60)
    outside |= set().union(*(addresses(process.pid) for process in federation.processes.values()))

    lines = history(run)
    assert federation.status(number) == "finished:completed"
    assert [line["round"] for line in lines] == list(range(1, ROUNDS + 1))
    assert "not finite" in lines[BROKEN - 1]["troubles"][sites[1]]
    assert lines[-1]["clients"] == SITES
    assert "stranger" not in troubles(run)
    assert "ApiError:2004" in federation.log("superlink")  # its key is not known
    assert not (federation.folder / "stranger" / "state").exists()
    here, there = flat(run.load_classifier()), flat(reference(tmp_path / "alone", lines))
    assert float((here - there).norm() / there.norm()) < 1e-5
    estimate = json.loads((run.path / "evaluation.json").read_text())
    assert 0 < estimate["interval"][0] < estimate["estimated_accuracy"] < estimate["interval"][1] < 1
    assert outside == set()
    federation.close()
    assert all(process.poll() is not None for process in federation.processes.values())
