"""Prior shift: error and estimated class mix on populations whose class mix differs from the test prior.

    python benchmarks/prior_shift.py --data digits --priors boosted --federations 10 --out FILE.jsonl [--seed0 100]
    python benchmarks/prior_shift.py --out FILE.jsonl --report

--out gets one line per federation and shift; finished ones are not repeated (a training takes 5 s on digits and a
minute on MNIST, on an idle core). Each shifted population has 1,000 test rows: the number of rows per class is drawn
from its class mix, then rows of each class are drawn without replacement, or with replacement if a class has too few.
The error is that of the classifier with the prior it was trained for, with the true mix, and with the estimated mix.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import fedul
from _measure import IgnoreWarnings, append_line, print_table, read_lines
from fedul._utils.randomness import numpy_generator
from fedul.classifier import Classifier
from fedul.core import Labels, Matrix, Truth
from fedul.evaluation.class_mix import estimate_class_mix

ROWS = 1_000
SHIFTS = ("dirichlet-1", "dirichlet-2", "dirichlet-3", "one-half", "two-absent")
KINDS = ("dirichlet", "one-half", "two-absent", "")
CLOSE = 0.03
"""Largest deviation of a class share that counts as close."""

TRAINING: dict[str, dict[str, Any]] = {
    "digits": {"rounds": 30},
    "mnist": {"rounds": 15, "model": "small-cnn"},
}
DATA: dict[str, dict[str, Any]] = {"digits": {}, "mnist": {"rows": 12_000}}


def mix_of(shift: str, seed: int, classes: int) -> Matrix:
    """Return the class mix (K,) of a shifted population."""
    generator = numpy_generator(seed, "mix", shift)
    if shift.startswith("dirichlet"):
        dirichlet: Matrix = generator.dirichlet(np.full(classes, 0.5))
        return dirichlet
    chosen = generator.permutation(classes)
    mix = np.ones(classes)
    if shift == "one-half":
        mix[chosen[0]] = classes - 1
    else:
        mix[chosen[:2]] = 0
    return mix / mix.sum()


def sample_rows(labels: Labels, mix: Matrix, generator: np.random.Generator) -> Labels:
    """Return indices (ROWS,) of rows whose classes follow `mix`; without replacement if a class has enough."""
    counts = generator.multinomial(ROWS, mix)
    of_class = [np.flatnonzero(labels == k) for k in range(len(mix))]
    parts = [generator.choice(rows, n, replace=n > len(rows)) for rows, n in zip(of_class, counts, strict=True)]
    return np.concatenate(parts)


def measure(classifier: Classifier, truth: Truth, shift: str, seed: int) -> dict[str, Any]:
    """Return errors and the deviation of the estimated mix for one shifted population."""
    classes = len(classifier.classes)
    mix = mix_of(shift, seed, classes)
    rows = sample_rows(truth.test_labels, mix, numpy_generator(seed, "rows", shift))
    inputs, labels = truth.test_inputs[rows], truth.test_labels[rows]
    estimate = estimate_class_mix(classifier.predict_proba(inputs), classifier.prior)

    def error(prior: Matrix) -> float:
        return float(np.mean(classifier.with_prior(prior).predict_proba(inputs).argmax(1) != labels))

    shares = np.bincount(labels, minlength=classes) / ROWS
    return {
        "error_trained": error(classifier.prior),
        "error_known": error(mix),
        "error_estimated": error(estimate.shares),
        "mix_error": float(np.abs(estimate.shares - mix).max()),
        "mix_error_to_rows": float(np.abs(estimate.shares - shares).max()),
        "mix_error_of_labels": float(np.abs(shares - mix).max()),
        "covered": int(np.sum((estimate.low <= mix) & (mix <= estimate.high))),
        "distinct_rows": len(np.unique(rows)),
        "mix": mix.round(4).tolist(),
        "estimated": estimate.shares.round(4).tolist(),
    }


def measure_shifts(data: str, priors: str, seed: int, shifts: Iterable[str]) -> Iterable[dict[str, Any]]:
    """Train once and yield one line per shift."""
    study = fedul.load(data, clients=5, sets=10, sets_overlap=False, prior_recipe=priors, seed=seed, **DATA[data])
    run = fedul.train(study, seed=seed, evaluate_every=0, callbacks=[IgnoreWarnings()], **TRAINING[data])
    for shift in shifts:
        line = {"data": data, "priors": priors, "seed": seed, "shift": shift}
        line |= {"error": run.test_error, "calibration_error": run.result.calibration_error}
        yield line | measure(run.classifier, study.truth, shift, seed)


def report(lines: list[dict[str, Any]]) -> None:
    """Print a table without shift, and one per shift."""
    groups = sorted({(line["data"], line["priors"]) for line in lines})
    unshifted = [["data", "priors", "federations", "error %", "calibration error", "largest"]]
    shifted = [
        ["data", "priors", "shift", "n", "trained %", "known %", "estimated %", "gain kept", "mix error", "<= 0.03"]
    ]
    shifted[0] += ["to the rows' mix", "<= 0.03", "of all labels", "<= 0.03", "coverage"]
    for data, priors in groups:
        group = [line for line in lines if (line["data"], line["priors"]) == (data, priors)]
        runs = {line["seed"]: line for line in group}.values()
        calibration = [run["calibration_error"] for run in runs]
        cells = [
            f"{100 * np.mean([run['error'] for run in runs]):.2f}",
            f"{np.mean(calibration):.3f}",
            f"{max(calibration):.3f}",
        ]
        unshifted.append([data, priors, str(len(runs)), *cells])
        by_kind = {kind: [line for line in group if line["shift"].startswith(kind)] for kind in KINDS}
        shifted += [[data, priors, kind or "all", *format_means(some)] for kind, some in by_kind.items() if some]
    print_table(unshifted)
    print()
    print_table(shifted)


def format_means(lines: list[dict[str, Any]]) -> list[str]:
    """Return means over shifted populations as cells of the table."""
    of = {key: np.array([line[key] for line in lines]) for key in lines[0] if isinstance(lines[0][key], float | int)}
    cells = [str(len(lines))]
    trained, known, estimated = (of[f"error_{prior}"].mean() for prior in ("trained", "known", "estimated"))
    cells += [f"{100 * error:.2f}" for error in (trained, known, estimated)]
    cells.append(f"{(trained - estimated) / (trained - known):.0%}")
    for name in ("mix_error", "mix_error_to_rows", "mix_error_of_labels"):
        cells += [f"{of[name].mean():.3f}", f"{np.mean(of[name] <= CLOSE):.0%}"]
    return [*cells, f"{of['covered'].sum() / sum(len(line['mix']) for line in lines):.0%}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=tuple(DATA), default="digits")
    parser.add_argument("--priors", choices=("boosted", "text"), default="boosted")
    parser.add_argument("--federations", type=int, default=10)
    parser.add_argument("--seed0", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--report", action="store_true", help="only print what is in --out")
    options = parser.parse_args()
    lines = read_lines(options.out)
    done = {(line["data"], line["priors"], line["seed"], line["shift"]) for line in lines}
    for seed in [] if options.report else range(options.seed0, options.seed0 + options.federations):
        if missing := [shift for shift in SHIFTS if (options.data, options.priors, seed, shift) not in done]:
            for line in measure_shifts(options.data, options.priors, seed, missing):
                lines.append(line)
                append_line(options.out, line)
    report(lines)


if __name__ == "__main__":
    main()
