"""The documentation site in a real browser, opened from the file system: no server, no network."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..end_to_end.browser import LOW_CONTRAST, OVERFLOWS, Page, in_a_browser

pytestmark = [pytest.mark.slow, in_a_browser]

PHONE, SCREEN = 390, 1280
LOOKED_AT = ["index", "guide/own-data", "reference/api/functions", "reference/cli"]
CONTENT_ONLY = "document.querySelectorAll('.md-header, .md-sidebar').forEach(each => each.remove())"
"""Menus that are closed on this screen have texts that cannot be seen."""
SEARCH = """
new Promise(found => {
  const results = document.querySelector('.md-search-result__list');
  const look = () => results.querySelector('a') && found([...results.querySelectorAll('a')].map(a => a.href));
  new MutationObserver(look).observe(results, {childList: true, subtree: true});
  document.querySelector('.md-search__input').focus();
  document.querySelector('.md-search__input').value = 'secure aggregation';
  document.querySelector('.md-search__input').dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));
  look();
})
"""
"""Types a query and waits for its results."""


def from_elsewhere(tab: Page) -> list[str]:
    """Return the addresses outside of the site that a page asked for."""
    asked = [event["request"]["url"] for event in tab.reported("Network.requestWillBeSent")]
    assert asked
    return [address for address in asked if not address.startswith(("file:", "data:", "blob:"))]


def complaints(tab: Page) -> list[str]:
    """Return the errors and warnings that the browser has noted."""
    return [event["entry"]["text"] for event in tab.reported("Log.entryAdded")]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, SCREEN])
@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_page_fits_the_screen_and_can_be_read(tab: Page, site: Path, name: str, width: int, dark: bool) -> None:
    tab.open(site / f"{name}.html", width=width, dark=dark)
    assert tab.evaluate("document.body.dataset.mdColorScheme") == ("slate" if dark else "default")
    assert tab.evaluate(OVERFLOWS) == 0
    tab.evaluate(CONTENT_ONLY)
    assert tab.evaluate(LOW_CONTRAST) == []
    assert (from_elsewhere(tab), complaints(tab)) == ([], [])


def test_search_finds_pages_without_a_server(tab: Page, site: Path) -> None:
    tab.open(site / "index.html", width=SCREEN, dark=False)
    results = tab.evaluate(SEARCH)
    assert any("secure-aggregation.html" in address for address in results)
    assert from_elsewhere(tab) == []
