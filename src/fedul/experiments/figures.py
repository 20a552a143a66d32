"""Plots of comparisons and of reproduced figures, as SVG or PNG. Equal results give equal files."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedul._utils.files import write_bytes
from fedul.plotting import COLOURS, styled

if TYPE_CHECKING:
    from fedul.experiments.comparison_result import VariantResult
    from fedul.experiments.paper import Experiment
    from fedul.experiments.paper_cells import CellResult

LINE_STYLES = ("-", "--", ":", "-.")
INK, INK_ON_DARK = "#24292f", "#e6edf3"
"""Colour of text and lines of a plot without background, on light and on dark pages."""
BAR, BAR_WITH_LABELS = "#2f81f7", "#8b949e"
PUBLISHED_OFFSET = 0.08
"""Distance of published points from ours, so that error bars do not cover each other."""


def draw_errors(results: Sequence[VariantResult], path: Path, title: str) -> None:
    """Draw the mean test error by round, one line per variant, with the range over seeds as a band."""
    with _axes(path, (8, 5)) as axes:
        from matplotlib.ticker import MaxNLocator

        for i, result in enumerate(results):
            rounds, errors = _measured_errors(result)
            if len(rounds):
                style = LINE_STYLES[(i // len(COLOURS)) % len(LINE_STYLES)]
                (line,) = axes.plot(rounds, errors.mean(0), style, label=result.variant.title)
                if len(errors) > 1:
                    band = {"color": line.get_color(), "alpha": 0.12, "linewidth": 0}
                    axes.fill_between(rounds, errors.min(0), errors.max(0), **band)
        axes.set(xlabel="round", ylabel="test error (%)", title=title, yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(which="minor")


def draw_measures(results: Sequence[VariantResult], path: Path, title: str) -> None:
    """Draw what was measured of each variant: a point per seed, and the mean as a line; the best on top."""
    ordered = sorted(results, key=lambda result: -result.mean)
    with _axes(path, (7, 1.5 + 0.4 * len(ordered))) as axes:
        for place, result in enumerate(ordered):
            scale = result.measure.scale
            axes.plot([scale * value for value in result.by_seed], [place] * len(result.by_seed), "o", color="C0")
            axes.plot([scale * result.mean], [place], "|", color="black", markersize=16)
        axes.set_yticks(range(len(ordered)), [result.variant.title for result in ordered])
        axes.set(xlabel=results[0].measure.heading, title=title)


def draw_bars(results: Sequence[VariantResult], path: Path, title: str) -> None:
    """Draw the mean of every variant as a bar with its number, and those that used labels in another colour.

    The plot has no background. As SVG it has light text on a page that the reader's system shows dark.
    """
    names = [f"{result.variant.title} ({result.labels_used:,} labels)" for result in results]
    values = [result.measure.scale * result.mean for result in results]
    colours = [BAR_WITH_LABELS if result.labels_used else BAR for result in results]
    with _axes(path, (7.5, 0.8 + 0.36 * len(results)), see_through=True) as axes:
        bars = axes.barh(names, values, color=colours, height=0.66)
        axes.bar_label(bars, [f"{value:.{results[0].measure.decimals}f}" for value in values], padding=4, color=INK)
        axes.invert_yaxis()
        axes.margins(x=0.1)
        axes.set_title(title, loc="left", color=INK, fontsize="medium")
        axes.set_xlabel(results[0].measure.heading, color=INK)
        axes.tick_params(colors=INK, length=0)
        axes.spines[:].set_visible(False)


def draw_experiment(experiment: Experiment, results: Sequence[CellResult], path: Path) -> None:
    """Draw a reproduced figure: ours with error bars over seeds, and the published points beside them."""
    x = experiment.x or experiment.rows[-1]
    positions = {value: position for position, value in enumerate(experiment.axes[x])}
    varied = [axis for axis, values in experiment.axes.items() if axis != x and len(values) > 1]
    lines: dict[str, list[CellResult]] = {}
    for result in sorted(results, key=lambda result: positions[result.cell.values[x]]):
        name = ", ".join(experiment.label(result.cell.values[axis]) for axis in varied)
        lines.setdefault(name or "ours", []).append(result)
    with _axes(path, (7, 4.5)) as axes:
        for i, (name, line) in enumerate(lines.items()):
            style = {"color": f"C{i}", "capsize": 3}
            places = [positions[result.cell.values[x]] for result in line]
            means, deviations = [result.means[0] for result in line], [result.deviations[0] for result in line]
            axes.errorbar(places, means, deviations, marker="o", label=name, **style)
            points = [
                (at, result.cell.published[0]) for at, result in zip(places, line, strict=True) if result.cell.published
            ]
            if points:
                at = [position + PUBLISHED_OFFSET for position, _ in points]
                published, spread = zip(*(pair for _, pair in points), strict=True)
                axes.errorbar(at, published, spread, marker="x", ls=":", alpha=0.6, label=f"{name}, published", **style)
        axes.set_xticks(list(positions.values()), [experiment.label(value) for value in positions])
        axes.set(xlabel=x.replace("_", " "), ylabel=f"error ({experiment.unit})", title=experiment.title)


def _measured_errors(result: VariantResult) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the rounds (R,) in which every seed was measured, and the errors in % (seeds, R)."""
    curves = np.array(result.curves, dtype=float)  # None becomes NaN
    measured = ~np.isnan(curves).any(axis=0)
    return np.flatnonzero(measured) + 1, 100 * curves[:, measured]


@contextmanager
def _axes(path: Path, size: tuple[float, float], *, see_through: bool = False) -> Iterator[Any]:
    """Yield axes to draw on, then write the plot in the format that the suffix names, as SVG without background."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns about a home folder without a cache

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with styled():
        figure = Figure(figsize=size)
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        yield axes
        if axes.get_legend_handles_labels()[0]:  # empty with --evaluate-every 0
            axes.legend()
        content = io.BytesIO()
        kind = path.suffix.lstrip(".")
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(content, format=kind, dpi=150, metadata=metadata, transparent=see_through and kind == "svg")
    write_bytes(path, _with_dark_ink(content.getvalue()) if see_through and kind == "svg" else content.getvalue())


def _with_dark_ink(svg: bytes) -> bytes:
    """Return an SVG whose ink is light where the page is dark."""
    rules = "".join(f'[style*="{kind}: {INK}"] {{ {kind}: {INK_ON_DARK} !important }}' for kind in ("fill", "stroke"))
    style = f"<style>@media (prefers-color-scheme: dark) {{ {rules} }}</style>"
    return svg.replace(b"<defs>", f"{style}\n<defs>".encode(), 1)
