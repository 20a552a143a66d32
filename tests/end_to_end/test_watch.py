"""`fedul watch` as a user types it, and its page in a real browser."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedul
from fedul.training import run_files

from ..reporting.live_folders import going_on, rounds, status, write_run
from .browser import COMPLAINTS, LOW_CONTRAST, OVERFLOWS, Page, in_a_browser, text, until
from .checks import is_one_sentence, refuses
from .command import Fedul, Running, Warm

PHONE, SCREEN = 390, 1280
STATES: dict[str, dict[str, Any]] = {
    "training": {"history": rounds(7), "status": status()},
    "waiting": {"status": status("waiting")},
    "stopped": {"history": rounds(7), "status": status()},
    "failed": {"history": rounds(7), "status": status("failed", problem="round 8: too few sites; resume the run.")},
    "finished": {"history": rounds(12), "status": status("finished"), "finished": True, "report": True},
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("watched")
    with ExitStack() as stack:
        addresses = {}
        for name, documents in STATES.items():
            run = write_run(folder / name, **documents)
            stack.enter_context(going_on(run) if name in ("training", "waiting") else nullcontext())
            addresses[name] = stack.enter_context(fedul.watch(run)).url
        yield addresses


@in_a_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, SCREEN])
@pytest.mark.parametrize("state", STATES)
def test_every_state_fits_the_screen_can_be_read_and_has_no_errors(
    tab: Page, pages: dict[str, str], state: str, width: int, dark: bool
) -> None:
    tab.open(pages[state], width=width, dark=dark)
    until(tab, "document.querySelector('time[data-at]').textContent.includes('ago')")
    assert tab.evaluate(OVERFLOWS) == 0
    assert tab.evaluate(LOW_CONTRAST) == []
    assert [found for each in COMPLAINTS for found in tab.reported(each)] == []
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(18, 23, 29)" if dark else "rgb(255, 255, 255)")


@in_a_browser
def test_the_page_loads_its_own_documents_only(tab: Page, pages: dict[str, str]) -> None:
    tab.open(pages["finished"], width=SCREEN, dark=False)
    until(tab, "document.querySelector('time[data-at]').textContent.includes('ago')")
    asked = [event["request"]["url"] for event in tab.reported("Network.requestWillBeSent")]
    assert all(address.startswith(pages["finished"]) for address in asked)
    names = {address.removeprefix(pages["finished"]).partition("?")[0] for address in asked}
    assert names - {"icon.svg"} == {"", "live.css", "live.js", "state.json", "report"}


@in_a_browser
def test_on_a_phone_every_value_of_a_site_is_on_the_screen_with_its_name(tab: Page, pages: dict[str, str]) -> None:
    tab.open(pages["training"], width=PHONE, dark=False)
    outside = "[...document.querySelectorAll('.sites td')].filter(e => e.getBoundingClientRect().right > innerWidth)"
    assert tab.evaluate(f"{outside}.length") == 0
    label = "getComputedStyle(document.querySelector('.sites td[data-label=sent]'), '::before').content"
    assert tab.evaluate(label) == '"sent"'


@in_a_browser
def test_the_keyboard_reaches_the_run_then_its_tables_and_each_place_is_marked(
    tab: Page, pages: dict[str, str]
) -> None:
    tab.open(pages["training"], width=SCREEN, dark=False)
    places = []
    for _ in range(3):
        tab.press("Tab")
        places.append(tab.evaluate("document.activeElement.outerHTML.slice(0, 100)"))
        assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert "Skip to the run" in places[0]
    assert "latest-table-caption" in places[1]
    assert "sites-title" in places[2]
    tab.open(pages["training"], width=SCREEN, dark=False)
    tab.press("Tab")
    tab.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "main"


@in_a_browser
@pytest.mark.parametrize("width", [PHONE, SCREEN])
def test_a_screen_reader_finds_the_table_the_progress_and_the_curve(
    tab: Page, pages: dict[str, str], width: int
) -> None:
    tab.open(pages["training"], width=width, dark=False)
    nodes: list[dict[str, Any]] = tab.send("Accessibility.getFullAXTree")["nodes"]
    names: dict[str, list[str]] = {}
    for node in nodes:
        names.setdefault(node.get("role", {}).get("value", ""), []).append(node.get("name", {}).get("value", ""))
    assert names["main"]
    assert "Sites" in names["table"]
    assert {"site", "state", "last seen"} <= set(names["columnheader"])
    assert {"north", "south", "west", "east"} <= set(names["rowheader"])
    assert names["progressindicator" if "progressindicator" in names else "progressbar"] == ["Rounds"]
    assert "Loss by round" in [*names.get("image", []), *names.get("img", [])]
    assert names["status"]


@in_a_browser
def test_the_page_follows_a_run_from_its_start_to_its_report(tab: Page, tmp_path: Path) -> None:
    run = tmp_path / "RUN"
    with fedul.watch(run, wait=True) as page:
        tab.open(page.url, width=SCREEN, dark=False)
        assert "Waiting for a run" in text(tab)
        write_run(run)
        with going_on(run):
            for state, documents, shown in (
                ("waiting", {}, "Waiting for sites"),
                ("training", {"history": rounds(1)}, "1 of 12 rounds"),
                ("training", {"history": rounds(6)}, "6 of 12 rounds"),
                ("finishing", {"history": rounds(12)}, "the result is being written"),
            ):
                write_run(run, status=status(state), **documents)
                until(tab, f"document.body.innerText.includes('{shown}')")
        until(tab, "document.title.startsWith('Stopped after round 12')")
        write_run(run, status=status("finished"), finished=True)
        until(tab, "document.title.startsWith('Finished')")
        assert "fedul evaluate" in text(tab)
        write_run(run, report=True)
        until(tab, "document.querySelector('iframe')")
    until(tab, "document.getElementById('connection').textContent.includes('has ended')")
    assert "Finished after 12 rounds" in text(tab)  # the last that it knows


@in_a_browser
def test_an_update_keeps_the_focus_and_the_report_that_is_being_read(tab: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "RUN", rounds(7), status(), report=True)
    with going_on(run), fedul.watch(run) as page:
        tab.open(page.url, width=SCREEN, dark=False)
        until(tab, "document.querySelector('time[data-at]').textContent.includes('ago')")
        tab.evaluate("document.getElementById('sites-region').focus(); document.querySelector('iframe').mine = 1")
        write_run(run, rounds(8), status(table=replace(status().table, sites=status().table.sites[:2])))
        until(tab, "document.body.innerText.includes('8 of 12') && !document.body.innerText.includes('west')")
        assert tab.evaluate("document.activeElement.id") == "sites-region"
        assert tab.evaluate("document.querySelector('iframe').mine") == 1
        assert tab.evaluate("document.getElementById('announcement').textContent").startswith("Training, 60 %")


@in_a_browser
def test_no_script_of_a_report_is_run(tab: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "RUN", rounds(12), status("finished"), finished=True)
    (run / run_files.REPORT).write_text(
        "<title>before</title><script>document.title = 'after'; top.location = '/'</script>"
    )
    with fedul.watch(run) as page:
        tab.open(f"{page.url}report", width=SCREEN, dark=False)
        assert tab.evaluate("document.title") == "before"
        tab.open(page.url, width=SCREEN, dark=False)
        assert "Finished after 12 rounds" in text(tab)


def started(warm: Warm, folder: Path, line: str) -> tuple[Running, str]:
    """Start `fedul watch`, and return it with the address that it prints."""
    watching = warm.start(line, folder)
    output = Path(watching.files["out"])
    watching.wait_until(lambda: output.exists() and output.read_text().endswith("\n"))
    return watching, output.read_text()


def test_watch_prints_the_address_and_ends_with_ctrl_c(warm: Warm, tmp_path: Path) -> None:
    write_run(tmp_path / "RUN", rounds(3), status())
    watching, address = started(warm, tmp_path, "watch RUN")
    assert address.startswith("http://127.0.0.1:")
    watching.send(signal.SIGINT)
    outcome = watching.outcome()
    assert outcome.code == 130
    assert outcome.err.endswith("fedul: stopped; the run is not affected.\n")
    assert "Traceback" not in outcome.err


def test_watch_prints_one_document_with_json_and_may_be_started_before_the_run(warm: Warm, tmp_path: Path) -> None:
    watching = warm.start("watch RUN --wait --json", tmp_path)
    output = Path(watching.files["out"])
    watching.wait_until(lambda: output.exists() and output.read_text().endswith("}\n"))
    watching.send(signal.SIGTERM)
    outcome = watching.outcome()
    assert (outcome.code, outcome.document["run"]) == (143, "RUN")
    assert outcome.document["url"].startswith("http://127.0.0.1:")


def test_watch_needs_a_run(fedul: Fedul, tmp_path: Path) -> None:
    refuses(fedul, tmp_path, "watch ABSENT", "ABSENT: no run in it; give the folder of a run, or add --wait")
    refuses(fedul, tmp_path, "watch ABSENT --port 70000", "port")


def test_a_port_that_is_in_use_ends_watch_with_one_sentence(fedul: Fedul, tmp_path: Path) -> None:
    import fedul as package

    write_run(tmp_path / "RUN", rounds(3), status())
    with package.watch(tmp_path / "RUN") as page:
        outcome = fedul(f"watch RUN --port {page.url.split('/')[2].split(':')[1]}")
    assert (outcome.code, outcome.out) == (1, "")
    assert is_one_sentence(outcome.err)
    assert "choose another --port" in outcome.err


def test_the_status_of_a_run_says_how_it_ended(warm: Warm, tmp_path: Path) -> None:
    def phase() -> str:
        return str(json.loads((tmp_path / "RUN" / run_files.STATUS).read_text())["phase"])

    line = "train --data digits --clients 3 --rounds 400 --out RUN --checkpoint-every 1 --threads 1"
    training = warm.start(line, tmp_path)
    training.wait_until(lambda: (tmp_path / "RUN" / run_files.METRICS).exists())
    assert phase() == "training"
    training.send(signal.SIGINT)
    training.outcome()
    assert phase() == "stopped"
    done = len((tmp_path / "RUN" / run_files.METRICS).read_text().splitlines())
    assert warm.run(f"train --out RUN --resume --rounds {done + 1}", tmp_path).code == 0
    assert phase() == "finished"
