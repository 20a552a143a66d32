"""A reproduced figure: ours with error bars over seeds, and the published points beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedul.experiments.declaration import Declaration
from fedul.experiments.runner import Found
from fedul.report.drawing import drawing

ASIDE = 0.08
"""How far published points stand beside ours, so that error bars can be told apart."""


def draw_figure(declaration: Declaration, found: Sequence[Found], path: Path) -> None:
    """Draws a line for each combination of what is not on the axis."""
    x = declaration.x or declaration.rows[-1]
    order = {value: place for place, value in enumerate(declaration.axes[x])}
    varied = [axis for axis, values in declaration.axes.items() if axis != x and len(values) > 1]
    lines: dict[str, list[Found]] = {}
    for one in sorted(found, key=lambda one: order[one.cell.values[x]]):
        name = ", ".join(declaration.label(one.cell.values[axis]) for axis in varied)
        lines.setdefault(name or "ours", []).append(one)
    with drawing(path, (7, 4.5)) as axes:
        for i, (name, members) in enumerate(lines.items()):
            look = {"color": f"C{i}", "capsize": 3}
            places = [order[one.cell.values[x]] for one in members]
            means, deviations = [one.means[0] for one in members], [one.deviations[0] for one in members]
            axes.errorbar(places, means, deviations, marker="o", label=name, **look)
            printed = [one for one in members if one.cell.published]
            if printed:
                at = [order[one.cell.values[x]] + ASIDE for one in printed]
                published, spread = zip(*(one.cell.published[0] for one in printed), strict=True)
                axes.errorbar(at, published, spread, marker="x", ls=":", alpha=0.6, label=f"{name}, published", **look)
        axes.set_xticks(list(order.values()), [declaration.label(value) for value in order])
        axes.set(xlabel=x.replace("_", " "), ylabel=f"error ({declaration.unit})", title=declaration.title)
        axes.grid(alpha=0.3)
