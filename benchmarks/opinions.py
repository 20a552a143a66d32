"""Accuracy without labels as real sites tell of it: how often the interval of all opinions together covers the truth.

    python benchmarks/opinions.py [--first 340] [--seeds 40] [--sites 3] [--json FILE]

Digits; each site judges the classifier by its own held-out rows, as in a run on Flower, and nothing else is sent. The
truth is the accuracy on digits by other writers.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

import fedul
from fedul.engines.flower.opinion import opinion, together

RECIPES = ("boosted", "text")
ROUNDS = 20


def judged(recipe: str, seed: int, sites: int) -> dict[str, Any]:
    """One federation: what its sites say, and the truth."""
    study = fedul.load("digits", clients=sites, prior_recipe=recipe, seed=seed)
    federation, truth = study.federation, study.truth
    classifier = fedul.train(study, rounds=ROUNDS, seed=seed).classifier
    assert truth is not None
    right = classifier.predict(truth.test_inputs) == np.array(federation.classes)[truth.test_labels]
    told = {
        client.name: opinion(client, federation, classifier.module, classifier.temperature)
        for client in federation.clients
    }
    found = together(told, federation.classes, {client.name: len(client.held_out) for client in federation.clients})
    assert found is not None
    low, high = found["interval"]
    return {
        "recipe": recipe,
        "seed": seed,
        "accuracy": float(right.mean()),
        "estimate": found["estimated_accuracy"],
        "low": low,
        "high": high,
    }


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the federations of one recipe."""
    widths = [line["high"] - line["low"] for line in lines]
    return {
        "federations": len(lines),
        "covered": sum(line["low"] <= line["accuracy"] <= line["high"] for line in lines),
        "bias": round(mean(line["estimate"] - line["accuracy"] for line in lines), 4),
        "width": round(median(widths), 4),
        "widest": round(max(widths), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=340)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {"sites": options.sites, "rounds": ROUNDS}
    for recipe in RECIPES:
        seeds = range(options.first, options.first + options.seeds)
        lines = [judged(recipe, seed, options.sites) for seed in seeds]
        found[recipe] = {**summary(lines), "lines": lines}
        print(recipe, json.dumps(summary(lines)), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
