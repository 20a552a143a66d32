"""The forecast of `fedul check` compared with measured values: how many labels unlabeled digits are worth.

    python benchmarks/forecast.py --out FILE.jsonl [--seeds 3] [--federations boosted-10 ...]
    python benchmarks/forecast.py --out FILE.jsonl --report

The first form runs what is not in the file yet (one line per training, 2 s each on an idle core). The second
interpolates the learning curve of supervised training to find how many labels reach the error of fedul without labels.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

import fedul
from _measure import IgnoreWarnings, append_line, print_table, read_lines
from fedul.config import BenchmarkDataConfig
from fedul.core import Matrix, Study
from fedul.data import read_source
from fedul.data.partition import partition
from fedul.data.source import LabelledData

ROUNDS = 30
SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 1.0)


@dataclass(frozen=True)
class Case:
    """A federation of digits: options of the split, class priors (those of the recipe if None), and classes."""

    options: dict[str, Any] = field(default_factory=dict)
    priors: Callable[[int, int], Matrix] | None = None  # client, classes -> (M, K)
    classes: int = 10  # digits modulo this number; 2 is odd or even


def mostly_one_class(purity: float, sets: int = 10) -> Callable[[int, int], Matrix]:
    """Return priors where a share `purity` of set m is of class m, and the rest is uniform."""

    def priors(client: int, classes: int) -> Matrix:
        main_class = np.eye(classes)[(np.arange(sets) + client) % classes]
        return purity * main_class + (1 - purity) / classes

    return priors


def mirrored(high: float) -> Callable[[int, int], Matrix]:
    """Return priors of two sets of two classes with exchanged shares."""
    return lambda client, classes: np.array([[high, 1 - high], [1 - high, high]])


CASES = {
    "boosted-5": Case({"sets": (5,)}),
    "boosted-10": Case({"sets": (10,)}),
    "boosted-20": Case({"sets": (20,)}),
    "boosted-10-noniid": Case({"sets": (10,), "split": "noniid-text"}),
    "boosted-10-overlap": Case({"sets": (10,), "sets_overlap": True}),
    "boosted-10-few": Case({"sets": (10,), "rows": 1000}),
    "text-10": Case({"sets": (10,), "prior_recipe": "text"}),
    "text-20": Case({"sets": (20,), "prior_recipe": "text"}),
    "pure-20 %": Case(priors=mostly_one_class(0.2)),
    "pure-35 %": Case(priors=mostly_one_class(0.35)),
    "pure-70 %": Case(priors=mostly_one_class(0.7)),
    "pure-90 %": Case(priors=mostly_one_class(0.9)),
    "parity-60:40": Case({"sets": (2,)}, mirrored(0.6), classes=2),
    "parity-70:30": Case({"sets": (2,)}, mirrored(0.7), classes=2),
    "parity-90:10": Case({"sets": (2,)}, mirrored(0.9), classes=2),
}


def load_case(case: Case, seed: int) -> Study:
    """Return the study of a case; sets are disjoint unless the case says otherwise."""
    data = modulo(read_source("digits", None), case.classes)
    config = BenchmarkDataConfig(seed=seed, **{"sets_overlap": False, **case.options})
    if case.priors is None:
        return partition(data, config)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "priors.csv"
        with table.open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["client", "set", *data.classes])
            for client in range(config.clients):
                for m, row in enumerate(case.priors(client, case.classes)):
                    lines.writerow([f"client-{client + 1}", m + 1, *row])
        return partition(data, replace(config, priors=str(table)))


def modulo(data: LabelledData, classes: int) -> LabelledData:
    """Return the data with labels modulo the number of classes."""
    if classes == len(data.classes):
        return data
    return replace(
        data,
        train_labels=data.train_labels % classes,
        test_labels=data.test_labels % classes,
        classes=tuple(map(str, range(classes))),
    )


def list_runs(seeds: int, names: Sequence[str]) -> Iterator[tuple[str, int, float]]:
    """Yield federation, seed and share of labels; share 0 is fedul."""
    for seed in range(seeds):
        for name in names:
            for share in (0.0, *SHARES):
                yield name, seed, share


def measure(study: Study, share: float, seed: int) -> dict[str, Any]:
    """Train and return the test error and the labels used."""
    settings: dict[str, Any] = {"rounds": ROUNDS, "threads": 1, "evaluate_every": 0, "seed": seed}
    if share:  # fewer labels get more epochs and rounds: the number of steps is the same for all
        epochs = int(1 / share)
        settings |= {"epochs": epochs, "rounds": round(ROUNDS / share / epochs)}
        settings |= {"method": "supervised", "method_option": {"labels": share}}
    run = fedul.train(study, callbacks=[IgnoreWarnings()], **settings)
    return {"error": run.test_error, "labels": run.labels_used}


def run(out: Path, seeds: int, names: Sequence[str]) -> None:
    """Run what is not in the file yet."""
    done = {(line["federation"], line["seed"], line["share"]) for line in read_lines(out)}
    for name, seed, share in list_runs(seeds, names):
        if (name, seed, share) in done:
            continue
        line = {"federation": name, "seed": seed, "share": share, **measure(load_case(CASES[name], seed), share, seed)}
        append_line(out, line)


def labels_for(error: float, labels: Sequence[float], errors: Sequence[float]) -> float:
    """Return how many labels reach this error: a power law between measured points, the last point beyond them."""
    falling = np.minimum.accumulate(errors)
    return float(np.exp(np.interp(-np.log(error), -np.log(falling), np.log(labels))))


def report(out: Path) -> None:
    """Print the value over all seeds and of each seed; one seed is imprecise where a learning curve is flat."""
    rows = [["federation", "rows", "fedul %", "all labels %", "worth", "per seed", "forecast", "inside"]]
    inside = []
    errors: dict[str, dict[int, dict[float, tuple[float, int]]]] = {}
    for line in read_lines(out):
        by_seed = errors.setdefault(line["federation"], {})
        by_seed.setdefault(line["seed"], {})[line["share"]] = (line["error"], line["labels"])
    for name, found in errors.items():
        runs = {seed: each for seed, each in found.items() if len(each) == 1 + len(SHARES)}
        if not runs:
            continue
        worth, of_each = worth_of(list(runs.values())), [worth_of([each]) for each in runs.values()]
        forecasts = [fedul.check(load_case(CASES[name], seed)).forecast for seed in runs]
        low, high = (statistics.mean(getattr(f, end) for f in forecasts) for end in ("share_low", "share_high"))
        inside.append(low <= worth <= high)
        without, with_all = (100 * statistics.mean(each[share][0] for each in runs.values()) for share in (0.0, 1.0))
        cells = [
            f"{statistics.mean(f.rows for f in forecasts):.0f}",
            f"{without:.2f}",
            f"{with_all:.2f}",
            format_share(worth),
        ]
        cells += [" ".join(f"{one:.0%}" for one in of_each), f"{low:.1%} to {high:.1%}"]
        rows.append([name, *cells, "yes" if inside[-1] else "NO"])
    print_table(rows)
    print(f"\n{sum(inside)} of {len(inside)} inside the forecast")


def format_share(worth: float) -> str:
    """Return a share as text; the ends of the learning curve are only bounds."""
    bound = "at most " if worth <= SHARES[0] * 1.01 else "at least " if worth >= 0.999 else ""
    return f"{bound}{worth:.1%}"


def worth_of(runs: Sequence[dict[float, tuple[float, int]]]) -> float:
    """Return the share of all labels that reaches the error of fedul, with errors and labels averaged over runs."""
    errors = {share: statistics.mean(run[share][0] for run in runs) for share in (0.0, *SHARES)}
    labels = {share: statistics.mean(run[share][1] for run in runs) for share in SHARES}
    reached = labels_for(errors[0.0], list(labels.values()), [errors[share] for share in SHARES])
    return reached / labels[1.0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--federations", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if arguments.report:
        report(arguments.out)
    else:
        run(arguments.out, arguments.seeds, arguments.federations)


if __name__ == "__main__":
    main()
