"""Accuracy without labels on tables with natural groups, compared with labelled rows that were set aside.

    python benchmarks/natural_evaluation.py FOLDER --out FILE.jsonl [--methods default fedul]
    python benchmarks/natural_evaluation.py --out FILE.jsonl --report

FOLDER is that of natural.py. An interval covers if it contains the accuracy on new rows within the sampling error of
these. --out gets one line per run; finished ones are not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedul
from _measure import append_line, read_lines
from fedul.core import SIGNIFICANCE, Z_95

Line = dict[str, Any]


def measure(case: Path, method: str) -> Line:
    """Return what `fedul evaluate` says about one run, and the truth."""
    study = fedul.load(case / "rows.csv", case / "prevalence.csv", client_column="client", set_column="group")
    settings = {} if method == "default" else {"method": method, "force": True}
    run = fedul.train(study, seed=0, **settings)
    truth = pd.read_csv(case / "new_truth.csv")["truth"].astype(str).to_numpy()
    right = run.classifier.predict(case / "new.csv").astype(str) == truth
    found = fedul.evaluate(run)
    effects = found.set_effects
    return {
        "split": case.parent.name,
        "table": case.name,
        "method": method,
        "true": float(right.mean()),
        "rows": len(right),
        "estimated": found.estimated_accuracy,
        "interval": found.interval,
        "reason": found.reason,
        "p_value": found.assumption.p_value,
        "columns": [each.column for each in found.assumption.columns],
        "visible": None if effects is None else effects.visible,
        "baselines": {each.name: each.estimated_accuracy for each in found.baselines},
    }


def covers(line: Line) -> bool:
    """Return whether the interval contains the truth, within the sampling error of the new rows."""
    slack = Z_95 * float(np.sqrt(line["true"] * (1 - line["true"]) / line["rows"]))
    low, high = line["interval"]
    return bool(low - slack <= line["true"] <= high + slack)


def warned(line: Line) -> bool:
    """Return whether the first sentence has a caution."""
    contradicted = line["p_value"] is not None and line["p_value"] < SIGNIFICANCE
    return bool(contradicted or line["visible"])


def report(lines: list[Line]) -> str:
    """Return the tables of the results page."""
    text = []
    for method, of_method in itertools.groupby(sorted(lines, key=_key), lambda line: line["method"]):
        rows = ["| table | accuracy on new rows | estimates |", "|---|---:|---|"]
        given, covered, far = 0, 0, 0
        for table, group in itertools.groupby(of_method, lambda line: line["table"]):
            found, shown = list(group), []
            for line in found:
                if line["interval"] is None:
                    shown.append("none")
                    continue
                given, covered = given + 1, covered + covers(line)
                far += abs(line["estimated"] - line["true"]) > 0.1 and not warned(line)
                low, high = (f"{100 * end:.0f}" for end in line["interval"])
                shown.append(f"{low} to {high}{'' if covers(line) else ' (misses)'}{', caution' * warned(line)}")
            true = ", ".join(f"{100 * line['true']:.0f}" for line in found)
            rows.append(f"| {table} | {true} | {'; '.join(shown)} |")
        summary = f"{method}: {covered} of {given} intervals cover; off by more than 10 points without a caution: {far}"
        text.append("\n".join([*rows, "", summary]))
    return "\n\n".join(text)


def _key(line: Line) -> tuple[str, str, str]:
    return line["method"], line["table"], line["split"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", default=["default", "fedul"])
    parser.add_argument("--report", action="store_true", help="print the tables of all lines")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    done = {_key(line) for line in read_lines(options.out)}
    cases = [] if options.report else sorted(options.folder.glob("*/*/rows.csv"))
    for rows, method in itertools.product(cases, options.methods):
        if (method, rows.parent.name, rows.parent.parent.name) not in done:
            append_line(options.out, measure(rows.parent, method))
    print(report(read_lines(options.out)))


if __name__ == "__main__":
    main()
