"""Populations whose class mix is not the one trained for: error and estimated mix, where the truth is known.

    python benchmarks/shifted.py --data digits --priors boosted --federations 10 --out FILE.jsonl [--seed0 100]
    python benchmarks/shifted.py --out FILE.jsonl --report

A line a federation and shift is kept in --out, and what is there is not done again (a training takes 5 s on digits, a
minute on MNIST, on a quiet core). Each shift is a population of 1,000 test rows: their classes are drawn by its mix,
then for each class so many of its test rows, no row twice; where a class has too few, with replacement. The error is
that of the classifier for the mix it was trained for, for the true mix, and for the one estimated from the rows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import fedul
from _measure import show_table
from fedul.classifier import Classifier
from fedul.evaluation.class_mix import estimated_mix
from fedul.priors import Matrix
from fedul.randomness import numpy_generator
from fedul.truth import Labels, Truth
from label_free import Silent

ROWS = 1_000
SHIFTS = ("dirichlet-1", "dirichlet-2", "dirichlet-3", "one-half", "two-absent")
KINDS = ("dirichlet", "one-half", "two-absent", "")
CLOSE = 0.03
TRAINING: dict[str, dict[str, Any]] = {
    "digits": {"rounds": 30},
    "mnist": {"rounds": 15, "model": "small-cnn"},
}
DATA: dict[str, dict[str, Any]] = {"digits": {}, "mnist": {"rows": 12_000}}


def mix_of(shift: str, seed: int, classes: int) -> Matrix:
    """The class mix (K,) of a shifted population."""
    generator = numpy_generator(seed, "mix", shift)
    if shift.startswith("dirichlet"):
        drawn: Matrix = generator.dirichlet(np.full(classes, 0.5))
        return drawn
    chosen = generator.permutation(classes)
    mix = np.ones(classes)
    if shift == "one-half":
        mix[chosen[0]] = classes - 1
    else:
        mix[chosen[:2]] = 0
    return mix / mix.sum()


def drawn(labels: Labels, mix: Matrix, generator: np.random.Generator) -> Labels:
    """Numbers (ROWS,) of rows whose classes are drawn by `mix`; no row twice, unless a class has too few."""
    counts = generator.multinomial(ROWS, mix)
    of_class = [np.flatnonzero(labels == k) for k in range(len(mix))]
    parts = [generator.choice(own, n, replace=n > len(own)) for own, n in zip(of_class, counts, strict=True)]
    return np.concatenate(parts)


def measured(classifier: Classifier, truth: Truth, shift: str, seed: int) -> dict[str, Any]:
    """One shifted population: errors, the estimated mix, and how far it is from the true one."""
    classes = len(classifier.classes)
    mix = mix_of(shift, seed, classes)
    rows = drawn(truth.test_labels, mix, numpy_generator(seed, "rows", shift))
    inputs, labels = truth.test_inputs[rows], truth.test_labels[rows]
    found = estimated_mix(classifier.predict_proba(inputs), classifier.prior)

    def error(prior: Matrix) -> float:
        return float(np.mean(classifier.with_prior(prior).predict_proba(inputs).argmax(1) != labels))

    shares = np.bincount(labels, minlength=classes) / ROWS
    return {
        "error_trained": error(classifier.prior),
        "error_known": error(mix),
        "error_estimated": error(found.shares),
        "off": float(np.abs(found.shares - mix).max()),
        "off_from_rows": float(np.abs(found.shares - shares).max()),
        "off_with_labels": float(np.abs(shares - mix).max()),
        "covered": int(np.sum((found.low <= mix) & (mix <= found.high))),
        "distinct_rows": len(np.unique(rows)),
        "mix": mix.round(4).tolist(),
        "estimated": found.shares.round(4).tolist(),
    }


def federation(data: str, priors: str, seed: int, shifts: Iterable[str]) -> Iterable[dict[str, Any]]:
    """A line for each shift, of one training."""
    study = fedul.load(data, clients=5, sets=10, sets_overlap=False, prior_recipe=priors, seed=seed, **DATA[data])
    run = fedul.train(study, seed=seed, evaluate_every=0, reporter=Silent(), **TRAINING[data])
    for shift in shifts:
        line = {"data": data, "priors": priors, "seed": seed, "shift": shift}
        line |= {"error": run.test_error, "calibration_error": run.calibration_error}
        yield line | measured(run.classifier, study.truth, shift, seed)


def report(lines: list[dict[str, Any]]) -> None:
    """A table of federations as they are, and one of shifts."""
    groups = sorted({(line["data"], line["priors"]) for line in lines})
    unshifted = [["data", "priors", "federations", "error %", "calibration error", "largest"]]
    shifted = [
        ["data", "priors", "shift", "n", "trained %", "known %", "estimated %", "regained", "mix off by", "close"]
    ]
    shifted[0] += ["from that of the rows", "close", "labels off by", "close", "intervals that cover"]
    for data, priors in groups:
        own = [line for line in lines if (line["data"], line["priors"]) == (data, priors)]
        runs = {line["seed"]: line for line in own}.values()
        apart = [run["calibration_error"] for run in runs]
        cells = [f"{100 * np.mean([run['error'] for run in runs]):.2f}", f"{np.mean(apart):.3f}", f"{max(apart):.3f}"]
        unshifted.append([data, priors, str(len(runs)), *cells])
        by_kind = {kind: [line for line in own if line["shift"].startswith(kind)] for kind in KINDS}
        shifted += [[data, priors, kind or "all", *figures(some)] for kind, some in by_kind.items() if some]
    show_table(unshifted)
    print()
    show_table(shifted)


def figures(lines: list[dict[str, Any]]) -> list[str]:
    """Means over shifted populations, as a row of the table; a mix is close if no class is off by more than 0.03."""
    of = {key: np.array([line[key] for line in lines]) for key in lines[0] if isinstance(lines[0][key], float | int)}
    cells = [str(len(lines))]
    trained, known, estimated = (of[f"error_{prior}"].mean() for prior in ("trained", "known", "estimated"))
    cells += [f"{100 * error:.2f}" for error in (trained, known, estimated)]
    cells.append(f"{(trained - estimated) / (trained - known):.0%}")
    for off in (of["off"], of["off_from_rows"], of["off_with_labels"]):
        cells += [f"{off.mean():.3f}", f"{np.mean(off <= CLOSE):.0%}"]
    return [*cells, f"{of['covered'].sum() / sum(len(line['mix']) for line in lines):.0%}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=tuple(DATA), default="digits")
    parser.add_argument("--priors", choices=("boosted", "text"), default="boosted")
    parser.add_argument("--federations", type=int, default=10)
    parser.add_argument("--seed0", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--report", action="store_true", help="only show what is in --out")
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {(line["data"], line["priors"], line["seed"], line["shift"]) for line in lines}
    for seed in [] if options.report else range(options.seed0, options.seed0 + options.federations):
        if missing := [shift for shift in SHIFTS if (options.data, options.priors, seed, shift) not in done]:
            for line in federation(options.data, options.priors, seed, missing):
                lines.append(line)
                with options.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    report(lines)


if __name__ == "__main__":
    main()
