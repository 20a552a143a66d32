"""Accuracy without labels in a run on Flower: how often the combined interval of all sites covers the truth.

    python benchmarks/local_evaluation.py [--first 340] [--seeds 40] [--sites 3] [--json FILE]

Digits. Each site evaluates the classifier on its held-out rows, as in a run on Flower, and sends only its estimate. The
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
from fedul.engines.flower.server.local_evaluation import combine_local_evaluations
from fedul.engines.flower.site.local_evaluation import evaluate_locally

RECIPES = ("boosted", "text")
ROUNDS = 20


def measure(recipe: str, seed: int, sites: int) -> dict[str, Any]:
    """Return the combined estimate of the sites and the true accuracy of one federation."""
    study = fedul.load("digits", clients=sites, prior_recipe=recipe, seed=seed)
    federation, truth = study.federation, study.truth
    classifier = fedul.train(study, rounds=ROUNDS, seed=seed).classifier
    assert truth is not None
    correct = classifier.predict(truth.test_inputs) == np.array(federation.classes)[truth.test_labels]
    evaluations = {
        client.name: evaluate_locally(client, federation.spec, classifier.module, classifier.temperature)
        for client in federation.clients
    }
    combined = combine_local_evaluations(evaluations, federation.classes)
    assert combined is not None
    low, high = combined.interval
    return {
        "recipe": recipe,
        "seed": seed,
        "accuracy": float(correct.mean()),
        "estimate": combined.estimated_accuracy,
        "low": low,
        "high": high,
    }


def summarize(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return coverage, bias and width over the federations of one recipe."""
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
    results: dict[str, Any] = {"sites": options.sites, "rounds": ROUNDS}
    for recipe in RECIPES:
        seeds = range(options.first, options.first + options.seeds)
        lines = [measure(recipe, seed, options.sites) for seed in seeds]
        results[recipe] = {**summarize(lines), "lines": lines}
        print(recipe, json.dumps(summarize(lines)), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
