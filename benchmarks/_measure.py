"""Helpers that the benchmarks share: alternating timing, quartiles, the machine, printing."""

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

from fedul.training import Callback


@dataclass(frozen=True)
class Quartiles:
    """Median and quartiles of several measurements."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Quartiles:
        """Return the quartiles of these values."""
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, lower, upper)

    @classmethod
    def from_dict(cls, stored: Mapping[str, float]) -> Quartiles:
        """Return the object from the result of `to_dict`."""
        return cls(stored["median"], stored["quartile_1"], stored["quartile_3"])

    def to_dict(self) -> dict[str, float]:
        """Return JSON-serializable values."""
        return {"median": self.median, "quartile_1": self.lower, "quartile_3": self.upper}

    def format(self, scale: float = 1.0, digits: int = 3) -> str:
        """Return the median, with the quartiles in brackets."""
        middle, low, high = (f"{v * scale:.{digits}f}" for v in (self.median, self.lower, self.upper))
        return f"{middle} ({low}-{high})"


class IgnoreWarnings(Callback):
    """Ignores warnings, e.g. about single clients whose priors are not sufficient alone."""

    def on_warning(self, message: str) -> None:
        pass


def time_alternating(actions: Mapping[str, Callable[[], object]], times: int) -> dict[str, list[float]]:
    """Return the seconds of each action, run alternately so that other load affects all of them.

    The order is reversed every time, because the second action finds a warmer cache.
    """
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for repeat in range(times):
        for name in list(actions)[:: 1 if repeat % 2 == 0 else -1]:
            started = time.perf_counter()
            actions[name]()
            taken[name].append(time.perf_counter() - started)
    return taken


def describe_machine() -> dict[str, Any]:
    """Return the hardware and software that the numbers depend on."""
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


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    return parser


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a JSON-lines file; none if it does not exist."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append_line(path: Path, line: Mapping[str, Any]) -> None:
    """Append a document to a JSON-lines file."""
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def print_result(result: Mapping[str, Any], rows: Sequence[Sequence[str]], *, as_json: bool) -> None:
    """Print the JSON document, or a table whose first row is its header."""
    if as_json:
        print(json.dumps(result, indent=2))
        return
    print_table(rows)
    print_machine(result["machine"])


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows with aligned columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_machine(machine: Mapping[str, Any]) -> None:
    """Print the machine in one line."""
    print(f"\n{machine['processor']}, {machine['cores']} cores, Python {machine['python']}, torch {machine['torch']}")


def compare_to_target(value: float, target: float) -> str:
    """Return whether a value meets its target."""
    return f"{'met' if value <= target else 'MISSED'} (at most {target:g})"
