"""The live page follows a real run of three sites, whose coordinator is killed and resumed, from start to report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fedul
from fedul.training import RunFolder

from ..engines.flower.sabotage import WAIT_AT_GATE, sabotage
from ..engines.flower.wire import DIGITS
from ..waiting import wait_until
from .browser import COMPLAINTS, LOW_CONTRAST, OVERFLOWS, Page, in_a_browser, text
from .test_federation import Gates, gates, loopback

__all__ = ["gates"]
SITES = ("client-1", "client-2", "client-3")
ROUNDS, LOST = 5, 3
"""Rounds, and the one in which the coordinator is killed."""
SETTINGS = {
    "classes": ",".join("0123456789"),
    "sites": len(SITES),
    "rounds": ROUNDS,
    "method": "fedul",
    "model": "mlp",
    "round-seconds": 300.0,
    "start-seconds": 600.0,
}


@pytest.fixture
def seen(tab: Page, tmp_path: Path) -> Iterator[Page]:
    with fedul.watch(tmp_path / "run", wait=True) as page:
        tab.open(page.url, width=1280, dark=False)
        yield tab


@pytest.mark.long
@pytest.mark.timeout(3600)
@in_a_browser
def test_the_page_follows_three_sites_and_a_killed_coordinator_from_start_to_report(
    seen: Page, gates: Gates, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path / "run")
    with loopback(tmp_path / "federation", {**SETTINGS, "out": str(run.path)}) as federation:
        path = sabotage(gates.folder / "sabotage", "train", WAIT_AT_GATE)

        def start(site: str) -> None:
            settings = DIGITS.format(name=site, clients=len(SITES), rows=0)
            federation.start_site(site, settings, PYTHONPATH=path, GATES=str(gates.folder))

        def keep_up() -> None:
            for site in SITES:
                if site in federation.processes and federation.processes[site].poll() is not None:
                    start(site)

        def shows(*parts: str) -> None:
            def is_shown() -> bool:
                keep_up()
                shown = text(seen)
                return all(part in shown for part in parts)

            wait_until(is_shown, lambda: text(seen) + federation.log("superlink")[-2000:])

        assert "Waiting for a run" in text(seen)
        gates.close("client-1", LOST)
        federation.start_coordinator()
        for site in SITES:
            federation.register(site)
        for site in SITES[:2]:
            start(site)
        federation.run({})
        shows("Waiting for sites", "client-1", "client-2")
        start("client-3")
        shows(f"Training: {LOST - 2} of {ROUNDS} rounds are done", "working", "ready", *SITES)
        wait_until(lambda: gates.reached("client-1", LOST))

        federation.kill("superlink")
        shows(f"Stopped after round {LOST - 2} of {ROUNDS}", "flwr run . --run-config 'resume=true'")
        gates.open("client-1", LOST)
        federation.start_coordinator()
        number = federation.run({"resume": True})
        shows("after round 1 of an earlier one", "Training: ")
        assert federation.until_ended(number, run, keep_up) == "finished:completed"
        shows(f"Finished after {ROUNDS} rounds", "Open the report on its own page", "is delivered")
    assert seen.evaluate("document.querySelectorAll('.sites tbody tr:not(.problem)').length") == len(SITES)
    assert seen.evaluate("document.querySelector('iframe').getBoundingClientRect().height") > 300
    assert seen.evaluate(OVERFLOWS) == 0
    assert seen.evaluate(LOW_CONTRAST) == []
    assert [found for each in COMPLAINTS for found in seen.reported(each)] == []
