"""Sites that differ: error on Gaussian worlds whose sites are shifted, with and without --site-adjustment.

    python benchmarks/site_shift.py [--shifts 0 1 2] [--seeds 200 201 202 203 204]

Three classes with unit covariance in six features, five sites with eight sets of 120 rows, class priors rounded to four
decimals, from which rows are drawn. A shift of s moves every feature of a site by s times a standard normal number.
Trained by `fedul train` with its defaults; new rows (2,000 of each site, classes equally common) are classified by
`fedul predict` with the client column. A training takes 5 s on an idle core.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from _measure import print_table
from fedul.core import Matrix

CLASSES, FEATURES, SITES, SETS, ROWS, NEW_ROWS = "abc", 6, 5, 8, 120, 2_000
COLUMNS = [f"x{j}" for j in range(FEATURES)]


def write_world(folder: Path, seed: int, shift: float) -> tuple[list[str], float]:
    """Write rows.csv, priors.csv and new.csv; return the classes of the new rows, and the error of Bayes' rule."""
    generator = np.random.default_rng([seed, 7])
    means = 1.05 * generator.normal(size=(len(CLASSES), FEATURES))
    shifts = generator.normal(size=(SITES, FEATURES))
    generator.normal(size=(SITES, FEATURES))  # drawn and not used: the committed numbers depend on it
    rows: list[list[Any]] = []
    priors: list[list[Any]] = []
    new: list[list[Any]] = []
    truth, wrong = [], []
    for site in range(SITES):
        for number in range(SETS):
            prior = generator.uniform(0.1, 1, len(CLASSES))
            prior[number % len(CLASSES)] *= 5
            prior /= prior.sum()
            labels = generator.choice(len(CLASSES), ROWS, p=prior)
            values = means[labels] + generator.normal(size=(ROWS, FEATURES)) + shift * shifts[site]
            rows += [[f"site{site}", f"m{number}", *row] for row in values.round(5)]
            priors.append([f"site{site}", f"m{number}", *prior.round(4)])
        labels = generator.choice(len(CLASSES), NEW_ROWS)
        values = means[labels] + generator.normal(size=(NEW_ROWS, FEATURES))
        best = ((values[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
        wrong.append(float(np.mean(best != labels)))
        truth += [CLASSES[label] for label in labels]
        new += [[f"site{site}", *row] for row in (values + shift * shifts[site]).round(5)]
    _write(folder / "rows.csv", ["client", "set", *COLUMNS], rows)
    _write(folder / "priors.csv", ["client", "set", *CLASSES], priors)
    _write(folder / "new.csv", ["client", *COLUMNS], new)
    return truth, float(np.mean(wrong))


def _write(file: Path, head: list[str], rows: Iterable[Iterable[Any]]) -> None:
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([head, *rows])


def errors_of(seed: int, shift: float) -> Matrix:
    """Return the error of Bayes' rule, without and with adjustment (3,)."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        truth, bayes = write_world(folder, seed, shift)
        errors = [bayes]
        for mode in ("off", "on"):
            data = f"--data rows.csv --priors priors.csv --test-prior uniform --site-adjustment {mode} --seed {seed}"
            for line in (f"train {data} --out {mode}", f"predict {mode} new.csv --out {mode}.csv"):
                command = [sys.executable, "-m", "fedul", *line.split()]
                subprocess.run(command, cwd=folder, check=True, capture_output=True)
            with (folder / f"{mode}.csv").open(newline="") as opened:
                predicted = [row["class"] for row in csv.DictReader(opened)]
            errors.append(float(np.mean(np.array(predicted) != truth)))
    return np.array(errors)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shifts", nargs="+", type=float, default=[0.0, 1.0, 2.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(200, 205)))
    options = parser.parse_args()
    rows = []
    for shift in options.shifts:
        errors = 100 * np.mean([errors_of(seed, shift) for seed in options.seeds], axis=0)
        rows.append([f"{shift:g}", *(f"{each:.2f}" for each in errors)])
    print_table([["shift", "Bayes", "off", "on"], *rows])


if __name__ == "__main__":
    main()
