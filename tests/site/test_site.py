"""The documentation site: it is built without a warning, loads nothing from elsewhere, and is complete."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import typer

import fedul
from fedul.cli.commands import app

from ..places import ROOT

pytestmark = pytest.mark.slow

LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
"""Attributes whose address a browser loads by itself."""
IN_STYLES = re.compile(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)")
ENTRY = re.compile(r'<h2 id="([\w.]+)" class="doc doc-heading">')
COMMAND = re.compile(r'<h2 id="[\w-]+">([^<]+)<')
TAG = re.compile(r"<[^>]+>")
EXAMPLE = re.compile(r"Example:\s+(.*)")
EXTENSION_POINTS = ["fedul.methods.task.Task", "fedul.methods.task.Step", "fedul.training.callbacks.RunInfo"]
OTHER_NAMES = ["fedul.FedULClassifier", "fedul.errors.EnvironmentFailure", "fedul.training.result.RunResult"]


class PageParser(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.classes: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.classes |= set(given.get("class", "").split())
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given and given.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(given[LOADED[tag]])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, PageParser]:
    return {page: PageParser(page) for page in sorted(site.rglob("*.html"))}


def test_every_page_of_the_repository_is_on_the_site(site: Path) -> None:
    names = {page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")}
    expected = {name.with_name("index") if name.name == "README" else name for name in names}
    found = {page.relative_to(site).with_suffix("") for page in site.rglob("*.html")}
    assert expected - found == set()
    assert found - expected == {Path("404"), Path("changes"), Path("contributing")}


def test_no_page_loads_anything_from_another_server(site: Path, pages: dict[Path, PageParser]) -> None:
    loaded = [address for page in pages.values() for address in page.loaded]
    for style in site.rglob("*.css"):
        loaded += [first or second for first, second in IN_STYLES.findall(style.read_text(encoding="utf-8"))]
    assert len(loaded) > 100
    assert [address for address in loaded if urlsplit(address).netloc] == []
    # The theme's script would load this for diagrams, and facts about a repository that the configuration names.
    assert not any("mermaid" in page.classes or "md-source" in page.classes for page in pages.values())


def test_every_link_of_the_site_leads_to_a_file_and_an_anchor(pages: dict[Path, PageParser]) -> None:
    broken, links = [], 0
    for page, parsed in pages.items():
        if page.name == "404.html":  # may be shown for an address in any folder
            continue
        for link in parsed.links:
            address = urlsplit(link)
            if address.scheme:
                continue
            links += 1
            target = (page.parent / unquote(address.path)).resolve() if address.path else page
            if target.is_dir():
                target /= "index.html"
            anchor = unquote(address.fragment)
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append((page.name, link))
    assert links > 1000
    assert broken == []


def entries(site: Path) -> dict[str, str]:
    """Return the HTML of every entry of the Python reference, by name."""
    found = {}
    for page in sorted((site / "reference" / "api").glob("*.html")):
        text = page.read_text(encoding="utf-8")
        _, *parts = ENTRY.split(text)  # name, text, name, text, ...
        found |= dict(zip(parts[::2], parts[1::2], strict=True))
    return found


def test_every_public_name_has_an_entry_with_an_example(site: Path) -> None:
    found = entries(site)
    public = [f"fedul.{name}" for name in fedul.__all__ if name != "__version__"]
    names = [*public, *EXTENSION_POINTS, *OTHER_NAMES]
    assert [name for name in names if name not in found] == []
    assert [name for name, text in found.items() if "&gt;&gt;&gt;" not in text] == []


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", {})
    if not below or command.invoke_without_command:
        yield name, command
    for part, subcommand in below.items():
        yield from commands(subcommand, f"{name} {part}")


def test_every_command_and_option_is_in_the_reference_of_the_command_line(site: Path) -> None:
    _, *parts = COMMAND.split((site / "reference" / "cli.html").read_text(encoding="utf-8"))  # name, text, name, ...
    described = {name: html.unescape(TAG.sub("", text)) for name, text in zip(parts[::2], parts[1::2], strict=True)}
    expected = dict(commands(typer.main.get_command(app), "fedul"))
    assert [*described] == [*expected]
    for name, command in expected.items():
        options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        shown = [*(options - {"--help"}), *EXAMPLE.findall(command.epilog)]
        assert [each for each in shown if each not in described[name]] == [], name


def test_configuration_and_components_are_in_the_reference(site: Path) -> None:
    from dataclasses import fields

    from fedul.algorithms import ALGORITHMS
    from fedul.methods import METHODS

    configuration = (site / "reference" / "api" / "configuration.html").read_text(encoding="utf-8")
    for config in (fedul.TrainConfig, fedul.FileDataConfig, fedul.BenchmarkDataConfig):
        assert [f.name for f in fields(config) if f"<code>{f.name} = " not in configuration] == []
    components = PageParser(site / "reference" / "methods.html").anchors
    assert {*METHODS, *ALGORITHMS} <= components
