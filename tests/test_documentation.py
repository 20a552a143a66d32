"""Links of the documentation resolve, and benchmarks can be imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .places import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
SCRIPTS = [*(ROOT / "notebooks").glob("*.py"), *(ROOT / "examples").glob("*.py")]
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED_TEST = re.compile(r"\[`(test_\w+)`\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *SCRIPTS], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link}: no such file"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


def test_every_page_that_the_source_names_exists() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py"), *(ROOT / ".github").rglob("*.yml")]
    named = {name for file in sources for name in re.findall(r"\bdocs/[\w/-]+\.md", file.read_text(encoding="utf-8"))}
    assert "docs/privacy/threat-model.md" in named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_test_that_a_page_names_is_in_the_file_that_it_links() -> None:
    named = [(page, *found) for page in PAGES for found in NAMED_TEST.findall(page.read_text(encoding="utf-8"))]
    assert "test_a_site_does_not_execute_the_app_of_a_run" in {name for _, name, _ in named}
    for page, name, link in named:
        text = (page.parent / link).read_text(encoding="utf-8")
        assert f"\ndef {name}(" in text, f"{page.name}: {link} has no {name}"


def test_every_benchmark_can_be_imported() -> None:
    folder = ROOT / "benchmarks"
    files = [*folder.glob("*.py"), *(folder / "simulators").glob("*.py")]
    modules = [".".join(file.relative_to(folder).with_suffix("").parts) for file in files]
    assert "speed" in modules
    program = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)"
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-c", program, *sorted(modules)]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, text=True, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
