"""Accuracy without labels and the assumption test, on random federations whose truth is known.

    python benchmarks/label_free.py --priors boosted --federations 200 --out boosted.jsonl [--seed0 100] [--altered 20]
    python benchmarks/label_free.py --data mnist --rows 12000 --rounds 10 --model small-cnn --altered 0 --out FILE

--out gets one line per federation; finished ones are not repeated (15 s per federation of digits on an idle core). The
first --altered federations are also evaluated with one client whose images are inverted, and with one whose class
priors are in the wrong order. The constants of the estimator were chosen on digits with seeds 0 to 19, 100 to 199 and
1000 to 1014; report on other seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fedul
from _measure import IgnoreWarnings, append_line, read_lines
from fedul.classifier import Classifier
from fedul.core import SIGNIFICANCE, Z_95, Federation
from fedul.evaluation.assumption import check_assumption
from fedul.evaluation.cross_fit import cross_fit
from fedul.evaluation.intervals import POPULATION, interval
from fedul.evaluation.label_free import estimate_accuracy

ALTERED = "client-3"
DEFAULTS = {"data": "digits", "rows": 0, "rounds": 30, "model": "auto", "priors": "boosted"}


def make_trainer(rounds: int, model: str) -> Callable[[Federation], Classifier]:
    """Return the function that trains the model of a fold."""
    settings: dict[str, Any] = {"rounds": rounds, "model": model, "select": "last", "evaluate_every": 0}

    def train(federation: Federation) -> Classifier:
        return fedul.train(federation, force=True, callbacks=[IgnoreWarnings()], **settings).classifier

    return train


def inverted(federation: Federation) -> Federation:
    """Return the federation with the images of one client inverted."""
    return _alter(federation, lambda client: replace(client, inputs=client.inputs.max() - client.inputs))


def permuted(federation: Federation) -> Federation:
    """Return the federation with the class priors of one client in the wrong order."""
    return _alter(federation, lambda client: replace(client, priors=np.roll(client.priors, 3, axis=1)))


def _alter(federation: Federation, change: Callable[[Any], Any]) -> Federation:
    clients = [change(client) if client.name == ALTERED else client for client in federation.clients]
    return replace(federation, clients=clients)


def measure(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return estimated and true accuracy and the assumption test of one federation."""
    split = {"clients": 5, "sets": 10, "sets_overlap": False, "prior_recipe": options.priors, "rows": options.rows}
    study = fedul.load(options.data, seed=seed, **split)
    federation, truth = study.federation, study.truth
    run = fedul.train(study, rounds=options.rounds, model=options.model, callbacks=[IgnoreWarnings()])
    predictions = cross_fit(federation, make_trainer(run.selected_round, options.model))
    estimate, test = estimate_accuracy(predictions), check_assumption(predictions)
    accuracy = estimate.accuracy
    correct = [each.probabilities.argmax(1) == truth.train_labels[each.name] for each in predictions.clients]
    held_out = []
    for client in federation.clients:
        predicted = run.classifier.predict_proba(client.inputs[client.held_out.index]).argmax(1)
        held_out.append(predicted == truth.held_out_labels[client.name])
    line = {
        "seed": seed,
        **group_of(options),
        "estimated": accuracy.value,
        "low": accuracy.low,
        "high": accuracy.high,
        "clients_low": accuracy.clients_low,
        "clients_high": accuracy.clients_high,
        "width_with_labels": estimate.width_with_labels,
        "true": 1 - run.test_error,
        "true_out_of_fold": float(np.concatenate(correct).mean()),
        "true_held_out": float(np.concatenate(held_out).mean()),
        "p_value": test.p_value,
        "named": [misfit.client for misfit in test.misfits],
    }
    if seed - options.seed0 < options.altered:
        for change in (inverted, permuted):
            test = check_assumption(cross_fit(change(federation), make_trainer(run.selected_round, options.model)))
            line[change.__name__] = {"p_value": test.p_value, "named": [misfit.client for misfit in test.misfits]}
    return line


def group_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that all lines of a summary share."""
    return {name: getattr(options, name) for name in DEFAULTS}


def with_current_interval(line: dict[str, Any]) -> dict[str, Any]:
    """Return the line with the population interval of the current `POPULATION`; the other interval is unchanged."""
    value = line["estimated"]
    odds = np.log([each / (1 - each) for each in (line["clients_low"], value, line["clients_high"])])
    variance = (max(odds[1] - odds[0], odds[2] - odds[1]) * value * (1 - value) / Z_95) ** 2
    low, high = interval(value, variance + POPULATION**2 * value * (1 - value))
    return {**line, "low": low, "high": high}


def summarize(lines: list[dict[str, Any]]) -> str:
    """Return bias, coverage and the results of the assumption test as text."""
    lines = [with_current_interval(line) for line in lines]
    of = {key: np.array([line[key] for line in lines]) for key in lines[0] if isinstance(lines[0][key], float)}

    def coverage(low: str, high: str, true: str) -> str:
        return f"{np.mean((of[low] <= of[true]) & (of[true] <= of[high])):.0%}"

    text = [f"{len(lines)} federations of {lines[0]['data']}, {lines[0]['priors']} priors"]
    for true, name in (
        ("true", "test rows"),
        ("true_held_out", "held-out rows"),
        ("true_out_of_fold", "out-of-fold rows"),
    ):
        text.append(
            f"  {name}: accuracy {of[true].mean():.2%}, bias {(of['estimated'] - of[true]).mean():+.2%}, "
            f"coverage {coverage('low', 'high', true)}; of the interval for the clients' rows "
            f"{coverage('clients_low', 'clients_high', true)}"
        )
    text.append(
        f"  width {(of['high'] - of['low']).mean():.2%}, for the clients' rows "
        f"{(of['clients_high'] - of['clients_low']).mean():.2%}, with labels {of['width_with_labels'].mean():.2%}"
    )
    text.append(f"  assumption rejected where it holds: {np.mean(of['p_value'] < SIGNIFICANCE):.1%}")
    for kind in ("inverted", "permuted"):
        if found := [line[kind] for line in lines if kind in line]:
            named = np.mean([ALTERED in one["named"] for one in found])
            only = np.mean([one["named"] == [ALTERED] for one in found])
            text.append(f"  {kind} client named: {named:.0%} of {len(found)}, as the only one: {only:.0%}")
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--rows", type=int, help="training rows, 0 for all")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--model")
    parser.add_argument("--priors", choices=("boosted", "text"))
    parser.add_argument("--federations", type=int, default=20)
    parser.add_argument("--seed0", type=int, default=100)
    parser.add_argument(
        "--altered", type=int, default=20, help="federations that are also evaluated with an altered client"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.set_defaults(**DEFAULTS)
    options = parser.parse_args()
    lines = [line for each in read_lines(options.out) if group_of(options).items() <= (line := DEFAULTS | each).items()]
    seeds = range(options.seed0, options.seed0 + options.federations)
    for seed in seeds:
        if seed not in {line["seed"] for line in lines}:
            lines.append(measure(seed, options))
            append_line(options.out, lines[-1])
    print(summarize([line for line in lines if line["seed"] in seeds]))


if __name__ == "__main__":
    main()
