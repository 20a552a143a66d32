"""Coverage of prediction sets in Gaussian worlds: how often they contain the true class of test rows.

python benchmarks/prediction_sets.py [--worlds overlap rare "one client" "tiny sets"] [--seeds 500 501 502 503]

Prints the table of docs/results/label-free.md. Method `fedul`, 30 rounds.
"""

from __future__ import annotations

import argparse

import numpy as np

import fedul
from _measure import IgnoreWarnings
from fedul.core import Study
from gaussian_worlds import WORLDS, draw

COVERAGES = (0.8, 0.9, 0.95)


def measure(world: str, seed: int) -> list[float]:
    """Return the accuracy on test rows, and the share of prediction sets that contain the true class."""
    sample = draw(WORLDS[world], seed)
    run = fedul.train(
        Study(sample.federation, None), method="fedul", rounds=30, force=True, callbacks=[IgnoreWarnings()]
    )
    inputs = np.concatenate(list(sample.test_inputs.values()))
    truth = [f"c{label}" for label in np.concatenate(list(sample.test_labels.values()))]
    right = [float(np.mean(run.classifier.predict(inputs) == np.array(truth)))]
    for coverage in COVERAGES:
        sets = run.classifier.predict_set(inputs, coverage=coverage)
        right.append(float(np.mean([name in names for name, names in zip(truth, sets, strict=True)])))
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", default=["overlap", "rare", "one client", "tiny sets"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[500, 501, 502, 503])
    options = parser.parse_args()
    print("| world | accuracy | nominal 80 % | 90 % | 95 % |\n|---|---:|---:|---:|---:|")
    for world in options.worlds:
        shares = np.mean([measure(world, seed) for seed in options.seeds], axis=0)
        print(f"| {world} | " + " | ".join(f"{100 * share:.1f}" for share in shares) + " |")


if __name__ == "__main__":
    main()
