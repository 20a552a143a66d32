"""The losses of FedUL compared: -log Q, the Brier score, and the second softmax of the published code.

    python benchmarks/loss.py --out FOLDER [--data mnist|digits] [--seeds 3] [--data-dir FOLDER] [--only log,authors]

MNIST: small-cnn, 10 sets, boosted priors, iid and noniid, 15 rounds, one thread: 5 minutes per run on one core.
Finished runs in FOLDER are not repeated, so an interrupted command can continue, and two processes can run different
--splits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import fedul
from fedul.config import BenchmarkDataConfig, TrainConfig
from fedul.data.load import load_study
from fedul.training import RunFolder
from fedul.training.truth_metrics import calibration_error

SETTINGS: dict[str, dict[str, Any]] = {
    "mnist": {"model": "small-cnn", "rounds": 15, "threads": 1},
    "digits": {"rounds": 30, "threads": 1},
}


def run(data: BenchmarkDataConfig, loss: str, learning_rate: float, folder: Path) -> dict[str, float]:
    """Return error and calibration of one run; a finished run is read from its folder."""
    study = load_study(data)
    result = RunFolder(folder).result()
    if result is None:
        config = TrainConfig(seed=data.seed, loss=loss, learning_rate=learning_rate, **SETTINGS[data.data])
        result = fedul.train(study, config, out=folder, resume=True).result
    classifier = RunFolder(folder).load_classifier()
    unscaled = replace(classifier, temperature=1.0)
    raw = calibration_error(unscaled.predict_proba(study.truth.test_inputs), study.truth.test_labels)
    return {
        "error": result.test_error,
        "ece": result.calibration_error,
        "ece_raw": raw,
        "temperature": classifier.temperature,
        "selected_round": result.selected_round,
        "seconds": result.seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", choices=list(SETTINGS), default="mnist")
    parser.add_argument("--splits", default="iid,noniid")
    parser.add_argument("--recipes", default="boosted")
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="log,brier,authors")
    parser.add_argument("--learning-rate", type=float, default=TrainConfig().learning_rate)
    parser.add_argument("--data-dir")
    arguments = parser.parse_args()
    report = []
    for split in arguments.splits.split(","):
        for recipe in arguments.recipes.split(","):
            for loss in arguments.only.split(","):
                runs = []
                for seed in range(arguments.seeds):
                    data = BenchmarkDataConfig(
                        data=arguments.data,
                        data_dir=arguments.data_dir,
                        sets=(arguments.sets,),
                        split=split,
                        prior_recipe=recipe,
                        seed=seed,
                    )
                    name = f"{arguments.data}-{split}-{recipe}-{arguments.sets}-{loss}-{arguments.learning_rate:g}"
                    runs.append(run(data, loss, arguments.learning_rate, arguments.out / f"{name}-seed-{seed}"))
                figures = {key: statistics.mean(r[key] for r in runs) for key in runs[0]}
                errors = ", ".join(f"{r['error']:.2%}" for r in runs)
                print(
                    f"{arguments.data} {split:<6} {recipe:<7} {loss:<8} error {figures['error']:.2%} ({errors})  "
                    f"calibration error {figures['ece']:.2%}, at temperature 1 {figures['ece_raw']:.2%}  "
                    f"{figures['seconds']:.0f} s per run",
                    flush=True,
                )
                report.append({"split": split, "recipe": recipe, "loss": loss, "runs": runs, "mean": figures})
    print(json.dumps(report))


if __name__ == "__main__":
    main()
