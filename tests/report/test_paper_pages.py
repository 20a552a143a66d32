"""The page of a table says what was run and what not, and sets FedUL against the others."""

from __future__ import annotations

from typing import Any

from scipy.stats import ttest_rel

from fedul.experiments.declaration import Declaration, from_document
from fedul.experiments.runner import Found
from fedul.report.paper_pages import page

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


def table(**changes: Any) -> Declaration:
    return from_document("errors", {**DOCUMENT, **changes}, "paper", {})


def found_of(cell: Any, *errors: float) -> Found:
    return Found(cell, tuple((error,) for error in errors), seconds=20.0)


def test_a_page_has_what_was_run_on_what_how_long_and_what_came_out() -> None:
    declaration = table()
    text = page(declaration, [found_of(declaration.cells[0], 1.0, 2.0, 3.0)], "fedul reproduce errors")
    assert text.startswith("# Table 9: Errors\n\n**What is implemented.** What the paper does not say.\n")
    assert "**Hardware.** " in text
    assert "`fedul reproduce errors`; paper scale, 3 seeds (0 to 2)." in text
    assert "3 runs; 0:01:00 of training in all. Not run: 3 of 4 cells." in text
    assert "| 10 | 2.00 (1.00) | -- |" in text
    assert "*0.78 (0.06)*" in text


def test_the_others_are_set_against_fedul_row_by_row() -> None:
    declaration = table()
    ours, theirs = (2.0, 2.2, 2.1), (9.0, 9.3, 9.1)
    found = [found_of(declaration.cells[0], *ours), found_of(declaration.cells[1], *theirs)]
    text = page(declaration, [*found, found_of(declaration.cells[3], *theirs)], "")
    p_value = ttest_rel(theirs, ours).pvalue
    assert f"| 10 | **+7.03 (p {p_value:.3f})** |" in text
    assert "| 20 | " not in text.partition("## fedul against the others")[2]  # fedul itself has not run there


def test_one_seed_is_not_tested() -> None:
    declaration = table(seeds=1)
    text = page(declaration, [found_of(cell, 1.0) for cell in declaration.cells], "")
    assert "against the others" not in text
    assert "Not run" not in text
    assert "t-test" not in text


def test_a_figure_is_shown() -> None:
    declaration = table(x="sets", rows=["sets"])
    assert "![Errors](figure.svg)" in page(declaration, [], "")
