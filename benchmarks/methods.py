"""All methods on digits: 10 and 20 sets, boosted and text priors, iid and noniid, ten paired seeds, 30 rounds each.

    python benchmarks/methods.py --out FOLDER [--part clean noise drawn] [--seeds 10] [--cells 10-boosted-iid ...]
    python benchmarks/methods.py --out FOLDER --report

The first form runs what is not finished yet (three minutes per clean cell on an idle core); several processes can run
different --cells. The second reads the folder and prints the tables of docs/results/methods.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from scipy.stats import t as student

import fedul
from _measure import IgnoreWarnings
from fedul.config import CompareConfig
from fedul.core import SIGNIFICANCE, paired_p_value
from fedul.errors import InputError
from fedul.experiments.variants import Variant, parse_variants
from fedul.training import RunFolder, RunInfo

CELLS = ["-".join(cell) for cell in itertools.product(("10", "20"), ("boosted", "text"), ("iid", "noniid"))]
PARTS: dict[str, list[dict[str, Any]]] = {
    "clean": [{}],
    "noise": [{"prior_noise": 0.4}, {"prior_noise": 0.8}],
    "drawn": [{"prior_source": "drawn"}],
}
ALL = parse_variants(CompareConfig().methods, "fedavg")
REFINEMENT = "fedul, fedul-refined"
FEDUL_AND_REFINED = parse_variants(REFINEMENT, "fedavg")
BASELINES = ("fedpl", "fedllp", "fedllp-vat")


class PrintRuns(IgnoreWarnings):
    """Prints the title of every run."""

    def on_run_start(self, run: RunInfo) -> None:
        print(f"  {run.number}/{run.total} {run.title}", flush=True)


def run_cell(cell: str, change: dict[str, Any], seeds: int, out: Path) -> None:
    """Run the comparison of one cell; a cell that is not possible is reported."""
    sets, recipe, split = cell.split("-")
    settings = {"sets": int(sets), "prior_recipe": recipe, "split": split, "threads": 1, **change}
    methods = REFINEMENT if change else None
    try:
        fedul.compare("digits", methods=methods, seeds=seeds, out=out, resume=True, callbacks=[PrintRuns()], **settings)
    except InputError as problem:
        print(f"  not possible: {problem}", flush=True)


def folder_of(cell: str, change: dict[str, Any], out: Path) -> Path:
    """Return the folder of a cell."""
    return out / "-".join([cell, *(f"{name}={value}" for name, value in change.items())])


def errors_of(folder: Path, variant: Variant, seeds: int) -> list[float] | None:
    """Return test errors by seed; None if a run is missing."""
    results = [RunFolder(folder / "runs" / variant.folder / f"seed-{seed}").result() for seed in range(seeds)]
    return [result.test_error or 0.0 for result in results if result] if all(results) else None


def ratio(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """Return mean(one) / mean(other) with a 95 % interval over paired seeds (delta method, Student's t)."""
    middle = statistics.mean(one) / statistics.mean(other)
    parts = [(a - middle * b) / statistics.mean(other) for a, b in zip(one, other, strict=True)]
    half = float(student.ppf(0.975, len(parts) - 1)) * statistics.stdev(parts) / math.sqrt(len(parts))
    return middle, middle - half, middle + half


def report(out: Path, seeds: int) -> None:
    """Print the tables."""
    names = [variant.method_name for variant in ALL]
    print("| sets, priors, split | " + " | ".join(names) + " |\n|---" + "|---:" * len(names) + "|")
    for cell in CELLS:
        by_name = {c.method_name: errors_of(folder_of(cell, {}, out), c, seeds) for c in ALL}
        print(f"| {cell.replace('-', ', ')} | " + " | ".join(_cell(errors) for errors in by_name.values()) + " |")
    print("\nfedul-refined / fedul, and fedul-refined / supervised\n")
    print("| sets, priors, split | condition | fedul | fedul-refined | ratio | to supervised |")
    print("|---|---|---:|---:|---:|---:|")
    ratios: dict[str, list[float]] = {}
    for name, change in [(part, change) for part, changes in PARTS.items() for change in changes]:
        for cell in CELLS:
            folder = folder_of(cell, change, out)
            plain, refined = (errors_of(folder, c, seeds) for c in FEDUL_AND_REFINED)
            if plain is None or refined is None:
                continue
            condition = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in change.items()) or name
            middle, low, high = ratio(refined, plain)
            ratios.setdefault(condition, []).append(middle)
            labelled = None if change else errors_of(folder, parse_variants("supervised", "fedavg")[0], seeds)
            bound = "" if labelled is None else "{:.2f} [{:.2f}, {:.2f}]".format(*ratio(refined, labelled))
            print(
                f"| {cell.replace('-', ', ')} | {condition} | {_cell(plain)} | {_cell(refined)} "
                f"| {middle:.3f} [{low:.3f}, {high:.3f}] | {bound} |"
            )
    for condition, values in ratios.items():
        mean = statistics.mean(values)
        print(f"\n{condition}: mean ratio {mean:.3f} over {len(values)} cells, largest {max(values):.3f}")
    print("\nfedul compared with the paper's baselines (paired t-test, 5 %)\n")
    for cell in CELLS:
        by_name = {c.method_name: errors_of(folder_of(cell, {}, out), c, seeds) for c in ALL}
        if by_name["fedul"] is not None:
            print(
                f"{cell}: " + ", ".join(_compare_baseline(by_name["fedul"], by_name[name], name) for name in BASELINES)
            )


def _cell(errors: Sequence[float] | None) -> str:
    return "" if errors is None else f"{100 * statistics.mean(errors):.2f} ({100 * statistics.stdev(errors):.2f})"


def _compare_baseline(fedul_errors: Sequence[float], other: Sequence[float] | None, name: str) -> str:
    if other is None:
        return f"{name} missing"
    p_value = paired_p_value(fedul_errors, other) or 0.0
    if p_value >= SIGNIFICANCE:
        return f"{name} not different (p {p_value:.2f})"
    return f"{name} {'worse' if statistics.mean(other) > statistics.mean(fedul_errors) else 'BETTER'} (p {p_value:.3f})"


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
