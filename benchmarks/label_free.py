"""Accuracy without labels on random federations whose truth is known.

    python benchmarks/label_free.py --world digits --federations 200 --seed0 400 --out FILE.jsonl [--priors text]
    python benchmarks/label_free.py --world rare --federations 100 --seed0 400 --out FILE.jsonl
    python benchmarks/label_free.py --out FILE.jsonl --report

Worlds are digits (five clients, ten sets each, about 23 rows a set) and the Gaussian worlds of gaussian_worlds.py, with
priors of a population rounded to four decimals; `large` has 96,000 rows. A federation is trained by `fedul` (30 rounds,
5 in `large`), and evaluated by five folds. The truth is the accuracy of the delivered classifier on test rows. --out
gets one line per federation; finished ones are not repeated. The last form prints the table of
docs/results/label-free.md. Nothing was fitted on these worlds; seeds below 400 were used in development.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fedul
from _measure import IgnoreWarnings, append_line, read_lines
from fedul.classifier import Classifier
from fedul.core import Federation
from fedul.evaluation.cross_fit import cross_fit
from fedul.evaluation.label_free import estimate_accuracy
from gaussian_worlds import THREE, WORLDS, World, boosted, draw

Line = dict[str, Any]
NAMES = ("digits", "rare", "overlap", "one client", "tiny sets", "large")
GAUSSIAN = {**WORLDS, "large": World(THREE, boosted, clients=5, sets=12, rows=(1600, 1600))}
ROUNDS = {"large": 5}


def make_trainer(rounds: int) -> Callable[[Federation], Classifier]:
    """Return the function that trains a model."""
    settings: Line = {"method": "fedul", "rounds": rounds, "select": "last", "evaluate_every": 0, "force": True}

    def train(federation: Federation) -> Classifier:
        return fedul.train(federation, callbacks=[IgnoreWarnings()], **settings).classifier

    return train


def measure(world: str, priors: str, seed: int) -> Line:
    """Return estimated and true accuracy of one federation."""
    train = make_trainer(ROUNDS.get(world, 30))
    if world == "digits":
        study = fedul.load("digits", seed=seed, clients=5, sets=10, sets_overlap=False, prior_recipe=priors)
        federation, classifier = study.federation, train(study.federation)
        inputs, labels = study.truth.test_inputs, study.truth.test_labels
        right = classifier.predict_proba(inputs).argmax(axis=1) == labels
    else:
        sample = draw(GAUSSIAN[world], seed)
        federation, classifier = sample.federation, train(sample.federation)
        right = np.concatenate(
            [
                classifier.predict_proba(sample.test_inputs[name]).argmax(axis=1) == sample.test_labels[name]
                for name in sample.test_inputs
            ]
        )
    estimate = estimate_accuracy(cross_fit(federation, train))
    accuracy, refusal, effects = estimate.accuracy, estimate.refusal, estimate.effects
    return {
        "world": world,
        "priors": priors,
        "seed": seed,
        "true": float(right.mean()),
        "test_rows": len(right),
        "estimated": accuracy.value,
        "low": accuracy.low,
        "high": accuracy.high,
        "refused": None if refusal is None else refusal.reason,
        "visible": effects.visible,
        "spread_p_value": effects.spread_p_value,
        "width_with_labels": estimate.width_with_labels,
    }


def report(lines: list[Line]) -> str:
    """Return the table of the results page. The interval covers if it contains the truth within its sampling error."""
    rows = [
        "| world | seeds | accuracy % | bias | coverage | width | width with labels | not estimated |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for key, group in itertools.groupby(sorted(lines, key=_key), _key):
        found = list(group)
        given = [line for line in found if line["refused"] is None]
        mean = {
            k: np.mean([line[k] for line in given]) for k in ("true", "estimated", "low", "high", "width_with_labels")
        }
        covered = sum(line["low"] <= line["true"] <= line["high"] for line in given)
        seeds = [line["seed"] for line in found]
        rows.append(
            f"| {', '.join(filter(None, key))} | {min(seeds)} to {max(seeds)} | {100 * mean['true']:.2f} | "
            f"{100 * (mean['estimated'] - mean['true']):+.2f} | **{covered} of {len(given)}** | "
            f"{100 * (mean['high'] - mean['low']):.2f} | {100 * mean['width_with_labels']:.2f} | "
            f"{len(found) - len(given)} of {len(found)} |"
        )
    return "\n".join(rows)


def _key(line: Line) -> tuple[str, str]:
    return line["world"], line["priors"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", choices=NAMES, default="digits")
    parser.add_argument("--priors", choices=("boosted", "text"), default="boosted", help="of digits")
    parser.add_argument("--federations", type=int, default=20)
    parser.add_argument("--seed0", type=int, default=400)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--report", action="store_true", help="print the table of all lines")
    options = parser.parse_args()
    priors = options.priors if options.world == "digits" else ""
    if not options.report:
        done = {(*_key(line), line["seed"]) for line in read_lines(options.out)}
        for seed in range(options.seed0, options.seed0 + options.federations):
            if (options.world, priors, seed) not in done:
                append_line(options.out, measure(options.world, priors, seed))
    print(report(read_lines(options.out)))


if __name__ == "__main__":
    main()
