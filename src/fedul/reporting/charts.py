"""Geometry of the report's charts: axes, ticks and paths. The template `charts.html.j2` draws them as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedul._utils.display import counted
from fedul.core import RoundMetrics
from fedul.evaluation.document import SetCalibration
from fedul.reporting.wording import number

WIDTH = 400
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 34, 40
MAX_POINTS = 600
"""Lines of more points are thinned; on a page the others cannot be seen."""
MAX_SETS = 1500


@dataclass(frozen=True)
class Line:
    """A metric by round."""

    label: str
    points: Sequence[tuple[int, float]]

    @classmethod
    def of(cls, label: str, history: Sequence[RoundMetrics], metric: str) -> Line:
        """Return the finite values of a metric."""
        pairs = [(metrics.round, getattr(metrics, metric)) for metrics in history]
        return cls(label, [(round, value) for round, value in pairs if value is not None and math.isfinite(value)])


@dataclass(frozen=True)
class Axis:
    """One direction of a chart: maps values to positions."""

    low: float
    high: float
    start: int
    end: int

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)


class LineChart:
    """Lines by round, with the round that is delivered marked.

    Parameters
    ----------
    name : str
        Prefix of the ids in the page.
    caption : str
        Text below the chart.
    lines : sequence of Line
        At least one line, each with at least one point.
    marked : int or None
        The round that is delivered.
    share : bool
        Whether values are shares: the axis starts at zero and shows percentages.
    """

    width, height, x_title = WIDTH, 250, "round"

    def __init__(self, name: str, caption: str, lines: Sequence[Line], marked: int | None, *, share: bool) -> None:
        self.name, self.caption, self.lines = name, caption, lines
        self.title = "Test error by round" if share else "Loss by round"
        self.description = " ".join(_describe(line, "error" if share else "loss") for line in lines)
        rounds = [x for line in lines for x, _ in line.points]
        values = [y for line in lines for _, y in line.points]
        first, last = min(rounds), max(rounds)
        low, high = (0.0 if share else min(values)), max(values)
        margin = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
        self.x = Axis(first, max(last, first + 1), LEFT, WIDTH - RIGHT)
        self.y = Axis(low if share else low - margin, high + margin, self.height - BOTTOM, TOP)
        whole = [int(tick) for tick in ticks(self.x.low, self.x.high) if tick == int(tick)]
        self.x_ticks = whole if first in whole else [first, *whole]
        self.y_ticks = ticks(self.y.low, self.y.high)
        self.x_text, self.y_text = str, _percent if share else number
        self.marked = marked if marked is not None and first <= marked <= last else None

    def path(self, line: Line) -> str:
        """Return the points of a line as SVG has them."""
        stride = math.ceil(len(line.points) / MAX_POINTS)
        points = [*line.points[:-1:stride], line.points[-1]]
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)


class Scatter:
    """Stated and predicted class shares of the sets."""

    name, title, x_title = "calibration-chart", "Predicted and stated class shares of the sets", "stated (%)"
    width, height = WIDTH, TOP + WIDTH - LEFT - RIGHT + BOTTOM

    def __init__(self, lines: Sequence[SetCalibration]) -> None:
        far = sum(line.distance > 2 for line in lines)
        self.description = (
            f"{far:,} of {counted(len(lines), 'share')} differ by more than two standard errors; by chance alone about "
            f"{0.05 * len(lines):.0f} would."
        )
        self.points = lines[:: -(-len(lines) // MAX_SETS)]
        most = min(1.0, max(max(point.stated, point.predicted) for point in self.points) * 1.08 + 0.02)
        self.x, self.y = Axis(0, most, LEFT, WIDTH - RIGHT), Axis(0, most, self.height - BOTTOM, TOP)
        self.x_ticks = self.y_ticks = ticks(0, most)
        self.x_text = self.y_text = _percent


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers within a range.

    Examples
    --------
    >>> ticks(0, 20), ticks(1.24, 1.33)
    ([0.0, 5.0, 10.0, 15.0, 20.0], [1.24, 1.26, 1.28, 1.3, 1.32])
    """
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _describe(line: Line, what: str) -> str:
    """Return the course of a line in one sentence, for readers who do not see it."""
    (first, start), (last, end) = line.points[0], line.points[-1]
    low, at = min((y, x) for x, y in line.points)
    return (
        f"On {line.label} the {what} goes from {number(start)} in round {first} to {number(end)} in round {last}; "
        f"it is lowest, {number(low)}, in round {at}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g}"
