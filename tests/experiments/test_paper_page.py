"""The page of a table says what was run and what was not, and compares FedUL with the other methods."""

from __future__ import annotations

from typing import Any

from scipy.stats import ttest_rel

from fedul.experiments.cell import Cell
from fedul.experiments.paper import Experiment, build_experiment
from fedul.experiments.paper_cells import CellResult
from fedul.experiments.paper_tables import render_page

DOCUMENT: dict[str, Any] = {
    "title": "Errors",
    "source": "Table 9",
    "note": "What the paper does not say.",
    "rows": ["sets"],
    "columns": ["method"],
    "seeds": 3,
    "axes": {"sets": ["10", "20"], "method": ["fedul", "fedpl"]},
    "settings": {"rounds": 1, "model": "linear", "data": "digits"},
    "published": [{"cells": "sets=10", "fedul": [0.78, 0.06]}],
}


def table(**changes: Any) -> Experiment:
    return build_experiment("errors", {**DOCUMENT, **changes}, "paper", {})


def result_of(cell: Cell, *errors: float) -> CellResult:
    return CellResult(cell=cell, values=tuple((error,) for error in errors), seconds=20.0)


def test_a_page_has_the_command_the_machine_the_time_and_the_table() -> None:
    experiment = table()
    text = render_page(experiment, [result_of(experiment.cells[0], 1.0, 2.0, 3.0)], "fedul reproduce errors")
    assert text.startswith("# Table 9: Errors\n\n**What is implemented.** What the paper does not say.\n")
    assert "**Hardware.** " in text
    assert "`fedul reproduce errors`; paper scale, 3 seeds (0 to 2)." in text
    assert "3 runs; 0:01:00 of training in all. Not run: 3 of 4 cells." in text
    assert "| 10 | 2.00 (1.00) | -- |" in text
    assert "*0.78 (0.06)*" in text


def test_other_methods_are_compared_with_fedul_row_by_row() -> None:
    experiment = table()
    ours, theirs = (2.0, 2.2, 2.1), (9.0, 9.3, 9.1)
    results = [result_of(experiment.cells[0], *ours), result_of(experiment.cells[1], *theirs)]
    text = render_page(experiment, [*results, result_of(experiment.cells[3], *theirs)], "")
    p_value = ttest_rel(theirs, ours).pvalue
    assert f"| 10 | **+7.03 (p {p_value:.3f})** |" in text
    assert "| 20 | " not in text.partition("## fedul compared with the other methods")[2]  # fedul has not run there


def test_one_seed_is_not_tested() -> None:
    experiment = table(seeds=1)
    text = render_page(experiment, [result_of(cell, 1.0) for cell in experiment.cells], "")
    assert "compared with the other methods" not in text
    assert "Not run" not in text
    assert "t-test" not in text


def test_a_figure_is_shown() -> None:
    experiment = table(x="sets", rows=["sets"])
    assert "![Errors](figure.svg)" in render_page(experiment, [], "")
