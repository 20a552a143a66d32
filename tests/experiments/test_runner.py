"""A table is run cell by cell, once; and says what came out in the paper's form."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_allclose

from fedul.errors import InputError
from fedul.experiments import runner
from fedul.experiments.declaration import Cell, Declaration, from_document
from fedul.experiments.runner import Found, figures, finished, judged, reproduce
from fedul.report.paper_figures import draw_figure
from fedul.report.paper_tables import comma_separated, grid, latex, markdown

from ..watching import Witness

DOCUMENT: dict[str, Any] = {
    "title": "Errors",
    "source": "Table 9",
    "rows": ["sets"],
    "columns": ["method"],
    "seeds": 2,
    "axes": {"sets": ["10", "12"], "method": ["fedul", "supervised"]},
    "settings": {"rounds": 1, "model": "linear", "data": "digits"},
    "published": [{"cells": "sets=10", "fedul": [0.78, 0.06]}],
}


def table(**changes: Any) -> Declaration:
    return from_document("errors", {**DOCUMENT, **changes}, "paper", {})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Found]]:
    folder = tmp_path_factory.mktemp("reproduced")
    return folder, list(reproduce(table(), folder, Witness()))


def test_cells_come_in_the_order_of_the_table_with_a_figure_for_each_seed(done: tuple[Path, list[Found]]) -> None:
    _, found = done
    assert [tuple(one.cell.values.values()) for one in found] == [
        ("10", "fedul"),
        ("10", "supervised"),
        ("12", "fedul"),
        ("12", "supervised"),
    ]
    assert all(len(one.figures) == 2 and 0 < one.means[0] < 100 for one in found)
    assert [one.labels_used > 0 for one in found] == [False, True] * 2


def test_runs_that_are_there_are_not_repeated(done: tuple[Path, list[Found]]) -> None:
    folder, found = done
    again = Witness()
    assert list(reproduce(table(), folder, again)) == found
    assert again.seen == []


def test_more_seeds_add_to_what_is_there(done: tuple[Path, list[Found]]) -> None:
    folder, found = done
    watcher = Witness()
    more = list(reproduce(replace(table(), seeds=3).only("sets=10,method=fedul"), folder, watcher))
    assert watcher.seen == [(3, 3, "10, fedul, seed 2")]
    assert more[0].figures[:2] == found[0].figures


def test_a_table_that_is_stopped_goes_on_and_ends_as_it_would_have(
    done: tuple[Path, list[Found]], tmp_path: Path
) -> None:
    stopped, rest = Witness(stop_at=4), Witness()
    with pytest.raises(KeyboardInterrupt):
        list(reproduce(table(), tmp_path, stopped))
    found = list(reproduce(table(), tmp_path, rest))
    assert len(stopped.seen) + len(rest.seen) == 8
    assert [one.figures for one in found] == [one.figures for one in done[1]]


def test_a_damaged_result_is_named_and_can_be_made_again(tmp_path: Path) -> None:
    small = replace(table(), seeds=1).only("sets=10,method=fedul")
    (before,) = reproduce(small, tmp_path, Witness())
    (file,) = tmp_path.glob("runs/*/result.json")
    good = json.loads(file.read_text())
    wrong: list[dict[str, Any]] = [
        {"test_error_clients": value} for value in ("abc", None, math.nan, math.inf, True, 77, -0.1, [])
    ]
    wrong += [{"labels_used": -5}, {"labels_used": 1e400}, {"seconds": math.nan}]
    contents = ['{"rounds": 1}', "", "{", "[" * 100_000, *(json.dumps({**good, **each}) for each in wrong)]
    for content in contents:
        file.write_text(content)
        assert finished(small, tmp_path) == []
        with pytest.raises(InputError, match=r"result\.json: damaged; delete it, and the run will write it again"):
            list(reproduce(small, tmp_path, Witness()))
    file.unlink()
    (again,) = reproduce(small, tmp_path, Witness())
    assert again.figures == before.figures


def test_what_others_have_run_is_in_the_table_too(done: tuple[Path, list[Found]]) -> None:
    assert finished(table(), done[0]) == done[1]
    assert finished(replace(table(), seeds=9), done[0]) == []


def test_errors_are_in_per_cent_and_may_be_one_for_each_client() -> None:
    result = {"test_error_clients": 0.02, "test_errors": [0.01, 0.03], "seconds": 12.0, "rounds": 4}
    assert figures(result, "test_error_clients") == (2.0,)
    assert figures(result, "test_errors") == (1.0, 3.0)
    assert figures(result, "seconds_a_round") == (3.0,)


def found_of(cell: Cell, *errors: float, labels_used: int = 0) -> Found:
    return Found(cell, tuple((error,) for error in errors), labels_used)


def test_the_best_without_labels_is_marked_and_what_is_not_significantly_worse() -> None:
    cells = table(axes={"sets": ["10"], "method": ["fedul", "fedllp", "fedpl", "supervised"]}).cells
    found = [
        found_of(cells[0], 2.0, 2.2, 2.1),
        found_of(cells[1], 2.1, 2.1, 2.3),
        found_of(cells[2], 9.0, 9.3, 9.1),
        found_of(cells[3], 1.0, 1.1, 1.0, labels_used=100),
    ]
    assert [one.marked for one in judged(table(), found)] == [True, True, False, False]


def test_where_means_are_the_same_all_are_best_and_one_alone_is_not() -> None:
    cells = table(axes={"sets": ["10"], "method": ["fedul", "fedllp", "fedpl", "supervised"]}).cells
    same = [found_of(cells[0], 2.0), found_of(cells[1], 2.0), found_of(cells[2], 3.0)]
    assert [one.marked for one in judged(table(), same)] == [True, True, False]
    assert [one.marked for one in judged(table(), same[:1])] == [False]


def test_means_and_deviations_are_over_seeds() -> None:
    one = Found(table().cells[0], ((1.0, 5.0), (3.0, 5.0)))
    assert one.means == [2.0, 5.0]
    assert_allclose(one.deviations, [2**0.5, 0.0])
    assert found_of(table().cells[0], 1.0).deviations == [0.0]


def test_tables_have_ours_beside_the_published_and_say_what_was_not_run() -> None:
    declaration = table()
    found = [replace(found_of(declaration.cells[0], 1.0, 2.0), marked=True)]
    made = grid(declaration, found)
    text = markdown(made)
    assert "| 10 | **1.50 (0.71)** | -- |" in text
    assert "| *published* | *0.78 (0.06)* |  |" in text
    assert r"10 & \textbf{1.50 (0.71)} & -- \\" in latex(made)
    assert comma_separated(declaration, found).splitlines() == [
        "sets,method,ran_on,seed,client,metric,figure,labels_used,published_mean,published_std",
        "10,fedul,digits,0,,test_error_clients,1,0,0.78,0.06",
        "10,fedul,digits,1,,test_error_clients,2,0,0.78,0.06",
    ]


def test_a_figure_is_drawn_with_what_was_published(tmp_path: Path) -> None:
    declaration = table(x="sets", series=["method"])
    found = [found_of(cell, 1.0 + i, 2.0) for i, cell in enumerate(declaration.cells)]
    draw_figure(declaration, found, tmp_path / "figure.svg")
    picture = (tmp_path / "figure.svg").read_text()
    assert "fedul, published" in picture
    draw_figure(declaration, found, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == picture


def test_data_that_are_not_on_this_machine_are_named(tmp_path: Path) -> None:
    elsewhere = from_document("errors", DOCUMENT, "paper", {"data": "mnist", "data_dir": str(tmp_path)})
    assert runner.missing_data(elsewhere) == ["mnist"]
    assert runner.missing_data(table()) == []
