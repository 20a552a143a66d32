"""A run on Flower compared with the same run in process: weights, seconds per round, bytes, start-up times.

    python benchmarks/flower.py [--sites 5] [--rounds 3] [--json FILE]

Digits, on loopback, with TLS and one key per site. On one machine all sites share its cores, and the overhead of Flower
per message (a process, its imports, polling) occurs at all sites at the same time. Real sites do this in parallel.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import fedul
from fedul.engines.flower.deploy.demo import SITE_FILE
from fedul.engines.flower.deploy.loopback import loopback
from fedul.training import RunFolder

MODELS = {"fedavg": "mlp", "scaffold": "mlp", "fedbn": "paper-cnn"}
"""The model that each algorithm trains; FedBN needs batch norm."""

IMPORTS = {
    "Flower process": "import flwr.supernode.cli.flwr_clientapp",
    "Flower process with the app": "import flwr.supernode.cli.flwr_clientapp, fedul.engines.flower.site.client_app",
    "worker process, once per site": "import fedul.engines.flower.site.handlers",
}
"""What the processes at a site import."""


def shortest_seconds(program: str, repeats: int = 5) -> float:
    """Return the shortest time of a Python program over several repeats."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return min(times)


def flat_weights(classifier: fedul.Classifier) -> torch.Tensor:
    """Return all parameters and buffers as one vector."""
    return torch.cat([value.double().flatten() for value in classifier.module.state_dict().values()])


def run_on_flower(folder: Path, settings: dict[str, Any]) -> RunFolder:
    """Train on Flower sites on this machine and return the run folder."""
    run = RunFolder(folder / "run")
    with loopback(folder / "federation", {**settings, "out": str(run.path)}) as federation:
        federation.start_coordinator()
        for number in range(1, settings["sites"] + 1):
            federation.register(f"client-{number}")
            federation.start_site(
                f"client-{number}", SITE_FILE.format(name=f"client-{number}", sites=settings["sites"])
            )
        status = federation.until_ended(federation.run({}), run, lambda: None)
        if status != "finished:completed":
            raise SystemExit(f"{status}\n{federation.log('superlink')[-2000:]}")
    return run


def compare_engines(algorithm: str, model: str, sites: int, rounds: int) -> dict[str, Any]:
    """Train with one algorithm on both engines and return the differences and costs."""
    training: dict[str, Any] = {"algorithm": algorithm, "model": model, "rounds": rounds}
    classes = ",".join(map(str, range(10)))
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        folder_of_run = run_on_flower(Path(folder), {**training, "classes": classes, "sites": sites})
        total = time.perf_counter() - started
        history, weights = folder_of_run.history(), flat_weights(folder_of_run.load_classifier())
    reference = fedul.train(fedul.load("digits", clients=sites), **training, engine_mode="loop", workers=1)
    expected = flat_weights(reference.classifier)
    differences = [
        abs(getattr(metrics, name) - getattr(wanted, name)) / abs(getattr(wanted, name))
        for metrics, wanted in zip(history, reference.history, strict=True)
        for name in ("loss", "held_out_loss", "temperature")
    ]
    return {
        "algorithm": algorithm,
        "model": model,
        "weights_difference": float((weights - expected).norm() / expected.norm()),
        "metrics_difference": max(differences),
        "seconds_per_round": [metrics.seconds for metrics in history],
        "seconds_per_round_in_process": [metrics.seconds for metrics in reference.history],
        "bytes_to_site": [(metrics.bytes_sent or 0) // sites for metrics in history],
        "bytes_from_site": [(metrics.bytes_received or 0) // sites for metrics in history],
        "total_seconds": round(total, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    imports = {name: round(shortest_seconds(program), 2) for name, program in IMPORTS.items()}
    results: dict[str, Any] = {"import_seconds": imports, "runs": []}
    for name, seconds in imports.items():
        print(f"{name}: {seconds:.2f} s")
    for algorithm, model in MODELS.items():
        results["runs"].append(compare_engines(algorithm, model, options.sites, options.rounds))
        print(json.dumps(results["runs"][-1]))
        if options.json:
            options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
