"""The report page in a real browser: its states, on a screen, on a phone and on paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedul.evaluation.document import MAJORITY, Baseline
from fedul.reporting.page import render_page
from fedul.reporting.report_data import ClientSummary

from ..reporting.pages import made_up, refused
from .browser import LOW_CONTRAST, OVERFLOWS, Page, in_a_browser

PHONE, SCREEN = 390, 1280
FULL = made_up()
assert FULL.evaluation is not None
SETS = tuple(map(str, range(20)))
STATES = {
    "estimate": FULL,
    "no better": replace(FULL, evaluation=replace(FULL.evaluation, baselines=(Baseline(MAJORITY, 0.92),))),
    "refused": refused(FULL, "the interval would reach from 10% to 90%: there are too few rows"),
    "no evaluation": replace(FULL, evaluation=None),
    "many sets": replace(
        FULL, clients=[ClientSummary(name, 600, SETS, [[0.5, 0.5]] * 20) for name in ("North", "South")]
    ),
}
OUTSIDE = """
[...document.querySelectorAll('.plot svg, .plot .value, .refused *')].filter(each => {
  const box = each.getBoundingClientRect();
  return !box.width || box.left < 0 || box.right > innerWidth;
}).map(each => each.outerHTML)
"""
"""Plots and remedies that are not on the screen without scrolling sideways."""
PAGES = """
(() => {
  document.body.style.cssText = 'columns: 180mm; column-gap: 0; width: 180mm; height: HEIGHTpx; column-fill: auto';
  const width = document.body.getBoundingClientRect().width;
  const page = (each, last) => {
    const boxes = [...each.getClientRects()];
    return Math.floor((boxes[last ? boxes.length - 1 : 0].left + 1) / width);
  };
  return [...document.querySelectorAll('section')].flatMap(section => {
    const heading = section.querySelector('h2'), content = section.querySelector('figure, tbody tr');
    const first = heading.nextElementSibling;
    const pages = [page(heading), page(first), content ? page(content) : page(first)];
    return new Set(pages).size > 1 ? [[section.id, pages]] : [];
  }).concat([...document.querySelectorAll('figure, .figures, .refused, p')].filter(
    each => each.getClientRects().length && page(each) !== page(each, true)
  ).map(each => [each.className || each.tagName, each.getClientRects().length]));
})()
"""
"""Headings that are on another page than the text or figure that follows, and what is torn in two.

Columns of the height of a page are broken in the same way as pages, and can be measured.
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("states")
    files = {name: folder / f"{name}.html" for name in STATES}
    for name, file in files.items():
        file.write_text(render_page(STATES[name]))
    return files


@in_a_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, SCREEN])
@pytest.mark.parametrize("state", STATES)
def test_every_state_fits_the_screen_and_can_be_read(
    tab: Page, pages: dict[str, Path], state: str, width: int, dark: bool
) -> None:
    tab.open(pages[state], width=width, dark=dark)
    assert tab.evaluate(OVERFLOWS) == 0
    assert tab.evaluate(LOW_CONTRAST) == []


@in_a_browser
@pytest.mark.parametrize("state", STATES)
def test_on_a_phone_every_plot_is_seen_without_scrolling_sideways(
    tab: Page, pages: dict[str, Path], state: str
) -> None:
    tab.open(pages[state], width=PHONE, dark=False)
    assert tab.evaluate(OUTSIDE) == []
    plots = tab.evaluate("document.querySelectorAll('.plot svg').length")
    assert plots == {"estimate": 10, "no better": 8, "refused": 5, "no evaluation": 2, "many sets": 10}[state]


@in_a_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, SCREEN])
def test_a_refused_estimate_is_a_panel_in_the_first_view(
    tab: Page, pages: dict[str, Path], width: int, dark: bool
) -> None:
    tab.open(pages["refused"], width=width, dark=dark)
    top, bottom = tab.evaluate("(b => [b.top, b.bottom])(document.querySelector('.refused').getBoundingClientRect())")
    assert 0 < top < bottom < 800
    colours = tab.evaluate("['.refused', 'body'].map(x => getComputedStyle(document.querySelector(x)).backgroundColor)")
    assert colours[0] != colours[1]
    text = tab.evaluate("document.querySelector('.refused').innerText")
    assert text.startswith("The accuracy cannot be estimated without labels, because the interval would reach")
    assert "Label about 100 rows at random" in text


@in_a_browser
@pytest.mark.parametrize("state", STATES)
def test_on_paper_no_heading_is_torn_from_its_figure(tab: Page, pages: dict[str, Path], state: str) -> None:
    tab.open(pages[state], width=SCREEN, dark=True)
    tab.send("Emulation.setEmulatedMedia", media="print")
    try:
        torn = {height: tab.evaluate(PAGES.replace("HEIGHT", str(height))) for height in range(700, 1300, 50)}
        panel = tab.evaluate("(e => e && getComputedStyle(e).breakInside)(document.querySelector('.refused'))")
    finally:
        tab.send("Emulation.setEmulatedMedia", media="")
    assert {height: found for height, found in torn.items() if found} == {}
    assert panel == ("avoid" if state == "refused" else None)


@in_a_browser
def test_the_delivered_round_is_marked_in_the_learning_curves(tab: Page, pages: dict[str, Path]) -> None:
    tab.open(pages["estimate"], width=PHONE, dark=False)
    line = tab.evaluate("document.querySelector('.chosen').getBoundingClientRect().left")
    marks = tab.evaluate("[...document.querySelectorAll('.chart')][0].querySelectorAll('.marked').length")
    at = tab.evaluate("(b => b.left + b.width / 2)(document.querySelector('.marked').getBoundingClientRect())")
    assert marks == 2
    assert at == pytest.approx(line, abs=1)
    assert "Round 3 of 4 is delivered because" in tab.evaluate("document.querySelector('#learning').innerText")
