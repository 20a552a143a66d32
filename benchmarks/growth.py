"""How a round of fedul's engine grows with clients, rows, sets and parameters. Takes about a minute.

    python benchmarks/growth.py [--quick]

Each axis is varied alone; a point is the median of some rounds after a warm-up, all points of an axis in turn. The
exponent is the slope of a least-squares line on log axes through the upper half of the range, where fixed costs no
longer count.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from _measure import Spread, in_turn
from contestants.fedul_engine import Contestant, engine_settings
from work import Work, make_data

BASE = Work("growth", "mlp", clients=20, rows=320, batch=32)
AXES: dict[str, tuple[Work, dict[int, dict[str, int]]]] = {
    "clients": (
        replace(BASE, rows=100),
        {n: {"clients": n} for n in (5, 10, 20, 50, 100, 200, 500, 1000, 2000)},
    ),
    "rows": (BASE, {n * BASE.clients: {"rows": n} for n in (100, 200, 500, 1000, 2000, 5000, 10000)}),
    "sets": (replace(BASE, rows=1000), {n: {"sets": n} for n in (2, 5, 10, 20, 50, 100, 200, 500)}),
    "parameters": (BASE, {n * 75 + 10: {"width": n} for n in (8, 16, 32, 64, 128, 256, 512, 1024)}),
}
ROUNDS = 5


def measured(quick: bool) -> dict[str, Any]:
    found = {}
    for axis, (base, points) in AXES.items():
        if quick and axis in ("sets", "parameters"):
            continue
        chosen = dict(list(points.items())[: -2 if quick else None])
        spreads = _rounds_of({f"{x}": replace(base, **change) for x, change in chosen.items()})
        slope, intercept = fitted(list(chosen), [spread.median for spread in spreads])
        found[axis] = {
            "at": list(chosen),
            "seconds": [spread.plain() for spread in spreads],
            "exponent": slope,
            "intercept": intercept,
            "fixed": {k: v for k, v in vars(base).items() if k in ("clients", "rows", "batch", "width", "sets")},
        }
    return found


def _rounds_of(works: Mapping[str, Work]) -> list[Spread]:
    """Seconds of a round of each, as fedul computes it by default, in turn."""
    actions = {}
    for name, work in works.items():
        contestant = Contestant(work, make_data(work), engine_settings("auto", 0))
        contestant.round(1)
        actions[name] = functools.partial(contestant.round, 2)
    return [Spread.of(times) for times in in_turn(actions, ROUNDS).values()]


def fitted(at: list[int], values: list[float]) -> tuple[float, float]:
    """Slope and intercept on log axes, of the points from the middle of the range on."""
    middle = statistics.median(at)
    upper = np.log([(x, y) for x, y in zip(at, values, strict=True) if x >= middle])
    slope, intercept = np.polyfit(upper[:, 0], upper[:, 1], 1)
    return float(slope), float(intercept)


def draw(found: dict[str, Any], folder: Path) -> list[Path]:
    """A figure for each axis."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    # Files that differ only where the figures do.
    pyplot.rcParams.update({"svg.hashsalt": "speed", "svg.fonttype": "none"})
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for axis, one in found.items():
        figure, axes = pyplot.subplots(figsize=(5, 3.5), layout="constrained")
        medians = [point["median"] for point in one["seconds"]]
        spread = np.array([[p["median"] - p["quartile_1"], p["quartile_3"] - p["median"]] for p in one["seconds"]]).T
        axes.errorbar(one["at"], medians, yerr=spread, fmt="o", markersize=4, label="measured, with quartiles")
        line = [math.exp(one["intercept"]) * x ** one["exponent"] for x in one["at"]]
        axes.plot(one["at"], line, linewidth=1, label=f"upper half: exponent {one['exponent']:.2f}")
        axes.set(xscale="log", yscale="log", xlabel=axis, ylabel="seconds a round")
        axes.grid(which="both", linewidth=0.3)
        axes.legend()
        files.append(folder / f"speed-{axis}.svg")
        figure.savefig(files[-1], metadata={"Date": None})
        pyplot.close(figure)
    return files


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two axes, and not their largest points")
    print(json.dumps(measured(parser.parse_args().quick), indent=2))
