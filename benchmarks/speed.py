"""Seconds per round of fedul and of other simulators. About 20 minutes on two idle cores (--quick: 3).

    python benchmarks/speed.py [--quick] [--json FILE] [--plots FOLDER] [--only mlp-200,...] [--turns N]
                               [--without flower,pfl]

The same rounds of federated averaging with fedul's engine, a manual loop in plain torch, Flower's simulation (Ray) and
Apple's pfl. Every simulator is a separate process (`simulators/`). They alternate in turns, after two warm-up rounds,
with the same weights, rows and order of rows, and must compute the same (`same_work.py`). For dense networks, the
batched products alone (`simulators/floor.py`) show how much of a round is arithmetic: column "times the floor", that of
the number of threads that is faster.
All have the same environment, in which threads wait as under fedul's command line (`_utils/openmp.py`). fedul computes
in float32, as all others do, unless its line says bfloat16. The benchmark also measures the cost of the transition,
scaling, and memory with up to 10,000 clients. Other simulators need `pip install fedul[bench]`; one that is not
installed is left out.
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

from _measure import Quartiles, describe_machine, print_machine, print_table
from fedul._utils.torch_private import processor_has_bfloat16
from interleaved import Measurement, environment, run_interleaved
from same_work import Outputs, distance, fault_commands, measure_faults, tolerances
from workload import Workload

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

MLP = Workload("64-32-10 network, 290 rows per client", "mlp", clients=5, rows=290, batch=32)
COMPARISONS: dict[str, tuple[Workload, int]] = {  # with the number of turns
    **{f"mlp-{n}": (replace(MLP, clients=n), turns) for n, turns in ((5, 15), (50, 15), (200, 11), (1000, 5))},
    "cifar": (
        Workload(
            "pfl's CIFAR-10 setup, 1.6 M weights, 50 rows",
            "pfl-cnn",
            clients=1000,
            rows=50,
            batch=10,
            participants=50,
        ),
        5,
    ),
    "small-cnn": (
        Workload(
            "small-cnn, 28 x 28 images, 1,200 rows", "small-cnn", 5, rows=1200, batch=32, optimizer="adam", rate=3e-3
        ),
        7,
    ),
    "paper-cnn": (
        Workload(
            "paper-cnn, 28 x 28 images, 250 rows", "paper-cnn", 5, rows=250, batch=128, optimizer="adam", rate=3e-3
        ),
        5,
    ),
}
OTHER_PARTS = ("transition", "scaling", "memory")
QUICK = ("mlp-5", "mlp-200", *OTHER_PARTS)
QUICK_TURNS = 3

OTHER_SIMULATORS = {"flower": ("flwr", "ray"), "pfl": ("pfl",)}
MANUAL = "manual loop"
FLOOR = "floor"  # the arithmetic alone, see simulators/floor.py
PACKAGES = ("fedul", "torch", "numpy", "flwr", "ray", "pfl")


def simulator_commands(workload: Workload, others: Sequence[str]) -> dict[str, list[str]]:
    """Return the command of each simulator."""
    argument = ["--workload", workload.to_json()]
    manual, fedul = (["-m", f"simulators.{name}", *argument] for name in ("manual_loop", "fedul_engine"))
    commands = {
        f"{MANUAL}, 1 thread": [*manual, "--threads", "1"],
        f"{MANUAL}, {CORES} threads": [*manual, "--threads", str(CORES)],
        "fedul": fedul,
        "fedul, loop": [*fedul, "--mode", "loop", "--workers", "1"],
        "fedul, vectorized": [*fedul, "--mode", "vectorized", "--workers", "1"],
    }
    if workload.network == "mlp":
        for threads in sorted({1, CORES}):
            name = f"{FLOOR}, {threads} thread{'s' if threads > 1 else ''}"
            commands[name] = ["-m", "simulators.floor", *argument, "--threads", str(threads)]
    if workload.network != "mlp" and processor_has_bfloat16():
        half = ["--precision", "bfloat16"]
        for threads in sorted({1, CORES}):
            name = f"{MANUAL}, bfloat16, {threads} thread{'s' if threads > 1 else ''}"
            commands[name] = [*manual, *half, "--threads", str(threads)]
        commands["fedul, bfloat16"] = [*fedul, *half]
    if workload.optimizer != "sgd":
        return commands
    if "pfl" in others:
        pfl = ["-m", "simulators.pfl_simulation", *argument]
        # One process can use all cores, which only helps a large network.
        commands["pfl"] = [*pfl, "--threads", "1" if workload.network == "mlp" else str(CORES)]
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(CORES)]
        commands[f"pfl, {CORES} processes"] = [*torchrun, *pfl, "--threads", "1"]
    if "flower" in others:
        commands["flower"] = ["-m", "simulators.flower_simulation", *argument]
    return commands


def summarize(
    workload: Workload,
    measured: Mapping[str, Measurement],
    faults: Mapping[str, Mapping[str, Outputs]],
) -> dict[str, Any]:
    """Return speeds, ratios of rounds that were run next to each other, and distances from the manual loop."""
    manual = min((name for name in measured if _is_manual(name, "float32")), key=lambda n: _median(measured[n]))
    half = [name for name in measured if _is_manual(name, "bfloat16")]
    best_half = min(half, key=lambda n: _median(measured[n]), default=None)
    floor = min((name for name in measured if _is_floor(name)), key=lambda n: _median(measured[n]), default=None)
    reference = {_precision(name): measured[name].outputs for name in [*half, manual]}
    tolerance = tolerances(reference, faults)
    results = {}
    for name, one in measured.items():
        seconds = Quartiles.of(one.seconds)
        results[name] = {
            **{k: v for k, v in asdict(one).items() if k not in ("source", "outputs")},
            "quartiles": seconds.to_dict(),
            "updates_per_second": workload.clients_per_round / seconds.median,
            "speedup_over_manual_loop": _ratio(measured[manual], one).to_dict(),
            "speedup_of_fedul": _ratio(one, measured["fedul"]).to_dict() if "fedul" in measured else None,
            "times_the_floor": _ratio(one, measured[floor]).to_dict() if floor else None,
            "speedup_over_bfloat16_loop": _ratio(measured[best_half], one).to_dict() if best_half else None,
            **_same_work(name, one, reference, tolerance),
        }
    return {
        "workload": asdict(workload),
        "data": measured[manual].source,
        "best_manual_loop": manual,
        "best_bfloat16_loop": best_half,
        "tolerance": tolerance,
        "distance_of_faults": {
            kind: {name: distance(outputs, reference[kind]) for name, outputs in found.items()}
            for kind, found in faults.items()
        },
        "simulators": results,
    }


def _same_work(
    name: str, one: Measurement, reference: Mapping[str, Outputs], tolerance: Mapping[str, float]
) -> dict[str, Any]:
    """Return the distance from the manual loop of the same precision; the floor computes no model."""
    if _is_floor(name):
        return {"distance": None, "same_work": True}
    far = distance(one.outputs, reference[_precision(name)])
    return {"distance": far, "same_work": far <= tolerance[_precision(name)]}


def _precision(name: str) -> str:
    return "bfloat16" if "bfloat16" in name else "float32"


def _is_floor(name: str) -> bool:
    return name.startswith(FLOOR)


def _is_manual(name: str, precision: str) -> bool:
    return name.startswith(MANUAL) and _precision(name) == precision


def _median(measured: Measurement) -> float:
    return Quartiles.of(measured.seconds).median


def _ratio(numerator: Measurement, denominator: Measurement) -> Quartiles:
    return Quartiles.of([a / b for a, b in zip(numerator.seconds, denominator.seconds, strict=True)])


def comparison_table(results: Mapping[str, Any]) -> list[list[str]]:
    """Return the table of a comparison.

    Peak memory is summed over processes; in brackets the resident size at the end, with shared pages counted once.
    """
    with_floor = any(_is_floor(name) for name in results["simulators"])
    head = ["simulator", "seconds per round", "updates/s", "speedup", "speedup of fedul"]
    table = [[*head, *(["times the floor"] if with_floor else []), "peak MB", "setup s", "distance"]]
    for name, one in results["simulators"].items():
        seconds, manual = (Quartiles.from_dict(one[key]) for key in ("quartiles", "speedup_over_manual_loop"))
        fedul = Quartiles.from_dict(one["speedup_of_fedul"]).format(digits=2) if one["speedup_of_fedul"] else "-"
        distant = (
            "-" if one["distance"] is None else f"{one['distance']:.1e}" + ("" if one["same_work"] else " DIFFERS")
        )
        memory = "-" if one["peak_mb"] is None else f"{one['peak_mb']:.0f} ({one['shared_once_mb']:.0f})"
        rate = one["updates_per_second"]
        updates = f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"
        floor = [Quartiles.from_dict(one["times_the_floor"]).format(digits=2)] if with_floor else []
        cells = [seconds.format(digits=4), updates, manual.format(digits=2), fedul, *floor, memory]
        table.append([name, *cells, f"{one['set_up']:.1f}", distant])
    return table


def compare_simulators(name: str, turns: int, others: Sequence[str]) -> dict[str, Any]:
    """Run one comparison and print its table."""
    workload = COMPARISONS[name][0]
    part = f"{workload.participants} of {workload.clients}" if workload.participants else f"{workload.clients}"
    print(f"\n{name}: {workload.title}, {part} clients per round, batch {workload.batch}, {turns} turns", flush=True)
    measured, failed = run_interleaved(simulator_commands(workload, others), turns, _print_progress)
    _print_progress("")
    if not any(_is_manual(name, "float32") for name in measured):
        raise SystemExit(f"{name}: the manual loop failed: {failed}")
    precisions = sorted({_precision(name) for name in measured if name.startswith(MANUAL)})
    faults = measure_faults({kind: fault_commands(workload, kind) for kind in precisions})
    results = {**summarize(workload, measured, faults), "turns": turns, "left_out": failed}
    print_table(comparison_table(results))
    for kind, found in results["distance_of_faults"].items():
        described = ", ".join(f"{name} {value:.1e}" for name, value in found.items())
        print(f"{kind}: distance of faulty loops {described}; tolerance {results['tolerance'][kind]:.1e}")
    for one, reason in failed.items():
        print(f"{one} is left out: {reason.rstrip('.')}.")
    return results


def _print_progress(text: str) -> None:
    """Print progress in a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def measure_transition() -> list[dict[str, Any]]:
    """Run `transition.py` and print its table."""
    results: list[dict[str, Any]] = _run_benchmark("transition")
    print("\ntransition: forward and backward of a batch of 128, microseconds")
    table = [["sets x classes", "set_loss", "full Q", "cross-entropy", "set_loss / cross-entropy"]]
    for one in results:
        times = {name: Quartiles.from_dict(stored) for name, stored in one["seconds"].items()}
        ratio = times["set_loss"].median / times["cross_entropy"].median
        texts = [each.format(scale=1e6, digits=0) for each in times.values()]
        table.append([f"{one['sets']} x {one['classes']}", *texts, f"{ratio:.2f}"])
    print_table(table)
    return results


def measure_scaling(quick: bool, plots: Path | None) -> dict[str, Any]:
    """Run `scaling.py` and print its table."""
    results: dict[str, Any] = _run_benchmark("scaling", *(["--quick"] if quick else []))
    print("\nscaling: a round of fedul's engine")
    table = [["axis", "from", "to", "seconds at both ends", "exponent of the upper half"]]
    for axis, one in results.items():
        first, last = (f"{one['seconds'][end]['median']:.4f}" for end in (0, -1))
        ends = [f"{one['at'][0]:,}", f"{one['at'][-1]:,}"]
        table.append([axis, *ends, f"{first} - {last}", f"{one['exponent']:.2f}"])
    print_table(table)
    if plots is not None:
        import scaling

        for file in scaling.plot(results, plots):
            print(f"wrote {file}")
    return results


def measure_memory(quick: bool) -> dict[str, Any]:
    """Measure peak memory for a fixed number of rows and an increasing number of clients."""
    total, results = 200_000, {}
    for clients in (10, 100, 1_000, *([] if quick else [10_000])):
        workload = Workload("memory", "mlp", clients=clients, rows=total // clients, batch=32)
        command = simulator_commands(workload, [])["fedul"]
        measured, failed = run_interleaved({"fedul": command}, 2, _print_progress)
        if failed:
            raise SystemExit(f"memory: {failed['fedul']}")
        one = measured["fedul"]
        results[f"{clients}"] = {
            "peak_mb": one.peak_mb,
            "shared_once_mb": one.shared_once_mb,
            "seconds": _median(one),
        }
    _print_progress("")
    print(f"\nmemory: {total:,} rows of 64 floats at an increasing number of clients, 64-32-10 network")
    table = [["clients", "peak MB (shared once)", "seconds per round"]]
    for name, values in results.items():
        memory = [f"{values[key] or float('nan'):.0f}" for key in ("peak_mb", "shared_once_mb")]
        table.append([name, f"{memory[0]} ({memory[1]})", f"{values['seconds']:.2f}"])
    print_table(table)
    return results


def _run_benchmark(module: str, *arguments: str) -> Any:
    """Return what another benchmark prints, run in the environment of the simulators."""
    command = [sys.executable, "-m", module, *arguments]
    return json.loads(
        subprocess.run(command, env=environment(tempfile.gettempdir()), check=True, stdout=subprocess.PIPE).stdout
    )


def installed_simulators(without: Sequence[str]) -> list[str]:
    """Return the other simulators that are installed and not excluded."""
    installed = []
    for name, modules in OTHER_SIMULATORS.items():
        missing = [module for module in modules if find_spec(module) is None]
        if name in without:
            print(f"{name} is left out (--without).")
        elif missing:
            print(f"{name} is left out: {missing[0]} is not installed; run pip install 'fedul[bench]'.")
        else:
            installed.append(name)
    return installed


def package_versions() -> dict[str, str]:
    """Return the versions of the installed packages that matter."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def main() -> None:
    parts = (*COMPARISONS, *OTHER_PARTS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write one JSON document")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write figures of the scaling")
    parser.add_argument("--only", type=_names, default=[], help=f"some of {', '.join(parts)}")
    parser.add_argument("--turns", type=int, help="turns of every simulator (default: by workload)")
    parser.add_argument("--without", type=_names, default=[], help=f"some of {', '.join(OTHER_SIMULATORS)}")
    parser.add_argument("--quick", action="store_true", help="fewer parts and rounds")
    arguments = parser.parse_args()
    chosen = arguments.only or (QUICK if arguments.quick else parts)
    if unknown := [name for name in chosen if name not in parts]:
        parser.error(f"--only: there is no {unknown[0]}; use {', '.join(parts)}")
    if arguments.turns is not None and arguments.turns < 2:
        parser.error("--turns: quartiles need at least 2 turns")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no stopped simulator is left behind
    others = installed_simulators(arguments.without)
    result: dict[str, Any] = {
        "machine": describe_machine(),
        "versions": package_versions(),
        "comparisons": {},
    }
    for name, (_, default_turns) in COMPARISONS.items():
        if name in chosen:
            turns = arguments.turns or (QUICK_TURNS if arguments.quick else default_turns)
            result["comparisons"][name] = compare_simulators(name, turns, others)
            _write(arguments.json, result)
    if "transition" in chosen:
        result["transition"] = measure_transition()
    if "scaling" in chosen:
        result["scaling"] = measure_scaling(arguments.quick, arguments.plots)
    if "memory" in chosen:
        result["memory"] = measure_memory(arguments.quick)
    _write(arguments.json, result)
    print_machine(result["machine"])
    differing = [
        f"{comparison}: {name}"
        for comparison, results in result["comparisons"].items()
        for name, one in results["simulators"].items()
        if not one["same_work"]
    ]
    if differing:
        raise SystemExit(f"results differ from the manual loop: {'; '.join(differing)}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _write(file: Path | None, result: Mapping[str, Any]) -> None:
    """Write the result so far, so that nothing is lost if a later comparison fails."""
    if file is not None:
        file.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
