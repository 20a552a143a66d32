"""The page of simulation speed has the tables of the measurements beside it."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from ..places import ROOT

RESULTS = ROOT / "docs" / "results"


def test_the_tables_of_the_page_are_those_of_the_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    for name in ("_measure", "speed_report"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    report = importlib.import_module("speed_report")
    document = json.loads((RESULTS / "speed.json").read_text())
    page = (RESULTS / "speed.md").read_text()
    tables = report.markdown_tables(document)
    assert {"mlp-200", "cifar", "paper-cnn"} <= tables.keys()
    for name, table in tables.items():
        assert table in page, name
    for results in document["comparisons"].values():
        assert report.fault_sentence(results) in " ".join(page.split())
