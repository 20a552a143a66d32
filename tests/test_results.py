"""Every table in docs/results follows from the runs that are committed beside it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fedul.experiments.paper import Experiment, load_experiment
from fedul.experiments.paper_cells import CellResult, mark_best_cells
from fedul.experiments.paper_tables import lay_out_table, to_markdown

from .places import ROOT

RESULTS = ROOT / "docs" / "results"
TABLES = sorted((RESULTS / "runs").glob("*.csv"))
METHODS = ("fedul", "fedul-refined")


def read(experiment: Experiment, file: Path) -> list[CellResult]:
    """Read the results of a table from its CSV file."""
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    values: dict[tuple[str, ...], dict[str, list[float]]] = {}
    labels: dict[tuple[str, ...], int] = {}
    for row in rows:
        place = tuple(row[axis] for axis in experiment.axes)
        values.setdefault(place, {}).setdefault(row["seed"], []).append(float(row["figure"]))
        labels[place] = int(row["labels_used"])
    results = []
    for cell in experiment.cells:
        place = tuple(cell.values.values())
        if place in values:
            by_seed = tuple(tuple(each) for each in values[place].values())
            results.append(CellResult(cell=cell, values=by_seed, labels_used=labels[place]))
    return mark_best_cells(experiment, results)


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.stem)
def test_a_committed_table_is_what_its_runs_say(file: Path) -> None:
    name, _, rest = file.stem.partition(".")
    scale, _, data = rest.partition(".")
    experiment = load_experiment(name, scale, {"data": data} if data else {})
    found = read(experiment, file)
    assert found, "no runs"
    ran_on = {result.cell.data.data for result in found}  # not all of the table's data sets may have run
    cells = [cell for cell in experiment.cells if cell.data.data in ran_on]
    experiment = Experiment(**{**vars(experiment), "seeds": len(found[0].values), "cells": cells})
    assert to_markdown(lay_out_table(experiment, found)) in (RESULTS / f"{file.stem}.md").read_text()


def test_there_are_committed_tables() -> None:
    assert TABLES


def held_out_errors(file: Path, method: str) -> list[str]:
    """Return the held-out error of every round in percent, as pages print it."""
    with file.open(newline="") as lines:
        return [f"{100 * float(row['held_out_error']):.2f}" for row in csv.DictReader(lines) if row["method"] == method]


def test_the_page_of_the_papers_network_has_the_errors_of_its_curves() -> None:
    page = " ".join((RESULTS / "paper-network.md").read_text().split())
    errors = {method: held_out_errors(RESULTS / "curves" / "paper-network.csv", method) for method in METHODS}
    assert ", ".join(errors["fedul"]) in page
    assert errors["fedul"][:13] == errors["fedul-refined"][:13]
    assert ", ".join(errors["fedul-refined"][13:]) in page
    in_bfloat16 = held_out_errors(RESULTS / "curves" / "paper-network-bfloat16.csv", "fedul")
    assert len(in_bfloat16) == 30
    assert ", ".join(in_bfloat16) in page
