"""`fedul reproduce`, as a user types it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from .command import Fedul, refuses

SMALL = "reproduce table1 --scale smoke --only split=iid,data=mnist,sets=10,method=fedul|supervised"


@pytest.mark.slow
def test_every_cell_of_table_1_runs_end_to_end(fedul: Fedul, tmp_path: Path) -> None:
    outcome = fedul("reproduce table1 --scale smoke --out R --json")
    assert outcome.code == 0, outcome.err
    cells = outcome.document["cells"]
    assert len(cells) == 2 * 2 * 3 * 7
    assert all(0 < cell["means"][0] < 100 for cell in cells)
    lines = list(csv.DictReader((tmp_path / "R/table1-smoke/runs.csv").read_text().splitlines()))
    assert len(lines) == len(cells)
    table = (tmp_path / "R/table1-smoke/table.md").read_text()
    assert "*0.78 (0.06)*" in table
    assert "--" not in table.replace("---", "")


def test_a_table_that_is_there_is_shown_and_not_run_again(fedul: Fedul, tmp_path: Path) -> None:
    first, again = (fedul(f"{SMALL} --out R --json") for _ in range(2))
    assert first.document == again.document
    assert "0.78 (0.06)" in fedul(f"{SMALL} --out R").out
    assert len(list((tmp_path / "R/runs").iterdir())) == 2


def test_without_a_name_the_tables_are_listed(fedul: Fedul) -> None:
    listed = fedul("reproduce").out
    assert all(name in listed for name in ("table1", "table2", "noise", "departures"))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("reproduce tabel1", "unknown experiment 'tabel1': did you mean 'table1'"),
        ("reproduce table1 --scale huge", "scale: 'huge' is not one of paper, laptop, smoke"),
        ("reproduce table1 --only data=minst", "unknown data 'minst': did you mean 'mnist'"),
        ("reproduce table1 --data-dir . --only data=cifar10 --scale paper", "cifar10: not on this machine"),
        ("reproduce table1 --data nothing", "unknown data set 'nothing'"),
        ("reproduce table1 --seeds 0", "Invalid value for '--seeds'"),
    ],
)
def test_what_cannot_be_reproduced_is_refused(fedul: Fedul, tmp_path: Path, line: str, complaint: str) -> None:
    refuses(fedul, tmp_path, line, complaint)
