"""Own tables dealt into sets by class: error of the default method beside the same network with all labels.

    python benchmarks/own_tables.py --out FILE.jsonl [--seeds 301 302 303]
    python benchmarks/own_tables.py --out FILE.jsonl --report

Tables of scikit-learn (digits, breast cancer, wine) are dealt to clients and sets: class k of set m is wanted with a
weight from 1 to 1 + CONTRAST, the higher for classes (m mod K) in turn, and rows are given to sets by these weights.
Files are written as a user has them: a table, and class shares of all rows of each set with four decimals. In the runs
"default, rows" they are declared to speak of these rows (--priors-of rows); else they count as those of a population. A
third of the rows is set aside as test rows. `supervised` is a network of the same size with the labels of all rows.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

import fedul
from _measure import IgnoreWarnings, append_line, read_lines

Line = dict[str, Any]
TABLES = {
    "digits": (load_digits, 4, 10),
    "breast cancer": (load_breast_cancer, 3, 5),
    "wine": (load_wine, 2, 4),
}
"""Loader, clients and sets of each client."""
CONTRASTS = (10, 3, 1)
RUNS: dict[str, dict[str, Any]] = {
    "default": {},
    "default, rows": {},
    **{name: {"method": name, "rounds": 30, "force": True} for name in ("fedul", "fedul-refined", "fedllp")},
}


def deal(table: str, contrast: float, seed: int, folder: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Write rows.csv, prevalence.csv and labelled.csv into a folder; return the test rows and their classes."""
    loader, clients, sets = TABLES[table]
    data = loader()
    generator = np.random.default_rng([seed, 7])
    order = generator.permutation(len(data.target))
    inputs, labels = data.data[order], data.target[order]
    classes = len(np.unique(labels))
    training = generator.random(len(labels)) >= 1 / 3
    weights = np.ones((clients * sets, classes))
    weights[np.arange(clients * sets), np.arange(clients * sets) % classes] += contrast
    weights *= generator.uniform(0.5, 1, weights.shape)
    chances = weights / weights.sum(axis=0)
    group = np.array([generator.choice(clients * sets, p=chances[:, label]) for label in labels])
    names = [f"x{i}" for i in range(inputs.shape[1])]
    frame = pd.DataFrame(inputs, columns=names)
    frame.insert(0, "client", [f"client{g // sets}" for g in group])
    frame.insert(1, "set", [f"s{g % sets:02d}" for g in group])
    truth = np.array([f"c{label}" for label in labels])
    rows = frame[training]
    rows.to_csv(folder / "rows.csv", index=False)
    rows.assign(label=truth[training]).to_csv(folder / "labelled.csv", index=False)
    shares = pd.crosstab([rows["client"], rows["set"]], truth[training], normalize="index").round(4)
    shares.reset_index().to_csv(folder / "prevalence.csv", index=False)
    return frame[~training][names], truth[~training]


def measure(table: str, contrast: float, seed: int, run: str) -> Line:
    """Return the line of one run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        test, truth = deal(table, contrast, seed, folder)
        test.to_csv(folder / "test.csv", index=False)
        columns: dict[str, Any] = {"client_column": "client", "set_column": "set", "seed": seed}
        columns["test_prior"] = "uniform"  # the default when the results page was made
        started = time.process_time()
        if run == "supervised":
            study = fedul.load(folder / "labelled.csv", folder / "prevalence.csv", label_column="label", **columns)
            settings: dict[str, Any] = {"method": "fedul", "model": "small-mlp", "force": True}
        else:
            columns["priors_of"] = "rows" if run.endswith(", rows") else "auto"
            study, settings = fedul.load(folder / "rows.csv", folder / "prevalence.csv", **columns), RUNS[run]
        trained = fedul.train(study, seed=seed, callbacks=[IgnoreWarnings()], **settings)
        seconds = time.process_time() - started
        predicted = trained.classifier.predict(folder / "test.csv")
        choice = trained.result.choice
        return {
            "table": table,
            "contrast": contrast,
            "seed": seed,
            "run": run,
            "error": float((np.asarray(predicted).astype(str) != truth).mean()),
            "seconds": round(seconds, 2),
            "chosen": choice.chosen if choice else None,
        }


def report(lines: list[Line]) -> None:
    """Print mean errors by table and contrast, and the ratio of the default to labels."""
    runs = [*RUNS, "supervised"]
    print(
        f"| table | contrast | {' | '.join(runs)} | to supervised | rows, to supervised |\n|---"
        + "|---:" * (len(runs) + 3)
        + "|"
    )
    for table, contrast in itertools.product(TABLES, CONTRASTS):
        errors = {}
        for run in runs:
            some = [line for line in lines if (line["table"], line["contrast"], line["run"]) == (table, contrast, run)]
            errors[run] = [100 * line["error"] for line in some]
        if not all(errors.values()):
            continue
        means = {run: statistics.mean(values) for run, values in errors.items()}
        cells = []
        for run, values in errors.items():
            spread = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
            cells.append(f"{means[run]:.2f} ({spread:.2f})")
        ratios = [f"{means[run] / means['supervised']:.2f}" for run in ("default", "default, rows")]
        print(f"| {table} | {contrast} | {' | '.join([*cells, *ratios])} |")


def main() -> None:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[301, 302, 303, 304, 305])
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    lines = read_lines(options.out)
    if options.report:
        report(lines)
        return
    finished = {(line["table"], line["contrast"], line["seed"], line["run"]) for line in lines}
    for key in itertools.product(TABLES, CONTRASTS, options.seeds, [*RUNS, "supervised"]):
        if key not in finished:
            append_line(options.out, measure(*key))


if __name__ == "__main__":
    main()
