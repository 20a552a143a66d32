"""Every cell of a table is run once, and results are printed in the layout of the paper."""

from __future__ import annotations

import json
import math
import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_allclose

from fedul.errors import InputError
from fedul.experiments.cell import Cell
from fedul.experiments.figures import draw_experiment
from fedul.experiments.paper import Experiment, build_experiment
from fedul.experiments.paper_cells import CellResult, finished_cells, mark_best_cells, measure, run_cells
from fedul.experiments.paper_tables import lay_out_table, to_csv, to_latex, to_markdown
from fedul.experiments.reproduce import missing_data, reproduce
from fedul.training import DataCounts, RunResult

from ..callbacks import Recorder

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


def table(**changes: Any) -> Experiment:
    return build_experiment("errors", {**DOCUMENT, **changes}, "paper", {})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[CellResult]]:
    folder = tmp_path_factory.mktemp("reproduced")
    return folder, list(run_cells(table(), folder, Recorder()))


def test_cells_have_the_order_of_the_table_and_one_value_per_seed(done: tuple[Path, list[CellResult]]) -> None:
    _, found = done
    assert [tuple(one.cell.values.values()) for one in found] == [
        ("10", "fedul"),
        ("10", "supervised"),
        ("12", "fedul"),
        ("12", "supervised"),
    ]
    assert all(len(one.values) == 2 and 0 < one.means[0] < 100 for one in found)
    assert [one.labels_used > 0 for one in found] == [False, True] * 2


def test_finished_runs_are_not_repeated(done: tuple[Path, list[CellResult]]) -> None:
    folder, found = done
    again = Recorder()
    assert list(run_cells(table(), folder, again)) == found
    assert again.started == []


def test_more_seeds_add_to_the_finished_ones(done: tuple[Path, list[CellResult]]) -> None:
    folder, found = done
    recorder = Recorder()
    more = list(run_cells(replace(table(), seeds=3).select("sets=10,method=fedul"), folder, recorder))
    assert recorder.started == [(3, 3, "10, fedul, seed 2")]
    assert more[0].values[:2] == found[0].values


def test_an_interrupted_table_continues_with_the_same_results(
    done: tuple[Path, list[CellResult]], tmp_path: Path
) -> None:
    stopped, rest = Recorder(stop_at=4), Recorder()
    with pytest.raises(KeyboardInterrupt):
        list(run_cells(table(), tmp_path, stopped))
    found = list(run_cells(table(), tmp_path, rest))
    assert len(stopped.started) + len(rest.started) == 8
    assert [one.values for one in found] == [one.values for one in done[1]]


def test_a_damaged_result_is_named_and_can_be_repeated(tmp_path: Path) -> None:
    small = replace(table(), seeds=1).select("sets=10,method=fedul")
    (before,) = run_cells(small, tmp_path, Recorder())
    (file,) = tmp_path.glob("runs/*/result.json")
    good = json.loads(file.read_text())
    wrong: list[dict[str, Any]] = [
        {"test_error_clients": value} for value in ("abc", None, math.nan, math.inf, True, 77, -0.1, [])
    ]
    wrong += [{"labels_used": -5}, {"labels_used": 1e400}, {"seconds": math.nan}]
    contents = ['{"rounds": 1}', "", "{", "[" * 100_000, *(json.dumps({**good, **each}) for each in wrong)]
    for content in contents:
        file.write_text(content)
        assert finished_cells(small, tmp_path) == []
        with pytest.raises(InputError, match=r"result\.json: damaged; delete it, and the run will write it again"):
            list(run_cells(small, tmp_path, Recorder()))
    file.unlink()
    (again,) = run_cells(small, tmp_path, Recorder())
    assert again.values == before.values


def test_cells_that_other_processes_ran_are_found(done: tuple[Path, list[CellResult]]) -> None:
    assert finished_cells(table(), done[0]) == done[1]
    assert finished_cells(replace(table(), seeds=9), done[0]) == []


def test_errors_are_in_per_cent_and_may_be_one_per_client() -> None:
    result = RunResult(
        rounds=4,
        selected_round=4,
        held_out_loss=None,
        labels_used=0,
        weights_sha256="",
        data=DataCounts(2, 4, 100, 20),
        seconds=12.0,
        test_error_clients=0.02,
        test_errors=(0.01, 0.03),
    )
    assert measure(result, "test_error_clients") == (2.0,)
    assert measure(result, "test_errors") == (1.0, 3.0)
    assert measure(result, "seconds_per_round") == (3.0,)


def result_of(cell: Cell, *errors: float, labels_used: int = 0) -> CellResult:
    return CellResult(cell=cell, values=tuple((error,) for error in errors), labels_used=labels_used)


def test_the_best_without_labels_and_all_not_significantly_worse_are_marked() -> None:
    cells = table(axes={"sets": ["10"], "method": ["fedul", "fedllp", "fedpl", "supervised"]}).cells
    found = [
        result_of(cells[0], 2.0, 2.2, 2.1),
        result_of(cells[1], 2.1, 2.1, 2.3),
        result_of(cells[2], 9.0, 9.3, 9.1),
        result_of(cells[3], 1.0, 1.1, 1.0, labels_used=100),
    ]
    assert [one.best for one in mark_best_cells(table(), found)] == [True, True, False, False]


def test_equal_means_are_all_best_and_a_single_method_is_not() -> None:
    cells = table(axes={"sets": ["10"], "method": ["fedul", "fedllp", "fedpl", "supervised"]}).cells
    same = [result_of(cells[0], 2.0), result_of(cells[1], 2.0), result_of(cells[2], 3.0)]
    assert [one.best for one in mark_best_cells(table(), same)] == [True, True, False]
    assert [one.best for one in mark_best_cells(table(), same[:1])] == [False]


def test_means_and_deviations_are_over_seeds() -> None:
    one = CellResult(cell=table().cells[0], values=((1.0, 5.0), (3.0, 5.0)))
    assert one.means == [2.0, 5.0]
    assert_allclose(one.deviations, [2**0.5, 0.0])
    assert result_of(table().cells[0], 1.0).deviations == [0.0]


def test_tables_have_published_numbers_and_show_which_cells_have_not_run() -> None:
    experiment = table()
    found = [replace(result_of(experiment.cells[0], 1.0, 2.0), best=True)]
    layout = lay_out_table(experiment, found)
    text = to_markdown(layout)
    assert "| 10 | **1.50 (0.71)** | -- |" in text
    assert "| *published* | *0.78 (0.06)* |  |" in text
    assert r"10 & \textbf{1.50 (0.71)} & -- \\" in to_latex(layout)
    assert to_csv(experiment, found).splitlines() == [
        "sets,method,ran_on,seed,client,metric,figure,labels_used,published_mean,published_std",
        "10,fedul,digits,0,,test_error_clients,1,0,0.78,0.06",
        "10,fedul,digits,1,,test_error_clients,2,0,0.78,0.06",
    ]


def test_a_figure_shows_published_numbers(tmp_path: Path) -> None:
    experiment = table(x="sets", series=["method"])
    found = [result_of(cell, 1.0 + i, 2.0) for i, cell in enumerate(experiment.cells)]
    draw_experiment(experiment, found, tmp_path / "figure.svg")
    picture = (tmp_path / "figure.svg").read_text()
    assert "fedul, published" in picture
    draw_experiment(experiment, found, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == picture


def test_data_sets_that_are_missing_are_named(tmp_path: Path) -> None:
    elsewhere = build_experiment("errors", DOCUMENT, "paper", {"data": "mnist", "data_dir": str(tmp_path)})
    assert missing_data(elsewhere) == ["mnist"]
    assert missing_data(table()) == []


def test_a_reproduction_in_python_writes_files_and_prints_as_a_table(tmp_path: Path) -> None:
    only, recorder, lines = "split=iid,data=mnist,sets=10,method=fedul|supervised", Recorder(), list[str]()
    result = reproduce(
        "table1",
        scale="smoke",
        only=only,
        settings={"batch-size": "all"},
        out=tmp_path,
        callbacks=[recorder],
        on_cell=lambda experiment, cell: lines.append(cell.cell.values["method"]),
    )
    assert lines == ["fedul", "supervised"]
    assert len(recorder.ended) == 2
    assert result.folder == tmp_path / "table1-smoke-batch-size=all"
    names = {file.name for file in result.folder.iterdir()}
    assert names == {"page.md", "table.md", "table.tex", "runs.csv"}
    assert "0.78 (0.06)" in repr(result)
    assert [cell["cell"]["method"] for cell in result.to_dict()["cells"]] == lines


def test_an_exception_while_a_table_is_run_leaves_no_process(tmp_path: Path) -> None:
    def fail(experiment: Experiment, result: CellResult) -> None:
        raise ZeroDivisionError

    only = "split=iid,data=mnist,sets=10,method=fedul|fedllp|fedpl"
    with pytest.raises(ZeroDivisionError) as caught:
        reproduce("table1", scale="smoke", only=only, jobs=2, out=tmp_path, callbacks=[Recorder()], on_cell=fail)
    assert caught.tb is not None  # keeps the frames alive, as an interactive session does
    assert multiprocessing.active_children() == []
