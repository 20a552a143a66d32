"""Cost of secure aggregation on Flower: the same run with and without it, on loopback, with TLS, keys and a roster.

    python benchmarks/flower_secure.py [--sites 5] [--rounds 6] [--json FILE]

Digits. Both runs are on this machine, one after the other, so other load must be equal. Seconds of a round are those of
`metrics.jsonl`; the first round and the last are left out of the mean, because the start of a run and the evaluation of
the last round have exchanges of their own. Bytes are those of all tensors, keys and shares included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import fedul
from fedul.engines.flower.deploy.demo import run_demo
from fedul.training import Callback

ALGORITHMS = ("fedavg", "scaffold")


def measure(algorithm: str, sites: int, rounds: int, *, secure: bool) -> dict[str, Any]:
    """Run the demonstration and return its costs."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        run, error = run_demo(
            Path(folder), sites=sites, rounds=rounds, algorithm=algorithm, callback=Callback(), secure=secure
        )
        total = time.perf_counter() - started
        history = run.history()
        weights = {name: value.double() for name, value in run.load_classifier().module.state_dict().items()}
    middle = history[1:-1]
    return {
        "algorithm": algorithm,
        "secure": secure,
        "seconds_per_round": [line.seconds for line in history],
        "mean_seconds": statistics.mean(line.seconds for line in middle),
        "bytes_to_site": statistics.mean(line.bytes_sent or 0 for line in middle) / sites,
        "bytes_from_site": statistics.mean(line.bytes_received or 0 for line in middle) / sites,
        "test_error": error,
        "total_seconds": round(total, 1),
        "held_out_losses": [line.held_out_loss for line in history],
        "weights": weights,
    }


def compare(algorithm: str, sites: int, rounds: int) -> dict[str, Any]:
    """Return the costs with and without secure aggregation, and their ratios."""
    open_run, secure_run = (measure(algorithm, sites, rounds, secure=secure) for secure in (False, True))
    here, there = open_run.pop("weights"), secure_run.pop("weights")
    return {
        "open": open_run,
        "secure": secure_run,
        "ratio_seconds": secure_run["mean_seconds"] / open_run["mean_seconds"],
        "ratio_bytes_to_site": secure_run["bytes_to_site"] / open_run["bytes_to_site"],
        "ratio_bytes_from_site": secure_run["bytes_from_site"] / open_run["bytes_from_site"],
        "largest_weight_difference": max(float((here[name] - there[name]).abs().max()) for name in here),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {"fedul": fedul.__version__, "sites": options.sites, "runs": []}
    for algorithm in ALGORITHMS:
        results["runs"].append(compare(algorithm, options.sites, options.rounds))
        print(json.dumps(results["runs"][-1], indent=1), flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
