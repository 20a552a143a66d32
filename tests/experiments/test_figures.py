"""Plots: one line per variant, and the same file for the same results."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedul.experiments.comparison_result import VariantResult
from fedul.experiments.figures import _measured_errors, draw_bars, draw_errors
from fedul.experiments.variants import Variant


def result(method: str, *curves: tuple[float | None, ...], **settings: float) -> VariantResult:
    values = tuple((curve[-1] or 0.0,) for curve in curves)
    return VariantResult(variant=Variant(method, method_option=settings), values=values, curves=curves)


RESULTS = [
    result("fedul", (0.5, 0.3, 0.2), (0.4, 0.2, 0.1)),
    result("supervised", (0.3, 0.1, 0.05), (0.2, 0.1, 0.05), labels=0.1),
]


def test_rounds_count_from_one_and_include_only_those_measured_with_every_seed() -> None:
    rounds, errors = _measured_errors(result("fedul", (None, 0.4, None, 0.2), (0.9, 0.6, None, 0.4)))
    assert_array_equal(rounds, [2, 4])
    assert_allclose(errors, [[40, 20], [60, 40]])


def test_an_svg_names_every_variant_as_text(tmp_path: Path) -> None:
    draw_errors(RESULTS, tmp_path / "plot.svg", "digits & more")
    root = ElementTree.fromstring((tmp_path / "plot.svg").read_text())
    words = {"".join(element.itertext()).strip() for element in root.iter() if element.tag.endswith("}text")}
    assert {"fedul", "supervised labels=0.1", "digits & more", "round", "test error (%)"} <= words


def test_a_bar_chart_has_the_number_and_labels_of_every_variant_and_is_readable_on_dark_pages(tmp_path: Path) -> None:
    draw_bars(RESULTS, tmp_path / "bars.svg", "digits & more")
    text = (tmp_path / "bars.svg").read_text()
    root = ElementTree.fromstring(text)
    words = {"".join(element.itertext()).strip() for element in root.iter() if element.tag.endswith("}text")}
    assert {"digits & more", "fedul (0 labels)", "15.00", "supervised labels=0.1 (0 labels)", "5.00"} <= words
    assert "prefers-color-scheme: dark" in text
    draw_bars(RESULTS, tmp_path / "bars.png", "digits & more")
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_png_file_is_a_png(tmp_path: Path) -> None:
    draw_errors(RESULTS, tmp_path / "plot.png", "digits")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_same_results_give_the_same_file(kind: str, tmp_path: Path) -> None:
    for name in ("one", "other"):
        draw_errors(RESULTS, tmp_path / f"{name}.{kind}", "digits")
    assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"other.{kind}").read_bytes()


def test_many_variants_and_errors_of_zero_can_be_drawn(tmp_path: Path) -> None:
    many = [result("fedul", (0.5, 0.1 * i, 0.0), level=i) for i in range(12)]
    draw_errors(many, tmp_path / "plot.svg", "digits")
    assert (tmp_path / "plot.svg").exists()


@pytest.mark.parametrize(
    "results",
    [
        [result("fedul", (None, None))],
        [result("fedul", (None, None)), result("fedllp", (0.5, 0.4))],
    ],
    ids=["of any variant", "of one variant"],
)
def test_a_plot_is_drawn_even_if_no_round_was_measured(results: list[VariantResult], tmp_path: Path) -> None:
    draw_errors(results, tmp_path / "plot.svg", "digits")
    assert (tmp_path / "plot.svg").exists()
