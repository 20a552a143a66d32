"""Accuracy without labels, and the test of the assumption, on random federations whose truth is known.

    python benchmarks/label_free.py --priors boosted --federations 200 --out boosted.jsonl [--seed0 100] [--strange 20]
    python benchmarks/label_free.py --data mnist --rows 12000 --rounds 10 --model small-cnn --strange 0 --out FILE

A line a federation is kept in --out, and what is there is not done again (15 s a federation of digits on a quiet core).
The first --strange federations are also judged with one client whose images are inverted, and with one whose class
priors are in the wrong order. Constants of the estimator were chosen on digits: seeds 0 to 19, 100 to 199 and 1000 to
1014 were looked at; report on others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fedul
from fedul.classifier import Classifier
from fedul.evaluation.assumption import check_assumption
from fedul.evaluation.crossfit import cross_fit
from fedul.evaluation.without_truth import LEVEL, OTHERS, estimate, interval
from fedul.federation import Federation
from fedul.training import Quiet

STRANGE = "client-3"
DEFAULTS = {"data": "digits", "rows": 0, "rounds": 30, "model": "auto", "priors": "boosted"}


class Silent(Quiet):
    """Says nothing of priors that single clients could not do with."""

    def warn(self, sentence: str) -> None:
        pass


def training(rounds: int, model: str) -> Callable[[Federation], Classifier]:
    settings: dict[str, Any] = {"rounds": rounds, "model": model, "select": "last", "evaluate_every": 0}

    def train(federation: Federation) -> Classifier:
        return fedul.train(federation, force=True, reporter=Silent(), **settings).classifier

    return train


def inverted(federation: Federation) -> Federation:
    """One client's scanner swaps ink and paper."""
    return _changed(federation, lambda client: replace(client, inputs=client.inputs.max() - client.inputs))


def permuted(federation: Federation) -> Federation:
    """One client has the columns of its class priors in another order."""
    return _changed(federation, lambda client: replace(client, priors=np.roll(client.priors, 3, axis=1)))


def _changed(federation: Federation, change: Callable[[Any], Any]) -> Federation:
    clients = [change(client) if client.name == STRANGE else client for client in federation.clients]
    return replace(federation, clients=clients)


def measured(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One federation: what is estimated, what is true, and what the test says."""
    dealt = {"clients": 5, "sets": 10, "sets_overlap": False, "prior_recipe": options.priors, "rows": options.rows}
    study = fedul.load(options.data, seed=seed, **dealt)
    federation, truth = study.federation, study.truth
    run = fedul.train(study, rounds=options.rounds, model=options.model, reporter=Silent())
    judged = cross_fit(federation, training(run.selected_round, options.model))
    figures = estimate(judged)
    accuracy, test = figures.accuracy, check_assumption(judged)
    labels = [truth.train_labels[client.name] for client in judged.clients]
    right = [client.probabilities.argmax(1) == own for client, own in zip(judged.clients, labels, strict=True)]
    held_out = []
    for client in federation.clients:
        predicted = run.classifier.predict_proba(client.inputs[client.held_out.index]).argmax(1)
        held_out.append(predicted == truth.held_out_labels[client.name])
    line = {
        "seed": seed,
        **told(options),
        "estimated": accuracy.value,
        "low": accuracy.low,
        "high": accuracy.high,
        "low_alike": accuracy.low_alike,
        "high_alike": accuracy.high_alike,
        "width_with_labels": figures.width_with_labels,
        "true": 1 - run.test_error,
        "true_judged": float(np.concatenate(right).mean()),
        "true_held_out": float(np.concatenate(held_out).mean()),
        "p_value": test.p_value,
        "named": [misfit.client for misfit in test.misfits],
    }
    if seed - options.seed0 < options.strange:
        for change in (inverted, permuted):
            found = check_assumption(cross_fit(change(federation), training(run.selected_round, options.model)))
            line[change.__name__] = {"p_value": found.p_value, "named": [misfit.client for misfit in found.misfits]}
    return line


def told(options: argparse.Namespace) -> dict[str, Any]:
    """The options that lines must share to be of one kind."""
    return {name: getattr(options, name) for name in DEFAULTS}


def widened(line: dict[str, Any]) -> dict[str, Any]:
    """The line with its interval for the population as `OTHERS` has it now; that for rows alike is as it was."""
    value = line["estimated"]
    odds = np.log([each / (1 - each) for each in (line["low_alike"], value, line["high_alike"])])
    variance = (max(odds[1] - odds[0], odds[2] - odds[1]) * value * (1 - value) / LEVEL) ** 2
    low, high = interval(value, variance + OTHERS**2 * value * (1 - value))
    return {**line, "low": low, "high": high}


def summary(lines: list[dict[str, Any]]) -> str:
    lines = [widened(line) for line in lines]
    of = {key: np.array([line[key] for line in lines]) for key in lines[0] if isinstance(lines[0][key], float)}

    def covered(low: str, high: str, true: str) -> str:
        return f"{np.mean((of[low] <= of[true]) & (of[true] <= of[high])):.0%}"

    said = [f"{len(lines)} federations of {lines[0]['data']}, {lines[0]['priors']} priors"]
    for true, name in (("true", "test rows"), ("true_held_out", "held-out rows"), ("true_judged", "judged rows")):
        said.append(
            f"  {name}: accuracy {of[true].mean():.2%}, estimate off by {(of['estimated'] - of[true]).mean():+.2%}, "
            f"covered {covered('low', 'high', true)}; by the interval for rows alike "
            f"{covered('low_alike', 'high_alike', true)}"
        )
    said.append(
        f"  width {(of['high'] - of['low']).mean():.2%}, for rows alike "
        f"{(of['high_alike'] - of['low_alike']).mean():.2%}, with labels {of['width_with_labels'].mean():.2%}"
    )
    said.append(f"  assumption rejected where it holds: {np.mean(of['p_value'] < 0.05):.1%}")
    for kind in ("inverted", "permuted"):
        if found := [line[kind] for line in lines if kind in line]:
            caught = np.mean([STRANGE in one["named"] for one in found])
            alone = np.mean([one["named"] == [STRANGE] for one in found])
            said.append(f"  {kind} client named: {caught:.0%} of {len(found)}, and nobody else: {alone:.0%}")
    return "\n".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--rows", type=int, help="training rows, 0 for all")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--model")
    parser.add_argument("--priors", choices=("boosted", "text"))
    parser.add_argument("--federations", type=int, default=20)
    parser.add_argument("--seed0", type=int, default=100)
    parser.add_argument("--strange", type=int, default=20, help="so many also with a strange client")
    parser.add_argument("--out", type=Path, required=True)
    parser.set_defaults(**DEFAULTS)
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    lines = [line for each in lines if told(options).items() <= (line := DEFAULTS | each).items()]
    seeds = range(options.seed0, options.seed0 + options.federations)
    for seed in seeds:
        if seed not in {line["seed"] for line in lines}:
            lines.append(measured(seed, options))
            with options.out.open("a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    print(summary([line for line in lines if line["seed"] in seeds]))


if __name__ == "__main__":
    main()
