"""Small charts as inline SVG, in the colours of the page: lines by round, a scatter, an interval, a bar.

A chart says in `<title>` and `<desc>` what it shows; lines and points differ by dashes and shapes, not by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedul.report.markup import Html, element

WIDTH, HEIGHT = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 34, 40
MOST_POINTS = 600
"""Lines of more points are thinned: nobody sees the others."""


@dataclass(frozen=True)
class Line:
    """A figure by round."""

    label: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """One direction of a chart: from values to places."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers within a range.

    >>> ticks(0, 20), ticks(1.24, 1.33)
    ([0.0, 5.0, 10.0, 15.0, 20.0], [1.24, 1.26, 1.28, 1.3, 1.32])
    """
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def line_chart(
    name: str,
    title: str,
    description: str,
    lines: Sequence[Line],
    *,
    written: Callable[[float], str],
    marked: float | None = None,
    from_zero: bool = False,
) -> Html:
    """Lines by round, with the round that is delivered marked."""
    rounds = [x for line in lines for x, _ in line.points]
    values = [y for line in lines for _, y in line.points]
    first, last = min(rounds), max(rounds)
    low, high = (0.0 if from_zero else min(values)), max(values)
    room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    x = Axis(first, last if last > first else first + 1, LEFT + 6, WIDTH - RIGHT)
    y = Axis(low if from_zero else low - room, high + room, HEIGHT - BOTTOM, TOP)
    whole = [tick for tick in ticks(x.low, x.high) if tick == int(tick)]
    places = whole if first in whole else [first, *whole]
    parts = [*_across(y, written, x), *_along(x, places, lambda value: f"{value:g}")]
    parts.append(element("text", "round", x=(x.start + x.end) / 2, y=HEIGHT - 4, text_anchor="middle"))
    if marked is not None and first <= marked <= last:
        parts += _mark(x, marked)
    for i, line in enumerate(lines):
        parts += _drawn(line, i, x, y)
    return _picture(name, title, description, parts, HEIGHT)


def scatter(name: str, title: str, description: str, points: Sequence[tuple[float, float, float, bool]]) -> Html:
    """Stated and predicted shares, with whiskers of two standard errors; those that are far off are diamonds."""
    side = WIDTH - LEFT - RIGHT
    height = TOP + side + BOTTOM
    most = min(1.0, max([max(px, py) for px, py, _, _ in points]) * 1.08 + 0.02)
    x, y = Axis(0, most, LEFT, WIDTH - RIGHT), Axis(0, most, TOP + side, TOP)
    parts = [*_across(y, _whole_percent, x), *_along(x, ticks(0, most), _whole_percent, height)]
    parts.append(element("line", x1=x(0), y1=y(0), x2=x(most), y2=y(most), class_="guide"))
    parts.append(element("text", "stated (%)", x=(x.start + x.end) / 2, y=height - 4, text_anchor="middle"))
    parts.append(element("text", "predicted (%)", x=4, y=14))
    parts.append(element("path", d=_diamond(WIDTH - 178, 10), class_="far"))
    parts.append(element("text", "more than 2 std. errors off", x=WIDTH - 168, y=14))
    for px, py, error, far in points:
        top, bottom = (min(max(py + sign * 2 * error, 0.0), most) for sign in (1, -1))
        parts.append(element("line", x1=x(px), y1=y(top), x2=x(px), y2=y(bottom), class_="whisker"))
        at = x(px), y(py)
        parts.append(
            element("path", d=_diamond(*at), class_="far")
            if far
            else element("circle", cx=at[0], cy=at[1], r=3.2, class_="point")
        )
    return _picture(name, title, description, parts, height)


def interval_mark(value: float | None, low: float | None, high: float | None) -> Html:
    """A share from 0 to 1 as a dot with its interval; screen readers have the numbers beside it."""
    x = Axis(0, 1, 3, 117)
    parts = [element("line", x1=x(0), y1=8, x2=x(1), y2=8, class_="grid")]
    parts += [element("line", x1=x(end), y1=5, x2=x(end), y2=11, class_="grid") for end in (0, 0.5, 1)]
    if low is not None and high is not None:
        ends = [x(min(max(end, 0.0), 1.0)) for end in (low, high)]
        parts.append(element("line", x1=ends[0], y1=8, x2=ends[1], y2=8, class_="range"))
    if value is not None:
        parts.append(element("circle", cx=x(min(max(value, 0.0), 1.0)), cy=8, r=3.5, class_="dot"))
    return element("svg", parts, viewBox="0 0 120 16", class_="mark", aria_hidden="true")


def bar(share: float) -> Html:
    """A share from 0 to 1 as a bar; screen readers have the number beside it."""
    width = 114 * min(max(share, 0.0), 1.0)
    parts = [
        element("rect", x=3, y=4, width=114, height=8, class_="trough"),
        element("rect", x=3, y=4, width=width, height=8, class_="bar"),
    ]
    return element("svg", parts, viewBox="0 0 120 16", class_="mark", aria_hidden="true")


def _picture(name: str, title: str, description: str, parts: Sequence[Html], height: float) -> Html:
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", description, id=f"{name}-desc"),
        parts,
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-desc",
        class_="chart",
    )


def _across(y: Axis, written: Callable[[float], str], x: Axis) -> list[Html]:
    parts = []
    for tick in ticks(y.low, y.high):
        parts.append(element("line", x1=LEFT, y1=y(tick), x2=x.end, y2=y(tick), class_="grid"))
        parts.append(element("text", written(tick), x=LEFT - 6, y=y(tick) + 4, text_anchor="end"))
    return parts


def _along(x: Axis, places: Sequence[float], written: Callable[[float], str], height: float = HEIGHT) -> list[Html]:
    return [element("text", written(tick), x=x(tick), y=height - BOTTOM + 16, text_anchor="middle") for tick in places]


def _mark(x: Axis, marked: float) -> list[Html]:
    late = x(marked) > (x.start + x.end) / 2
    return [
        element("line", x1=x(marked), y1=TOP, x2=x(marked), y2=HEIGHT - BOTTOM, class_="chosen"),
        element(
            "text",
            f"round {marked:g} is delivered",
            x=x(marked) - 5 if late else x(marked) + 5,
            y=TOP + 12,
            text_anchor="end" if late else "start",
        ),
    ]


def _drawn(line: Line, place: int, x: Axis, y: Axis) -> list[Html]:
    """The line, and its entry in the legend above."""
    stride = math.ceil(len(line.points) / MOST_POINTS)
    points = [*line.points[:-1:stride], line.points[-1]]
    at = LEFT + 6 + place * 160
    path = " ".join(f"{x(px):.1f},{y(py):.1f}" for px, py in points)
    parts = [
        element("polyline", points=path, class_=f"line line{place}"),
        element("line", x1=at, y1=12, x2=at + 26, y2=12, class_=f"line line{place}"),
        element("text", line.label, x=at + 32, y=16),
    ]
    if len(points) == 1:  # a line of one point cannot be seen
        parts.append(element("circle", cx=x(points[0][0]), cy=y(points[0][1]), r=3.2, class_="dot"))
    return parts


def _diamond(x: float, y: float, size: float = 5.0) -> str:
    return f"M{x:.1f} {y - size:.1f}L{x + size:.1f} {y:.1f}L{x:.1f} {y + size:.1f}L{x - size:.1f} {y:.1f}Z"


def _whole_percent(share: float) -> str:
    return f"{100 * share:.3g}"
