"""The canary lower bound on epsilon, with the noise of the run and with the noise switched off.

    python benchmarks/canaries.py --out FILE.jsonl [--runs 20] [--epsilons 1 3 8] [--canaries 500]
    python benchmarks/canaries.py --out FILE.jsonl --report

--out gets one line per run; finished runs are not repeated. A run trains on digits with canaries (`fedul.audit`, attack
canaries), guesses which ones were included, and bounds epsilon from below with 95 % confidence. With noise, the bound
must not exceed the epsilon that the run states; without noise (`dp_noise=0`: batches are drawn and gradients clipped as
before) it should exceed it. Noise and batches of DP-SGD come from the operating system, so a repeated run differs;
coins and patterns of the canaries follow from the seed.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fedul
from _measure import append_line, print_table, read_lines
from fedul.auditing.canary_bound import bound_epsilon
from fedul.auditing.document import Protection
from fedul.auditing.protections import Condition
from fedul.training import Callback, Recipe, RunInfo

SETTINGS: Mapping[str, Any] = {"method": "fedul-combined", "rounds": 10, "select": "last", "choose": "off"}
CLIENTS, SETS = 5, 10
OFF = 0.0
"""Stands for the noise switched off."""


def measure(epsilon: float, seed: int, canaries: int) -> dict[str, Any]:
    """Return the bound of one run."""
    federation = fedul.load("digits", clients=CLIENTS, sets=SETS, seed=seed).federation
    config = fedul.TrainConfig(**SETTINGS, seed=seed)
    config = replace(config, dp_noise=0.0) if epsilon == OFF else replace(config, dp_epsilon=epsilon)
    condition = Condition(Protection("dp", f"epsilon {epsilon:g}", True), Recipe.of(config))
    started = time.perf_counter()
    found = bound_epsilon(federation, condition, canaries, seed, Callback(), RunInfo(config.rounds))
    seconds = round(time.perf_counter() - started, 1)
    return {"epsilon": epsilon, "seed": seed, **vars(found), "seconds": seconds}


def report(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print the bounds with noise and without, for each stated epsilon."""
    groups: dict[tuple[int, float], list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        groups[line["canaries"], line["epsilon"]].append(line)
    rows = []
    for (canaries, epsilon), found in sorted(groups.items()):
        if epsilon == OFF:
            continue
        off = groups.get((canaries, OFF), [])
        bounds = [[each["bound"] for each in some] for some in (found, off)]
        above = [sum(bound > epsilon for bound in some) for some in bounds]
        row = [f"{epsilon:g}", f"{canaries:,}", f"{above[0]} of {len(found)}", f"{max(bounds[0]):.2f}"]
        if off:
            row += [f"{above[1]} of {len(off)}", f"{min(bounds[1]):.2f}", f"{off[0]['highest']:.2f}"]
        rows.append(row + [""] * (7 - len(row)))
    heads = ["stated", "canaries", "above it, with noise", "largest bound"]
    print_table([[*heads, "above it, without noise", "smallest bound", "largest possible"], *rows])


def main() -> None:
    """Run what is missing, or print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0, 8.0])
    parser.add_argument("--canaries", type=int, default=500)
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    done = read_lines(given.out)
    if not given.report:
        finished = {(each["canaries"], each["epsilon"], each["seed"]) for each in done}
        for seed in range(given.runs):
            for epsilon in (OFF, *given.epsilons):
                if (given.canaries, epsilon, seed) not in finished:
                    append_line(given.out, measure(epsilon, seed, given.canaries))
        done = read_lines(given.out)
    report(done)


if __name__ == "__main__":
    main()
