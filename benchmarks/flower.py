"""A run on real sites beside the same run in process: weights, seconds a round, bytes, and where the time goes.

    python benchmarks/flower.py [--sites 5] [--rounds 3] [--json FILE]

Digits, on loopback, with TLS and a key for each site. On one machine all sites share its cores, and what Flower does
for each message (a process, its imports, polling) is done by all at once: real sites do it side by side.
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
from fedul.cli.federation_demo import SITE
from fedul.engines.flower.loopback import loopback
from fedul.runs import RunFolder

ALGORITHMS = {
    "fedavg": "mlp",
    "scaffold": "mlp",
    "fedbn": "paper-cnn",
}  # with a model that has batch norm, where it matters
PARTS = {
    "a process of Flower, before the app": "import flwr.supernode.cli.flwr_clientapp",
    "a process of Flower, with the app": "import flwr.supernode.cli.flwr_clientapp, fedul.engines.flower.client_app",
    "what the clerk loads once": "import fedul.engines.flower.answering",
}


def seconds_of(program: str, repeats: int = 5) -> float:
    """The shortest time that a Python program took."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return min(times)


def weights(classifier: fedul.Classifier) -> torch.Tensor:
    return torch.cat([value.double().flatten() for value in classifier.module.state_dict().values()])


def at_sites(folder: Path, settings: dict[str, Any]) -> RunFolder:
    """The run, when it has ended."""
    run = RunFolder(folder / "run")
    with loopback(folder / "federation", {**settings, "out": str(run.path)}) as made:
        made.start_coordinator()
        for number in range(1, settings["sites"] + 1):
            made.register(f"client-{number}")
            made.start_site(f"client-{number}", SITE.format(name=f"client-{number}", sites=settings["sites"]))
        status = made.until_ended(made.run({}), run, lambda: None)
        if status != "finished:completed":
            raise SystemExit(f"{status}\n{made.log('superlink')[-2000:]}")
    return run


def measured(algorithm: str, model: str, sites: int, rounds: int) -> dict[str, Any]:
    training: dict[str, Any] = {"algorithm": algorithm, "model": model, "rounds": rounds}
    classes = ",".join(map(str, range(10)))
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        run = at_sites(Path(folder), {**training, "classes": classes, "sites": sites})
        whole, lines, there = time.perf_counter() - started, run.history(), weights(run.load_classifier())
    here = fedul.train(fedul.load("digits", clients=sites), **training, engine_mode="loop", workers=1)
    own = weights(here.classifier)
    names = ("loss", "held_out_loss", "temperature")
    apart = [
        abs(line[n] - own_line[n]) / abs(own_line[n])
        for line, own_line in zip(lines, here.history, strict=True)
        for n in names
    ]
    return {
        "algorithm": algorithm,
        "model": model,
        "weights_apart": float((there - own).norm() / own.norm()),
        "figures_apart": max(apart),
        "seconds_a_round": [line["seconds"] for line in lines],
        "seconds_a_round_in_process": [line["seconds"] for line in here.history],
        "bytes_to_a_site": [line["bytes_sent"] // sites for line in lines],
        "bytes_from_a_site": [line["bytes_received"] // sites for line in lines],
        "seconds_in_all": round(whole, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {"starts": {name: round(seconds_of(program), 2) for name, program in PARTS.items()}}
    for name, seconds in found["starts"].items():
        print(f"{name}: {seconds:.2f} s")
    found["runs"] = []
    for algorithm, model in ALGORITHMS.items():
        line = measured(algorithm, model, options.sites, options.rounds)
        found["runs"].append(line)
        print(json.dumps(line))
        if options.json:
            options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
