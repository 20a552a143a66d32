"""How the time of a round of fedul's engine scales with clients, rows, sets and parameters. About a minute.

    python benchmarks/scaling.py [--quick]

Each axis is varied alone. A point is the median of several rounds after a warm-up; all points of an axis alternate. The
exponent is the slope of a least-squares line on log axes through the upper half of the range, where fixed costs are
negligible.
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

from _measure import Quartiles, time_alternating
from simulators.fedul_engine import FedulSimulator
from workload import Workload, make_data

BASE = Workload("scaling", "mlp", clients=20, rows=320, batch=32)
AXES: dict[str, tuple[Workload, dict[int, dict[str, int]]]] = {
    "clients": (
        replace(BASE, rows=100),
        {n: {"clients": n} for n in (5, 10, 20, 50, 100, 200, 500, 1000, 2000)},
    ),
    "rows": (BASE, {n * BASE.clients: {"rows": n} for n in (100, 200, 500, 1000, 2000, 5000, 10000)}),
    "sets": (replace(BASE, rows=1000), {n: {"sets": n} for n in (2, 5, 10, 20, 50, 100, 200, 500)}),
    "parameters": (BASE, {n * 75 + 10: {"width": n} for n in (8, 16, 32, 64, 128, 256, 512, 1024)}),
}
ROUNDS = 5


def measure(quick: bool) -> dict[str, Any]:
    """Return times and fitted exponents by axis."""
    results = {}
    for axis, (base, points) in AXES.items():
        if quick and axis in ("sets", "parameters"):
            continue
        chosen = dict(list(points.items())[: -2 if quick else None])
        times = _time_rounds({f"{x}": replace(base, **change) for x, change in chosen.items()})
        slope, intercept = fit_power_law(list(chosen), [each.median for each in times])
        results[axis] = {
            "at": list(chosen),
            "seconds": [each.to_dict() for each in times],
            "exponent": slope,
            "intercept": intercept,
            "fixed": {k: v for k, v in vars(base).items() if k in ("clients", "rows", "batch", "width", "sets")},
        }
    return results


def _time_rounds(workloads: Mapping[str, Workload]) -> list[Quartiles]:
    """Return the seconds of a round of each workload with the default engine."""
    actions = {}
    for name, workload in workloads.items():
        simulator = FedulSimulator(workload, make_data(workload))
        simulator.run_round(1)
        actions[name] = functools.partial(simulator.run_round, 2)
    return [Quartiles.of(times) for times in time_alternating(actions, ROUNDS).values()]


def fit_power_law(at: list[int], values: list[float]) -> tuple[float, float]:
    """Return slope and intercept on log axes, for the upper half of the range."""
    middle = statistics.median(at)
    upper = np.log([(x, y) for x, y in zip(at, values, strict=True) if x >= middle])
    slope, intercept = np.polyfit(upper[:, 0], upper[:, 1], 1)
    return float(slope), float(intercept)


def plot(results: dict[str, Any], folder: Path) -> list[Path]:
    """Write one figure per axis and return the files."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    # Reproducible files.
    pyplot.rcParams.update({"svg.hashsalt": "speed", "svg.fonttype": "none"})
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for axis, one in results.items():
        figure, axes = pyplot.subplots(figsize=(5, 3.5), layout="constrained")
        medians = [point["median"] for point in one["seconds"]]
        errors = np.array([[p["median"] - p["quartile_1"], p["quartile_3"] - p["median"]] for p in one["seconds"]]).T
        axes.errorbar(one["at"], medians, yerr=errors, fmt="o", markersize=4, label="measured, with quartiles")
        line = [math.exp(one["intercept"]) * x ** one["exponent"] for x in one["at"]]
        axes.plot(one["at"], line, linewidth=1, label=f"upper half: exponent {one['exponent']:.2f}")
        axes.set(xscale="log", yscale="log", xlabel=axis, ylabel="seconds per round")
        axes.grid(which="both", linewidth=0.3)
        axes.legend()
        files.append(folder / f"speed-{axis}.svg")
        figure.savefig(files[-1], metadata={"Date": None})
        pyplot.close(figure)
    return files


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only two axes, without their largest points")
    print(json.dumps(measure(parser.parse_args().quick), indent=2))
