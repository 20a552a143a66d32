"""What sites say of a classifier without labels, one by one and together."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

import fedul
from fedul.engines.flower.coordinator import coordinate
from fedul.engines.flower.opinion import together
from fedul.files import read_json

from .test_parity import settings
from .wire import Wire, digits_sites

CLASSES = ("a", "b")
ROWS = defaultdict(lambda: 150)


def said(accuracy: float, error: float = 0.03, rows: int = 150, p_value: float | None = 0.5) -> dict[str, float | None]:
    return {"rows": rows, "accuracy": accuracy, "standard_error": error, "p_value": p_value}


def test_sites_that_have_too_little_to_say_do_not_count() -> None:
    assert together({"north": {"rows": 0}}, CLASSES, ROWS) is None
    alone = together({"north": said(0.9)}, CLASSES, ROWS)
    assert together({"north": said(0.9), "south": {"rows": 0}}, CLASSES, ROWS) == alone


@pytest.mark.parametrize(
    "nonsense", [{}, {"rows": "many"}, said(7.0), said(0.9, error=-1), said(0.9, p_value=3), said(0.9, rows=10**12)]
)
def test_an_opinion_that_is_none_does_not_count(nonsense: dict[str, float]) -> None:
    assert together({"north": said(0.9), "west": nonsense}, CLASSES, ROWS) == together(
        {"north": said(0.9)}, CLASSES, ROWS
    )


def test_a_site_that_finds_no_mistake_does_not_outweigh_the_others() -> None:
    found = together({"north": said(1.0, error=0.001), "south": said(0.8)}, CLASSES, ROWS)
    assert found is not None
    assert found["estimated_accuracy"] == pytest.approx(0.9)
    assert found["interval"][0] < 0.85


def test_a_site_whose_sets_do_not_fit_is_named_if_it_is_not_by_chance_among_so_many() -> None:
    sites = {f"site-{number}": said(0.9) for number in range(9)}
    lucky = together({**sites, "west": said(0.9, p_value=0.01)}, CLASSES, ROWS)
    strange = together({**sites, "west": said(0.9, p_value=0.001)}, CLASSES, ROWS)
    assert lucky is not None
    assert strange is not None
    assert lucky["assumption"] == {"p_value": pytest.approx(0.1), "misfits": []}
    assert [each["client"] for each in strange["assumption"]["misfits"]] == ["west"]


def test_what_sites_estimate_is_near_the_truth(tmp_path: Path) -> None:
    run = coordinate(Wire(digits_sites(tmp_path, 5)), settings(tmp_path, 5, rounds=15))
    found = read_json(tmp_path / "run" / "evaluation.json")
    truth = fedul.load("digits", clients=5).truth
    assert truth is not None
    right = run.classifier.predict_proba(truth.test_inputs).argmax(axis=1) == truth.test_labels
    assert found["interval"][0] <= right.mean() <= found["interval"][1]
    assert abs(found["estimated_accuracy"] - right.mean()) < 0.05
