"""`fedul report` as a user types it, and its page in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedul.reporting.page import SECTIONS, render_page

from ..reporting.pages import Reader, as_files, made_up
from ..runs import contents
from .browser import LOW_CONTRAST, OVERFLOWS, Page, in_a_browser
from .checks import leftovers, refuses
from .command import Fedul

FOCUSED = "document.activeElement.outerHTML.slice(0, 120)"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(
        render_page(made_up("<script>alert(1)</script>", "\"&'", "a" * 90, "a set with a very long name " * 4))
    )
    return file


@pytest.fixture(params=[(360, False), (360, True), (1280, False), (1280, True)], ids=str)
def shown(request: pytest.FixtureRequest, tab: Page, report: Path) -> Page:
    """The page of a run with awkward names, on a phone and on a large screen, in light and in dark."""
    width, dark = request.param
    tab.open(report, width=width, dark=dark)
    tab.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    return tab


@in_a_browser
def test_the_page_shows_its_answer_and_every_section(shown: Page) -> None:
    text = shown.evaluate("document.body.innerText").replace("\u00a0", " ")
    assert "This classifier tells <script>alert(1)</script> from \"&' in an estimated 93 % of cases" in text
    for heading in ("In short", "Class priors", "Learning curves", "Calibration by set", "Configuration"):
        assert heading in text


@in_a_browser
def test_the_page_asks_for_nothing_from_outside_and_has_no_errors(shown: Page) -> None:
    asked = [event["request"]["url"] for event in shown.reported("Network.requestWillBeSent")]
    assert [address.partition(":")[0] for address in asked] == ["file"]
    for complaints in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
        assert shown.reported(complaints) == []


@in_a_browser
def test_the_page_is_never_wider_than_the_screen(shown: Page) -> None:
    assert shown.evaluate(OVERFLOWS) == 0


@in_a_browser
def test_all_text_stands_out_from_what_is_behind_it(shown: Page) -> None:
    assert shown.evaluate(LOW_CONTRAST) == []


@in_a_browser
def test_light_and_dark_are_what_the_reader_asked_for(tab: Page, report: Path) -> None:
    backgrounds = []
    for dark in (False, True):
        tab.open(report, width=1280, dark=dark)
        backgrounds.append(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert backgrounds == ["rgb(255, 255, 255)", "rgb(18, 23, 29)"]


@in_a_browser
def test_the_keyboard_reaches_the_answer_first_then_the_contents_then_the_tables(tab: Page, report: Path) -> None:
    tab.open(report, width=360, dark=False)
    order = []
    contents = len(SECTIONS)
    for _ in range(contents + 3):
        tab.press("Tab")
        order.append(tab.evaluate(FOCUSED))
        assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert "Skip to the answer" in order[0]
    assert all('<a href="#' in place for place in order[1 : contents + 1])
    assert "baselines-table-caption" in order[contents + 1]
    assert "priors-table-caption" in order[contents + 2]


@in_a_browser
def test_the_skip_link_leads_to_the_answer(tab: Page, report: Path) -> None:
    tab.open(report, width=360, dark=False)
    tab.press("Tab")
    tab.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "main"


@in_a_browser
def test_a_screen_reader_finds_landmarks_tables_and_described_pictures(tab: Page, report: Path) -> None:
    tab.open(report, width=1280, dark=False)
    nodes: list[dict[str, Any]] = tab.send("Accessibility.getFullAXTree")["nodes"]
    names: dict[str, list[str]] = {}
    for node in nodes:
        names.setdefault(node.get("role", {}).get("value", ""), []).append(node.get("name", {}).get("value", ""))
    assert names["main"]
    assert names["navigation"] == ["Contents"]
    pictures = [name for role in ("image", "img") for name in names.get(role, [])]
    assert pictures[:2] == ["Loss by round", "Test error by round"]
    assert all(names["table"])


@in_a_browser
def test_the_page_can_be_printed_even_by_one_who_reads_in_the_dark(tab: Page, report: Path) -> None:
    tab.open(report, width=1280, dark=True)
    assert tab.pdf().startswith(b"%PDF")
    tab.send("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    tab.send("Emulation.setEmulatedMedia", media="")


@in_a_browser
def test_a_browser_that_is_asked_for_something_from_outside_would_be_noticed(tab: Page, tmp_path: Path) -> None:
    file = tmp_path / "bad.html"
    file.write_text("<img src='http://127.0.0.1:9/x.png'><script>console.error('no')</script><p style='width:2000px'>x")
    tab.open(file, width=360, dark=False)
    assert "http://127.0.0.1:9/x.png" in [e["request"]["url"] for e in tab.reported("Network.requestWillBeSent")]
    assert tab.reported("Runtime.consoleAPICalled")
    assert tab.evaluate(OVERFLOWS) > 0


def test_a_report_is_written_beside_the_run_and_shows_its_priors(fedul: Fedul, finished_run: Path) -> None:
    done = fedul("report RUN --json")
    assert (done.code, done.err) == (0, "")
    assert done.document == {"run": "RUN", "out": "RUN/report.html", "missing": ["evaluation", "check"]}
    read = Reader((finished_run / "report.html").read_text(encoding="utf-8"))
    assert "How well can 10 classes be told apart without labels?" in read.plain_text
    assert "40 sets of 50 shown; 10 more are not." in read.plain_text
    assert "fedul evaluate RUN" in read.plain_text
    assert leftovers(finished_run) == []


def test_what_other_commands_found_is_on_the_page_and_the_run_is_left_as_it_was(
    fedul: Fedul, finished_run: Path, tmp_path: Path
) -> None:
    for name, content in as_files(made_up()).items():
        (finished_run / name).write_text(json.dumps(content))
    before = contents(finished_run)
    done = fedul("report RUN --out pages/run.html")
    assert done.code == 0, done.err
    assert "report written to pages/run.html" in done.out
    assert contents(finished_run) == before
    plain = Reader((tmp_path / "pages/run.html").read_text(encoding="utf-8")).plain_text
    assert "in an estimated 93 % of cases" in plain
    assert "One more set with much flu would help most." in plain


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"data": "gone.csv", "priors": "gone-too.csv"}, "gone"),
        ({}, "RUN: does not record its data"),
        ({"data": "digits", "clients": 4}, "its data has changed since it was trained"),
    ],
)
def test_without_the_data_of_the_run_the_page_goes_without_priors(
    fedul: Fedul, finished_run: Path, settings: dict[str, Any], reason: str
) -> None:
    file = finished_run / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "data": settings}))
    done = fedul("report RUN --json")
    assert done.code == 0, done.err
    assert done.err.startswith("note: the page has no class priors: ")
    assert reason in done.err
    assert "priors" in done.document["missing"]


def test_a_run_that_is_not_finished_has_a_page_too(fedul: Fedul, finished_run: Path) -> None:
    for name in ("result.json", "model/classifier.json"):
        (finished_run / name).unlink()
    assert fedul("report RUN").code == 0
    plain = Reader((finished_run / "report.html").read_text(encoding="utf-8")).plain_text
    assert "This run is not finished: 3 rounds of 3 are done." in plain


def test_what_is_no_run_or_damaged_is_refused(fedul: Fedul, finished_run: Path, tmp_path: Path) -> None:
    refuses(fedul, tmp_path, "report NOWHERE", "no run in it")
    (finished_run / "evaluation.json").write_text("{}")
    refuses(fedul, tmp_path, "report RUN", "evaluation.json: damaged")
    (finished_run / "result.json").write_text("{}")
    refuses(fedul, tmp_path, "report RUN", "result.json: damaged; delete it")
    (finished_run / "metrics.jsonl").write_text("{")
    refuses(fedul, tmp_path, "report RUN", "continue the run (--resume), which writes it again")
