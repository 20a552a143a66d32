"""Seconds a round against what a user could pick instead. Takes about 20 minutes on two quiet cores (--quick: 3).

    python benchmarks/speed.py [--quick] [--json FILE] [--plots FOLDER] [--only mlp-200,...] [--pairs N]
                               [--without flower,pfl]

The same rounds of federated averaging by fedul's engine, by a careful loop in plain torch, by Flower's simulation
(Ray) and by Apple's pfl. Every contestant is a process of its own (`contestants/`); they do a round each in turn, after
two rounds of warm-up, all from the same weights over the same rows in the same order, and must come to the same loss.
All have the same environment, with OMP_WAIT_POLICY=passive, as fedul's command line sets it. Beside the races: the cost
of the transition, how a round grows, and memory with up to 10,000 clients. Peers need `pip install fedul[bench]`; one
that is not installed is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _measure import Spread, machine, show_machine, show_table
from race import Finished, environment, race
from work import Work

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

MLP = Work("64-32-10 network, 290 rows a client", "mlp", clients=5, rows=290, batch=32)
RACES: dict[str, tuple[Work, int]] = {  # with the number of timed rounds
    **{f"mlp-{n}": (replace(MLP, clients=n), pairs) for n, pairs in ((5, 15), (50, 15), (200, 10), (1000, 5))},
    "cifar": (
        Work("pfl's CIFAR-10 set-up, 1.6 M weights, 50 rows", "pfl-cnn", clients=1000, rows=50, batch=10, cohort=50),
        5,
    ),
    "small-cnn": (
        Work("small-cnn, 28 x 28 images, 1,200 rows", "small-cnn", 5, rows=1200, batch=32, optimizer="adam", rate=3e-3),
        10,
    ),
    "paper-cnn": (
        Work("paper-cnn, 28 x 28 images, 250 rows", "paper-cnn", 5, rows=250, batch=128, optimizer="adam", rate=3e-3),
        5,
    ),
}
OTHERS = ("transition", "growth", "memory")
QUICK = ("mlp-5", "mlp-200", "transition", "growth", "memory")
QUICK_PAIRS = 3

PEERS = {"flower": ("flwr", "ray"), "pfl": ("pfl",)}
PACKAGES = ("fedul", "torch", "numpy", "flwr", "ray", "pfl")

# All take the same rows in the same order, so their losses differ by rounding alone: less than 1e-6 of the loss in the
# dense network. Convolutions are summed in another order by every layout and number of threads, and where a maximum is
# taken, or Adam divides by gradients that are nothing but rounding, this grows: the same loop by hand with one and with
# two threads differs by 1e-2, contestants by 5e-2. There the check finds gross mistakes only.
TOLERANCE = {"mlp": 1e-4, "pfl-cnn": 0.1, "small-cnn": 0.1, "paper-cnn": 0.15}


def commands(work: Work, peers: Sequence[str]) -> dict[str, list[str]]:
    """How each contestant is started."""
    given = ["--work", work.text()]
    hand, ours = (["-m", f"contestants.{name}", *given] for name in ("by_hand", "fedul_engine"))
    found = {
        "by hand, 1 thread": [*hand, "--threads", "1"],
        f"by hand, {CORES} threads": [*hand, "--threads", str(CORES)],
        "fedul": ours,
        "fedul, loop": [*ours, "--mode", "loop", "--workers", "1"],
        "fedul, stacked": [*ours, "--mode", "stacked", "--workers", "1"],
    }
    if work.optimizer != "sgd":
        return found
    if "pfl" in peers:
        pfl = ["-m", "contestants.pfl_simulation", *given]
        # One process has all cores to itself, which only a large network can use.
        found["pfl"] = [*pfl, "--threads", "1" if work.network == "mlp" else str(CORES)]
        several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(CORES)]
        found[f"pfl, {CORES} processes"] = [*several, *pfl, "--threads", "1"]
    if "flower" in peers:
        found["flower"] = ["-m", "contestants.flower_simulation", *given]
    return found


def judged(work: Work, finished: Mapping[str, Finished]) -> dict[str, Any]:
    """What the race says: speeds, and ratios of rounds of the same turn."""
    hand = min((name for name in finished if name.startswith("by hand")), key=lambda n: _median(finished[n]))
    losses = {name: one.loss for name, one in finished.items()}
    tolerance = TOLERANCE[work.network]
    results = {}
    for name, one in finished.items():
        seconds = Spread.of(one.seconds)
        results[name] = {
            **{k: v for k, v in asdict(one).items() if k != "source"},
            "spread": seconds.plain(),
            "updates_a_second": work.a_round / seconds.median,
            "faster_than_by_hand": _ratio(finished[hand], one).plain(),
            "fedul_is_faster_by": _ratio(one, finished["fedul"]).plain() if "fedul" in finished else None,
            "same_loss": abs(one.loss - losses[hand]) <= tolerance * abs(losses[hand]),
        }
    return {
        "work": asdict(work),
        "data": finished[hand].source,
        "best_by_hand": hand,
        "loss_tolerance": tolerance,
        "contestants": results,
    }


def _median(finished: Finished) -> float:
    return Spread.of(finished.seconds).median


def _ratio(slow: Finished, quick: Finished) -> Spread:
    return Spread.of([a / b for a, b in zip(slow.seconds, quick.seconds, strict=True)])


def race_table(found: Mapping[str, Any]) -> list[list[str]]:
    """Peak memory is summed over processes; in brackets what is resident at the end, shared pages counted once."""
    head = ["contestant", "seconds a round", "updates/s", "x by hand", "fedul ahead by", "peak MB", "set-up s", "loss"]
    table = [head]
    for name, one in found["contestants"].items():
        seconds, hand = _spread(one["spread"]), _spread(one["faster_than_by_hand"])
        ours = _spread(one["fedul_is_faster_by"]).text(digits=2) if one["fedul_is_faster_by"] else "-"
        loss = f"{one['loss']:.5f}" + ("" if one["same_loss"] else " DIFFERS")
        memory = "-" if one["peak_mb"] is None else f"{one['peak_mb']:.0f} ({one['shared_once_mb']:.0f})"
        rate = one["updates_a_second"]
        updates = f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"
        facts = [seconds.text(digits=4), updates, hand.text(digits=2), ours, memory]
        table.append([name, *facts, f"{one['set_up']:.1f}", loss])
    return table


def _spread(plain: Mapping[str, float]) -> Spread:
    return Spread(plain["median"], plain["quartile_1"], plain["quartile_3"])


def run_race(name: str, pairs: int, peers: Sequence[str]) -> dict[str, Any]:
    work = RACES[name][0]
    part = f"{work.cohort} of {work.clients}" if work.cohort else f"{work.clients}"
    print(f"\n{name}: {work.title}, {part} clients a round, batch {work.batch}, {pairs} turns", flush=True)
    finished, lost = race(commands(work, peers), pairs, _note)
    _note("")
    if not any(name.startswith("by hand") for name in finished):
        raise SystemExit(f"{name}: the loop by hand did not come through: {lost}")
    found = {**judged(work, finished), "pairs": pairs, "left_out": lost}
    show_table(race_table(found))
    for one, reason in lost.items():
        print(f"{one} is left out: {reason.rstrip('.')}.")
    return found


def _note(text: str) -> None:
    """Progress, where someone watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def transition_cost() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _asked("transition")
    print("\ntransition: forward and backward of a batch of 128, microseconds")
    table = [["sets x classes", "set_loss", "Q made whole", "cross-entropy", "set_loss / cross-entropy"]]
    for one in found:
        spreads = {name: _spread(plain) for name, plain in one["seconds"].items()}
        ratio = spreads["set_loss"].median / spreads["cross_entropy"].median
        texts = [spread.text(scale=1e6, digits=0) for spread in spreads.values()]
        table.append([f"{one['sets']} x {one['classes']}", *texts, f"{ratio:.2f}"])
    show_table(table)
    return found


def growth_of_cost(quick: bool, plots: Path | None) -> dict[str, Any]:
    found: dict[str, Any] = _asked("growth", *(["--quick"] if quick else []))
    print("\ngrowth: a round of fedul's engine")
    table = [["axis", "from", "to", "seconds at both ends", "exponent of the upper half"]]
    for axis, one in found.items():
        first, last = (f"{one['seconds'][end]['median']:.4f}" for end in (0, -1))
        ends = [f"{one['at'][0]:,}", f"{one['at'][-1]:,}"]
        table.append([axis, *ends, f"{first} - {last}", f"{one['exponent']:.2f}"])
    show_table(table)
    if plots is not None:
        import growth

        for file in growth.draw(found, plots):
            print(f"wrote {file}")
    return found


def memory_growth(quick: bool) -> dict[str, Any]:
    """Peak memory with ever more clients that hold the same rows between them."""
    total, found = 200_000, {}
    for clients in (10, 100, 1_000, *([] if quick else [10_000])):
        work = Work("memory", "mlp", clients=clients, rows=total // clients, batch=32)
        finished, lost = race({"fedul": commands(work, [])["fedul"]}, 2, _note)
        if lost:
            raise SystemExit(f"memory: {lost['fedul']}")
        one = finished["fedul"]
        figures = {"peak_mb": one.peak_mb, "shared_once_mb": one.shared_once_mb, "seconds": _median(one)}
        found[f"{clients}"] = figures
    _note("")
    print(f"\nmemory: {total:,} rows of 64 floats held by ever more clients, 64-32-10 network")
    table = [["clients", "peak MB (shared once)", "seconds a round"]]
    for clients_text, one_plain in found.items():
        memory = [f"{one_plain[key] or float('nan'):.0f}" for key in ("peak_mb", "shared_once_mb")]
        table.append([clients_text, f"{memory[0]} ({memory[1]})", f"{one_plain['seconds']:.2f}"])
    show_table(table)
    return found


def _asked(module: str, *arguments: str) -> Any:
    """What another benchmark prints, run under the same environment as the contestants."""
    command = [sys.executable, "-m", module, *arguments]
    return json.loads(
        subprocess.run(command, env=environment(tempfile.gettempdir()), check=True, stdout=subprocess.PIPE).stdout
    )


def installed_peers(without: Sequence[str]) -> list[str]:
    peers = []
    for peer, modules in PEERS.items():
        lacking = [module for module in modules if find_spec(module) is None]
        if peer in without:
            print(f"{peer} is left out, as asked.")
        elif lacking:
            print(f"{peer} is left out: {lacking[0]} is not installed; pip install 'fedul[bench]' has it.")
        else:
            peers.append(peer)
    return peers


def versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write one JSON document")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write figures of how cost grows")
    parser.add_argument("--only", type=_names, default=[], help=f"some of {', '.join((*RACES, *OTHERS))}")
    parser.add_argument("--pairs", type=int, help="timed rounds of every contestant (default: by the work's size)")
    parser.add_argument("--without", type=_names, default=[], help=f"some of {', '.join(PEERS)}")
    parser.add_argument("--quick", action="store_true", help="fewer items and rounds")
    told = parser.parse_args()
    chosen = told.only or (QUICK if told.quick else (*RACES, *OTHERS))
    if unknown := [name for name in chosen if name not in (*RACES, *OTHERS)]:
        parser.error(f"--only: there is no {unknown[0]}; use {', '.join((*RACES, *OTHERS))}")
    if told.pairs is not None and told.pairs < 2:
        parser.error("--pairs: quartiles need at least 2 rounds")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no contestant is left behind, stopped
    peers = installed_peers(told.without)
    result: dict[str, Any] = {"machine": machine(), "versions": versions(), "races": {}}
    for name in RACES:
        if name in chosen:
            pairs = told.pairs or (QUICK_PAIRS if told.quick else RACES[name][1])
            result["races"][name] = run_race(name, pairs, peers)
            _write(told.json, result)
    if "transition" in chosen:
        result["transition"] = transition_cost()
    if "growth" in chosen:
        result["growth"] = growth_of_cost(told.quick, told.plots)
    if "memory" in chosen:
        result["memory"] = memory_growth(told.quick)
    _write(told.json, result)
    show_machine(result["machine"])
    differing = [
        f"{race_name}: {name}"
        for race_name, found in result["races"].items()
        for name, one in found["contestants"].items()
        if not one["same_loss"]
    ]
    if differing:
        raise SystemExit(f"losses differ from that of the loop by hand: {'; '.join(differing)}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _write(file: Path | None, result: Mapping[str, Any]) -> None:
    """Also after every race, so that what was measured is not lost when a later one fails."""
    if file is not None:
        file.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
