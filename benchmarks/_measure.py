"""What the benchmarks share: two things timed in turn, spreads, the machine they ran on, and one way to print."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Spread:
    """The middle of several measurements, and how far apart they lie."""

    median: float
    lower: float  # quartile
    upper: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, lower, upper)

    def plain(self) -> dict[str, float]:
        return {"median": self.median, "quartile_1": self.lower, "quartile_3": self.upper}

    @property
    def wide(self) -> bool:
        """Whether the quartiles are so far apart that the machine had other work, and the median means little."""
        return self.upper - self.lower > 0.15 * self.median

    def text(self, scale: float = 1.0, digits: int = 3) -> str:
        middle, low, high = (f"{v * scale:.{digits}f}" for v in (self.median, self.lower, self.upper))
        return f"{middle} ({low}-{high})"


def seconds(action: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def in_turn(actions: Mapping[str, Callable[[], object]], times: int) -> dict[str, list[float]]:
    """Seconds of each action, run one after the other so that a busy moment falls on all of them.

    The order is turned round every time: whoever runs second finds a warmer cache.
    """
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(times):
        for name in list(actions)[:: 1 if turn % 2 == 0 else -1]:
            taken[name].append(seconds(actions[name]))
    return taken


def machine() -> dict[str, Any]:
    """The hardware and software that numbers depend on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": cores,
        "python": platform.python_version(),
        "torch": version("torch"),
        "system": platform.system(),
    }


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser with what every benchmark takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document, and nothing else, on stdout")
    return parser


def show(result: Mapping[str, Any], rows: Sequence[Sequence[str]], *, as_json: bool) -> None:
    """The JSON document, or a table whose first row is its head."""
    if as_json:
        print(json.dumps(result, indent=2))
        return
    show_table(rows)
    show_machine(result["machine"])


def show_table(rows: Sequence[Sequence[str]]) -> None:
    """Cells that line up."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def show_machine(facts: Mapping[str, Any]) -> None:
    print(f"\n{facts['processor']}, {facts['cores']} cores, Python {facts['python']}, torch {facts['torch']}")


def verdict(value: float, target: float) -> str:
    return f"{'met' if value <= target else 'MISSED'} (at most {target:g})"
