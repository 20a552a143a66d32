"""Error by round, one line for each contestant, as SVG or PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedul.comparison import Result
from fedul.report.drawing import drawing

STYLES = ("-", "--", ":", "-.")


def draw_errors(results: Sequence[Result], path: Path, title: str) -> None:
    """Draws the mean test error over seeds by round, with the range over seeds as a band."""
    with drawing(path, (8, 5)) as axes:
        from matplotlib.ticker import MaxNLocator

        for i, result in enumerate(results):
            rounds, errors = _measured(result)
            if not len(rounds):
                continue
            style = STYLES[(i // 10) % len(STYLES)]
            (line,) = axes.plot(rounds, 100 * errors.mean(0), style, label=result.contestant.title, linewidth=1.6)
            if len(errors) > 1:
                axes.fill_between(
                    rounds, 100 * errors.min(0), 100 * errors.max(0), color=line.get_color(), alpha=0.12, linewidth=0
                )
        axes.set(xlabel="round", ylabel="test error (%)", title=title, yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3, which="both")


def _measured(result: Result) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rounds (R,) in which every seed was measured, and the errors (seeds, R)."""
    table = np.array([[np.nan if e is None else e for e in curve] for curve in result.curves], dtype=float)
    there = ~np.isnan(table).any(axis=0)
    return np.flatnonzero(there) + 1, table[:, there]
