"""The accuracy that the README claims: digits over several seeds, and MNIST with a small network where it is found.

    python benchmarks/accuracy.py [--seeds 3] [--data-dir FOLDER] [--json]

Digits take half a minute, MNIST (10 rounds, one seed) several minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line does, before torch is loaded

import fedul
from fedul.data import found

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedul": ("fedul", {}),
    "supervised": ("supervised", {}),
    "supervised-10%": ("supervised", {"labels": 0.1}),
}
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def digits(seeds: int) -> dict[str, list[float]]:
    """Test errors by method, one for each seed."""
    errors: dict[str, list[float]] = {name: [] for name in METHODS}
    for seed in range(seeds):
        study = fedul.load("digits", clients=5, sets=10, prior_recipe="boosted", seed=seed)
        for name, (method, options) in METHODS.items():
            run = fedul.train(study, method=method, method_option=options, rounds=30, seed=seed)
            errors[name].append(run.test_error or 0.0)
    return errors


def mnist(data_dir: str | None) -> dict[str, Any] | None:
    """FedUL on MNIST: small-cnn, iid, 10 sets, 10 rounds; None where MNIST is not found."""
    folder = next((f for f in (data_dir, None, str(SHARED)) if found("mnist", f) is not None), "absent")
    if folder == "absent":
        return None
    started = time.monotonic()
    study = fedul.load("mnist", data_dir=folder, clients=5, sets=10, prior_recipe="boosted")
    run = fedul.train(study, model="small-cnn", rounds=10)
    return {
        "test_error": run.test_error,
        "selected_round": run.selected_round,
        "seconds": round(time.monotonic() - started),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data-dir")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    errors = digits(arguments.seeds)
    result = {
        "digits": {name: {"mean": statistics.mean(values), "errors": values} for name, values in errors.items()},
        "ratio": statistics.mean(errors["fedul"]) / statistics.mean(errors["supervised"]),
        "mnist": mnist(arguments.data_dir),
    }
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    for name, values in errors.items():
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"digits  {name:<15} {statistics.mean(values):7.2%} ({spread:.2%})")
    print(f"digits  fedul / supervised {result['ratio']:.2f}")
    print(f"mnist   fedul {result['mnist'] or 'not found; fetch it with: fedul datasets fetch mnist'}")


if __name__ == "__main__":
    main()
