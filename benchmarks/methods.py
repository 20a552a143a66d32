"""All methods on the digits: 10 and 20 sets, boosted and text priors, iid and noniid, ten paired seeds, 30 rounds each.

    python benchmarks/methods.py --out FOLDER [--part clean noise drawn] [--seeds 10] [--cells 10-boosted-iid ...]
    python benchmarks/methods.py --out FOLDER --report

The first form runs what is not there yet (three minutes a clean cell on a quiet core); several may work on different
--cells at once. The second reads the folder and prints the tables of docs/results/methods.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from scipy.stats import t as student

from fedul.comparison import LEVEL, Contestant, compare, contestants, paired_p_value
from fedul.config import CompareConfig, DataConfig, TrainConfig
from fedul.errors import InputError
from fedul.runs import RunFolder
from fedul.training import Quiet

CELLS = ["-".join(cell) for cell in itertools.product(("10", "20"), ("boosted", "text"), ("iid", "noniid"))]
PARTS: dict[str, list[dict[str, Any]]] = {
    "clean": [{}],
    "noise": [{"prior_noise": 0.4}, {"prior_noise": 0.8}],
    "drawn": [{"prior_source": "drawn"}],
}
EVERYBODY = contestants(CompareConfig().methods, "fedavg")
TWO = "fedul, fedul-refined"
PAIR = contestants(TWO, "fedavg")
RIVALS = ("fedpl", "fedllp", "fedllp-vat")


class Lines:
    """Says which run begins."""

    @contextmanager
    def run(self, number: int, total: int, title: str) -> Iterator[Quiet]:
        print(f"  {number}/{total} {title}", flush=True)
        yield Silent()


class Silent(Quiet):
    """Says nothing of priors that single clients could not do with."""

    def warn(self, sentence: str) -> None:
        pass


def run_cell(cell: str, change: dict[str, Any], seeds: int, out: Path) -> None:
    sets, recipe, split = cell.split("-")
    data = DataConfig(sets=(int(sets),), prior_recipe=recipe, split=split, **change)
    compared = CompareConfig(seeds=seeds, out=str(out), resume=True, **({"methods": TWO} if change else {}))
    try:
        compare(data, TrainConfig(threads=1), compared, out, Lines())
    except InputError as problem:
        print(f"  not possible: {problem}", flush=True)


def folder_of(cell: str, change: dict[str, Any], out: Path) -> Path:
    return out / "-".join([cell, *(f"{name}={value}" for name, value in change.items())])


def errors_of(folder: Path, contestant: Contestant, seeds: int) -> list[float] | None:
    """Test errors by seed; None where a run is missing."""
    found = [RunFolder(folder / "runs" / contestant.folder / f"seed-{seed}").result() for seed in range(seeds)]
    return [result["test_error"] for result in found if result] if all(found) else None


def ratio(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """mean(one) / mean(other) with a 95 % interval over paired seeds (delta method, Student's t)."""
    middle = statistics.mean(one) / statistics.mean(other)
    parts = [(a - middle * b) / statistics.mean(other) for a, b in zip(one, other, strict=True)]
    half = float(student.ppf(0.975, len(parts) - 1)) * statistics.stdev(parts) / math.sqrt(len(parts))
    return middle, middle - half, middle + half


def report(out: Path, seeds: int) -> None:
    names = [contestant.method_name for contestant in EVERYBODY]
    print("| sets, priors, split | " + " | ".join(names) + " |\n|---" + "|---:" * len(names) + "|")
    for cell in CELLS:
        by_name = {c.method_name: errors_of(folder_of(cell, {}, out), c, seeds) for c in EVERYBODY}
        print(f"| {cell.replace('-', ', ')} | " + " | ".join(_cell(errors) for errors in by_name.values()) + " |")
    print("\nfedul-refined / fedul, and refined / supervised\n")
    print("| sets, priors, split | condition | fedul | fedul-refined | ratio | to supervised |")
    print("|---|---|---:|---:|---:|---:|")
    ratios: dict[str, list[float]] = {}
    for name, change in [(part, change) for part, changes in PARTS.items() for change in changes]:
        for cell in CELLS:
            folder = folder_of(cell, change, out)
            plain, refined = (errors_of(folder, c, seeds) for c in PAIR)
            if plain is None or refined is None:
                continue
            condition = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in change.items()) or name
            middle, low, high = ratio(refined, plain)
            ratios.setdefault(condition, []).append(middle)
            labelled = None if change else errors_of(folder, contestants("supervised", "fedavg")[0], seeds)
            bound = "" if labelled is None else "{:.2f} [{:.2f}, {:.2f}]".format(*ratio(refined, labelled))
            print(
                f"| {cell.replace('-', ', ')} | {condition} | {_cell(plain)} | {_cell(refined)} "
                f"| {middle:.3f} [{low:.3f}, {high:.3f}] | {bound} |"
            )
    for condition, values in ratios.items():
        mean = statistics.mean(values)
        print(f"\n{condition}: mean ratio {mean:.3f} over {len(values)} cells, largest {max(values):.3f}")
    print("\nfedul against the paper's baselines (paired t-test, 5 %)\n")
    for cell in CELLS:
        by_name = {c.method_name: errors_of(folder_of(cell, {}, out), c, seeds) for c in EVERYBODY}
        if by_name["fedul"] is not None:
            print(f"{cell}: " + ", ".join(_verdict(by_name["fedul"], by_name[rival], rival) for rival in RIVALS))


def _cell(errors: Sequence[float] | None) -> str:
    return "" if errors is None else f"{100 * statistics.mean(errors):.2f} ({100 * statistics.stdev(errors):.2f})"


def _verdict(own: Sequence[float], other: Sequence[float] | None, name: str) -> str:
    if other is None:
        return f"{name} missing"
    p_value = paired_p_value(own, other) or 0.0
    if p_value >= LEVEL:
        return f"{name} alike (p {p_value:.2f})"
    return f"{name} {'worse' if statistics.mean(other) > statistics.mean(own) else 'BETTER'} (p {p_value:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=CELLS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if arguments.report:
        report(arguments.out, arguments.seeds)
        return
    for part in arguments.part:
        for change in PARTS[part]:
            for cell in arguments.cells:
                print(cell, change, flush=True)
                run_cell(cell, change, arguments.seeds, folder_of(cell, change, arguments.out))


if __name__ == "__main__":
    main()
