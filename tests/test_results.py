"""Every table in docs/results follows from the runs that are committed beside it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fedul.experiments.declaration import Declaration, declared
from fedul.experiments.runner import Found, judged
from fedul.report.paper_tables import grid, markdown

RESULTS = Path(__file__).parents[1] / "docs" / "results"
TABLES = sorted((RESULTS / "runs").glob("*.csv"))
METHODS = ("fedul", "fedul-refined")


def read(declaration: Declaration, file: Path) -> list[Found]:
    """What the runs of a table came to, from its CSV."""
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    figures: dict[tuple[str, ...], dict[str, list[float]]] = {}
    labels: dict[tuple[str, ...], int] = {}
    for row in rows:
        place = tuple(row[axis] for axis in declaration.axes)
        figures.setdefault(place, {}).setdefault(row["seed"], []).append(float(row["figure"]))
        labels[place] = int(row["labels_used"])
    found = []
    for cell in declaration.cells:
        place = tuple(cell.values.values())
        if place in figures:
            found.append(Found(cell, tuple(tuple(each) for each in figures[place].values()), labels[place]))
    return judged(declaration, found)


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.stem)
def test_a_committed_table_is_what_its_runs_say(file: Path) -> None:
    name, _, rest = file.stem.partition(".")
    scale, _, data = rest.partition(".")
    declaration = declared(name, scale, {"data": data} if data else {})
    found = read(declaration, file)
    assert found, "no runs"
    declaration = Declaration(**{**vars(declaration), "seeds": len(found[0].figures)})
    assert markdown(grid(declaration, found)) in (RESULTS / f"{file.stem}.md").read_text()


def test_there_are_committed_tables() -> None:
    assert TABLES


def test_the_curve_of_the_papers_network_is_what_its_page_says() -> None:
    page = (RESULTS / "paper-network.md").read_text()
    with (RESULTS / "curves" / "paper-network.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    errors = {m: [f"{100 * float(r['validation_error']):.2f}" for r in rows if r["method"] == m] for m in METHODS}
    assert ", ".join(errors["fedul"]) in page
    assert errors["fedul"][:13] == errors["fedul-refined"][:13]
    assert ", ".join(errors["fedul-refined"][13:]) in page
