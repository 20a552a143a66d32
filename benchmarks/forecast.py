"""The forecast of `fedul check` against fact: what unlabeled digits are worth, and were said to be.

    python benchmarks/forecast.py --out FILE.jsonl [--seeds 3] [--federations boosted-10 ...]
    python benchmarks/forecast.py --out FILE.jsonl --report

The first form runs what is not in the file yet (a line a training, 2 s each on a quiet core). The second reads off
the learning curve of supervised training how many labels reach the error that fedul reached without any.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

from _measure import show_table
from fedul.config import DataConfig
from fedul.data import read
from fedul.data.partition import deal
from fedul.data.source import LabelledData
from fedul.evaluation.outlook import outlook
from fedul.priors import Matrix
from fedul.training import Quiet, train
from fedul.truth import Study

ROUNDS = 30
SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 1.0)


@dataclass(frozen=True)
class Case:
    """A federation of digits: how it is dealt, which priors it is given (recipes if none), and what its classes are."""

    options: dict[str, Any] = field(default_factory=dict)
    priors: Callable[[int, int], Matrix] | None = None  # client, classes -> (M, K)
    classes: int = 10  # digits modulo this: 2 asks for odd or even


def purer(purity: float, sets: int = 10) -> Callable[[int, int], Matrix]:
    """Set m: a share `purity` is of class m, the rest of all classes alike."""

    def priors(client: int, classes: int) -> Matrix:
        own = np.eye(classes)[(np.arange(sets) + client) % classes]
        return purity * own + (1 - purity) / classes

    return priors


def halves(high: float) -> Callable[[int, int], Matrix]:
    """Two sets of two classes, turned round."""
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
    "pure-20 %": Case(priors=purer(0.2)),
    "pure-35 %": Case(priors=purer(0.35)),
    "pure-70 %": Case(priors=purer(0.7)),
    "pure-90 %": Case(priors=purer(0.9)),
    "parity-60:40": Case({"sets": (2,)}, halves(0.6), classes=2),
    "parity-70:30": Case({"sets": (2,)}, halves(0.7), classes=2),
    "parity-90:10": Case({"sets": (2,)}, halves(0.9), classes=2),
}


def study_of(case: Case, seed: int) -> Study:
    """The study of a case; unless it asks for it, no row is in two sets."""
    data = modulo(read("digits", None), case.classes)
    config = DataConfig(seed=seed, **{"sets_overlap": False, **case.options})
    if case.priors is None:
        return deal(data, config)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "priors.csv"
        with table.open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["client", "set", *data.classes])
            for client in range(config.clients):
                for m, row in enumerate(case.priors(client, case.classes)):
                    lines.writerow([f"client-{client + 1}", m + 1, *row])
        return deal(data, replace(config, priors=str(table)))


def modulo(data: LabelledData, classes: int) -> LabelledData:
    if classes == len(data.classes):
        return data
    return replace(
        data,
        train_labels=data.train_labels % classes,
        test_labels=data.test_labels % classes,
        classes=tuple(map(str, range(classes))),
    )


class Silent(Quiet):
    """Says nothing of priors that single clients could not do with."""

    def warn(self, sentence: str) -> None:
        pass


def wanted(seeds: int, names: Sequence[str]) -> Iterator[tuple[str, int, float]]:
    """Federation, seed and share of labels; 0 is fedul."""
    for seed in range(seeds):
        for name in names:
            for share in (0.0, *SHARES):
                yield name, seed, share


def measure(study: Study, share: float, seed: int) -> dict[str, Any]:
    settings: dict[str, Any] = {"rounds": ROUNDS, "threads": 1, "evaluate_every": 0, "seed": seed}
    if share:  # with fewer labels more epochs and rounds: as many steps for all, so that only information differs
        epochs = int(1 / share)
        settings |= {"epochs": epochs, "rounds": round(ROUNDS / share / epochs)}
        settings |= {"method": "supervised", "method_option": {"labels": share}}
    run = train(study, reporter=Silent(), **settings)
    return {"error": run.test_error, "labels": run.labels_used}


def lines_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def run(out: Path, seeds: int, names: Sequence[str]) -> None:
    done = {(line["federation"], line["seed"], line["share"]) for line in lines_of(out)}
    for name, seed, share in wanted(seeds, names):
        if (name, seed, share) in done:
            continue
        line = {"federation": name, "seed": seed, "share": share, **measure(study_of(CASES[name], seed), share, seed)}
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def labels_for(error: float, labels: Sequence[float], errors: Sequence[float]) -> float:
    """How many labels reach this error, between measured points as a power law; beyond them, the last point."""
    falling = np.minimum.accumulate(errors)
    return float(np.exp(np.interp(-np.log(error), -np.log(falling), np.log(labels))))


def report(out: Path) -> None:
    """Worth over all seeds and of each; one seed's is rough where a learning curve is flat."""
    rows = [["federation", "rows", "fedul %", "all labels %", "worth", "of each seed", "forecast", "inside"]]
    inside = []
    errors: dict[str, dict[int, dict[float, tuple[float, int]]]] = {}
    for line in lines_of(out):
        by_seed = errors.setdefault(line["federation"], {})
        by_seed.setdefault(line["seed"], {})[line["share"]] = (line["error"], line["labels"])
    for name, found in errors.items():
        runs = {seed: each for seed, each in found.items() if len(each) == 1 + len(SHARES)}
        if not runs:
            continue
        worth, of_each = worth_of(list(runs.values())), [worth_of([each]) for each in runs.values()]
        forecasts = [outlook(study_of(CASES[name], seed).federation).forecast for seed in runs]
        low, high = (statistics.mean(getattr(f, end) for f in forecasts) for end in ("share_low", "share_high"))
        inside.append(low <= worth <= high)
        without, with_all = (100 * statistics.mean(each[share][0] for each in runs.values()) for share in (0.0, 1.0))
        cells = [
            f"{statistics.mean(f.rows for f in forecasts):.0f}",
            f"{without:.2f}",
            f"{with_all:.2f}",
            shown(worth),
        ]
        cells += [" ".join(f"{one:.0%}" for one in of_each), f"{low:.1%} to {high:.1%}"]
        rows.append([name, *cells, "yes" if inside[-1] else "NO"])
    show_table(rows)
    print(f"\n{sum(inside)} of {len(inside)} inside the forecast")


def shown(worth: float) -> str:
    """The ends of the learning curve are bounds only."""
    bound = "at most " if worth <= SHARES[0] * 1.01 else "at least " if worth >= 0.999 else ""
    return f"{bound}{worth:.1%}"


def worth_of(runs: Sequence[dict[float, tuple[float, int]]]) -> float:
    """The share of all labels that reaches fedul's error, errors and labels being averaged over runs first."""
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
