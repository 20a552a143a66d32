"""Test error after five rounds in float32 and in bfloat16, with paired seeds on a part of MNIST.

    python benchmarks/precision.py --out FOLDER [--model small-cnn] [--rows 6000] [--rounds 5] [--seeds 3]

Runs that are finished are not repeated, and one that was interrupted continues. Every precision has the same seeds:
the same rows, sets, start weights and order of rows. Take a network that gains from bfloat16 (`paper-cnn`) for the
claim, and `small-cnn` for a quick look. MNIST is read from FEDUL_DATA or the user cache.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import statistics
from pathlib import Path

import fedul
from _measure import IgnoreWarnings, describe_machine, make_parser, print_result

PRECISIONS = ("float32", "bfloat16")


def train_once(out: Path, model: str, rows: int, rounds: int, seed: int, precision: str) -> float:
    """Return the test error of one run in percent, from its folder where it is finished."""
    study = fedul.load("mnist", rows=rows, seed=seed)
    run = fedul.train(
        study,
        model=model,
        rounds=rounds,
        precision=precision,
        seed=seed,
        patience=0,
        choose="off",
        method="fedul",
        averaging=0.0,
        batch_size=128,
        out=out / f"{model}-{precision}-{seed}",
        resume=True,
        callbacks=[IgnoreWarnings()],
    )
    return 100 * (run.test_error or 0.0)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--model", default="paper-cnn")
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    errors: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    for seed in range(arguments.seeds):
        for precision, found in errors.items():
            options = (arguments.model, arguments.rows, arguments.rounds, seed, precision)
            found.append(train_once(arguments.out, *options))
    differences = [b - a for a, b in zip(*errors.values(), strict=True)]
    spread = max(statistics.stdev(found) for found in errors.values()) if arguments.seeds > 1 else float("nan")
    table = [["precision", *(f"seed {seed}" for seed in range(arguments.seeds)), "mean", "standard deviation"]]
    for precision, found in errors.items():
        deviation = statistics.stdev(found) if len(found) > 1 else float("nan")
        table.append([precision, *(f"{e:.2f} %" for e in found), f"{statistics.mean(found):.2f} %", f"{deviation:.2f}"])
    mean = statistics.mean(differences)
    table.append(["difference", *(f"{d:+.2f}" for d in differences), f"{mean:+.2f}", f"(between seeds {spread:.2f})"])
    result = {"machine": describe_machine(), "errors": errors, "differences": differences}
    print_result(result, table, as_json=arguments.json)


if __name__ == "__main__":
    main()
