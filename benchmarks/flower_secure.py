"""Cost of secure aggregation on Flower: the same run with and without it, on loopback, with TLS, keys and a roster.

    python benchmarks/flower_secure.py [--sites 5] [--rounds 6] [--repeats 4] [--algorithms fedavg] [--json FILE]

Digits. The sites are started once, and runs with and without secure aggregation alternate, so that other load of the
machine affects both. Seconds of a round are those of `metrics.jsonl`; the first round and the last are left out,
because the start of a run and the evaluation of the last round have exchanges of their own. The ratio of a repeat is
that of the median rounds of its two runs. Bytes are those of all tensors, keys and shares included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fedul
from fedul.data.load import load
from fedul.engines.flower.deploy.loopback import Loopback, loopback
from fedul.engines.secure_sums import FEWEST_CLIENTS
from fedul.errors import EnvironmentFailure
from fedul.training import RunFolder

SITE_FILE = """\
name = "{name}"
state = "state"

[data]
data = "digits"
clients = {sites}
"""


def measure(federation: Loopback, folder: Path, sites: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Run the federation to its end and return its costs."""
    run = RunFolder(folder)
    number = federation.run({**settings, "out": str(folder)})
    if (status := federation.until_ended(number, run, lambda: None)) != "finished:completed":
        raise EnvironmentFailure(f"the run ended ({status}): {federation.reason(number)}")
    history = run.history()
    middle = history[1:-1]
    return {
        "seconds_per_round": [line.seconds for line in history],
        "median_seconds": statistics.median(line.seconds for line in middle),
        "bytes_to_site": statistics.mean(line.bytes_sent or 0 for line in middle) / sites,
        "bytes_from_site": statistics.mean(line.bytes_received or 0 for line in middle) / sites,
        "clients": [line.clients for line in history],
        "held_out_losses": [line.held_out_loss for line in history],
        "weights": {name: value.double() for name, value in run.load_classifier().module.state_dict().items()},
    }


def compare(federation: Loopback, folder: Path, algorithm: str, sites: int, repeats: int) -> dict[str, Any]:
    """Return the costs with and without secure aggregation, and their ratios."""
    runs: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for repeat in range(repeats):
        for secure in (False, True) if repeat % 2 == 0 else (True, False):
            out = folder / f"{algorithm}-{repeat}-{'secure' if secure else 'open'}"
            runs[secure].append(measure(federation, out, sites, {"algorithm": algorithm, "secure-aggregation": secure}))
    ratios = [there["median_seconds"] / here["median_seconds"] for here, there in zip(*runs.values(), strict=True)]
    weights = [(here.pop("weights"), there.pop("weights")) for here, there in zip(*runs.values(), strict=True)]
    first_open, first_secure = runs[False][0], runs[True][0]
    return {
        "algorithm": algorithm,
        "open_seconds": _quartiles([each["median_seconds"] for each in runs[False]]),
        "secure_seconds": _quartiles([each["median_seconds"] for each in runs[True]]),
        "ratio_seconds": _quartiles(ratios),
        "ratio_bytes_to_site": first_secure["bytes_to_site"] / first_open["bytes_to_site"],
        "ratio_bytes_from_site": first_secure["bytes_from_site"] / first_open["bytes_from_site"],
        "largest_weight_difference": max(
            float((here[name] - there[name]).abs().max()) for here, there in weights for name in here
        ),
        "open": runs[False],
        "secure": runs[True],
    }


def _quartiles(values: Sequence[float]) -> dict[str, float]:
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return {"median": median, "lower quartile": low, "upper quartile": high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--algorithms", default="fedavg")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    study = load("digits", clients=options.sites)
    results: dict[str, Any] = {
        "fedul": fedul.__version__,
        **{name: getattr(options, name) for name in ("sites", "rounds", "repeats")},
        "runs": [],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {
            "out": str(folder / "run"),
            "classes": ",".join(study.federation.classes),
            "sites": options.sites,
            "min-sites": FEWEST_CLIENTS,
            "rounds": options.rounds,
            "method": "fedul",
            "model": "mlp",
            "roster": str(folder / "federation" / "roster.toml"),
        }
        with loopback(folder / "federation", settings) as federation:
            federation.start_coordinator()
            clients = [client.name for client in study.federation.clients]
            for client in clients:
                federation.register(client)
            federation.write_roster()
            for client in clients:
                federation.start_site(client, SITE_FILE.format(name=client, sites=options.sites))
            for algorithm in options.algorithms.split(","):
                results["runs"].append(compare(federation, folder, algorithm, options.sites, options.repeats))
                shown = {key: value for key, value in results["runs"][-1].items() if key not in ("open", "secure")}
                print(json.dumps(shown, indent=1), flush=True)
                if options.json:
                    options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
