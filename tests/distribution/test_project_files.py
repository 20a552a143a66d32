"""Files for hosts, indexes and readers are valid, and agree with the project."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import fedul
from fedul.installation.requirements import EXTRAS

from ..places import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
FOR_DEVELOPERS = {"bench", "dev", "docs", "notebooks"}
"""Extras that are of no use without the repository."""


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_uses_no_secret_and_only_targets_that_exist(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in path.read_text()
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 300
        commands = [step["run"] for step in job["steps"] if "run" in step]
        assert commands
        used = {target for command in commands for target in re.findall(r"\bmake ([a-z-]+)", command)}
        assert used <= make_targets()


def test_the_workflow_tests_the_versions_of_python_that_the_project_names() -> None:
    tested = read(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    stated = [line.rpartition(" :: ")[2] for line in project()["project"]["classifiers"] if " :: Python :: 3." in line]
    assert tested == stated


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_has_what_its_host_requires(path: Path) -> None:
    form = read(path)
    assert form["name"]
    assert form["description"]
    names = [field["id"] for field in form["body"]]
    assert len(set(names)) == len(names)
    assert all(field["type"] in {"textarea", "input", "dropdown"} for field in form["body"])
    assert all(field["attributes"]["label"] for field in form["body"])


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == fedul.__version__
    assert str(citation["date-released"]) in (ROOT / "CHANGELOG.md").read_text()
    (paper,) = citation["references"]
    assert paper["year"] == 2022
    assert len(paper["authors"]) == 6


def test_the_changelog_has_a_section_for_this_version_below_that_of_the_next() -> None:
    heads = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads[:2] == ["Unreleased", fedul.__version__]


def test_every_extra_is_in_the_table_of_the_documentation_and_has_a_purpose() -> None:
    extras = set(project()["project"]["optional-dependencies"])
    (page,) = (ROOT / "docs").rglob("installation.md")
    rows = dict(re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|", page.read_text(), re.MULTILINE))
    assert set(rows) == extras
    assert set(EXTRAS) == extras - FOR_DEVELOPERS
    assert {name: rows[name] for name in EXTRAS} == EXTRAS
