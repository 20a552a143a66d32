"""The default method on digits dealt into sets: error, calibration, cost, longer runs, and each ingredient off in turn.

    python benchmarks/dealt_sets.py --out FILE.jsonl [--part methods longer ...] [--seeds 301 302 ...]
    python benchmarks/dealt_sets.py --out FILE.jsonl --report

--out gets one line per run; finished ones are not repeated (about 20 s per run of the default, 1 to 2 s per run of the
other methods). Seconds are those of the processor, so that other load hardly affects them. The second form prints the
tables of docs/results/dealt-sets.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fedul
from _measure import IgnoreWarnings, append_line, read_lines
from fedul.core import paired_p_value
from fedul.errors import InputError
from fedul.methods.fedul_combined import FedULCombined

Line = dict[str, Any]
IMAGE = (1, 8, 8)
REALISED = [(*cell, "realised") for cell in itertools.product((10, 20), ("boosted", "text"), ("iid", "noniid"))]
DRAWN = [(*cell[:3], "drawn") for cell in REALISED]
METHODS: dict[str, dict[str, Any]] = {
    "default": {},
    **{name: {"method": name, "rounds": 30} for name in ("fedul-refined", "fedul", "supervised")},
}
LONGER: dict[str, dict[str, Any]] = {f"rounds {rounds}": {"rounds": rounds} for rounds in (30, 90)}
EQUAL: dict[str, dict[str, Any]] = {
    f"{name} rounds 90": {"method": name, "rounds": 90} for name in ("fedul-refined", "fedul", "supervised")
}
"""Methods of the first table with as many rounds as the longer runs of the default."""
(CONSISTENT,) = FedULCombined().alternatives(IMAGE, None)
WITHOUT = ("consistency_weight", "trust", "proportion_weight", "set_weight")
ABLATION: dict[str, dict[str, Any]] = {
    f"{name} 0": {"method_option": {**CONSISTENT.options, name: 0.0}} for name in WITHOUT
}
FIXED: dict[str, dict[str, Any]] = {f"{run} rounds 90": {**given, "rounds": 90} for run, given in ABLATION.items()}
"""Ablation with a fixed number of rounds, beside the run "rounds 90" of the default."""
ABLATION_CELLS = [(10, "text", "iid", "realised"), (20, "text", "iid", "drawn")]
NOISE = [(*cell[:3], "noise 0.8") for cell in REALISED if cell[2] == "iid"]
NEIGHBOURS: dict[str, dict[str, Any]] = {
    name: {"method": name, "rounds": 30, "force": True}
    for name in ("soft-labels", "soft-em", "rcm", "llpfc", "easyllp", "llp-pvc", "fedllp", "fedllp-vat")
}
MNIST = [(10, "boosted", "iid", "mnist"), (10, "boosted", "noniid", "mnist")]
SOURCES: dict[str, dict[str, Any]] = {
    "realised": {"prior_source": "realised"},
    "drawn": {"prior_source": "drawn"},
    "noise 0.8": {"prior_noise": 0.8},
    "mnist": {"data": "mnist"},
}
"""Settings of `fedul.load` by the last part of a cell."""
PARTS = {
    "methods": (REALISED + DRAWN, METHODS),
    "longer": ([cell for cell in REALISED if cell[1] == "text"], LONGER | EQUAL),
    "ablation": (ABLATION_CELLS, ABLATION),
    "fixed": (ABLATION_CELLS[:1], FIXED),
    "noise": (NOISE, METHODS),
    "neighbours": (ABLATION_CELLS, NEIGHBOURS),
    "mnist": (MNIST, {run: {"model": "small-cnn", **given, "rounds": 15} for run, given in METHODS.items()}),
    "mnist-neighbours": (
        MNIST[:1],
        {run: {"model": "small-cnn", **given, "rounds": 15} for run, given in NEIGHBOURS.items()},
    ),
}
KEYS = ("sets", "priors", "split", "source", "seed", "run")


def key_of(line: Line) -> tuple[Any, ...]:
    """Return what identifies a run."""
    return tuple(line[key] for key in KEYS)


def measure(cell: Sequence[Any], seed: int, run: str, settings: dict[str, Any]) -> Line:
    """Return the line of one run; its error is None if the sets cannot be dealt."""
    line: Line = dict(zip(KEYS, (*cell, seed, run), strict=True))
    sets, priors, split, source = cell
    try:
        given = {"data": "digits", **SOURCES[source]}
        study = fedul.load(**given, seed=seed, sets=sets, prior_recipe=priors, split=split)
    except InputError:
        return {**line, "error": None}
    started = time.process_time()
    trained = fedul.train(study, seed=seed, callbacks=[IgnoreWarnings()], **settings)
    return {
        **line,
        "error": trained.test_error,
        "calibration_error": trained.result.calibration_error,
        "seconds": round(time.process_time() - started, 2),
        "rounds": len(trained.history),
        "selected_round": trained.selected_round,
    }


class Results:
    """Errors of finished runs, by cell and run."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = [line for line in lines if line["error"] is not None]

    def values(self, cell: Sequence[Any], run: str, field: str = "error") -> list[float]:
        """Return a field of the runs of a cell, in the order of seeds."""
        found = [line for line in self.lines if key_of(line)[:4] == tuple(cell) and line["run"] == run]
        return [line[field] for line in sorted(found, key=lambda line: int(line["seed"]))]

    def cells(self, cells: Sequence[Sequence[Any]], run: str) -> Iterator[Sequence[Any]]:
        """Return the cells with runs of this name."""
        return (cell for cell in cells if self.values(cell, run))


def percent(values: Sequence[float]) -> str:
    """Return the mean in percent, with its standard error in brackets if there are several seeds."""
    mean = f"{100 * statistics.mean(values):.2f}"
    return f"{mean} ({100 * statistics.stdev(values) / math.sqrt(len(values)):.2f})" if len(values) > 1 else mean


def compare(one: Sequence[float], other: Sequence[float]) -> tuple[float, str]:
    """Return the ratio of mean errors, and the p-value of the paired t-test."""
    p_value = paired_p_value(one, other)
    return statistics.mean(one) / statistics.mean(other), "" if p_value is None else f"{p_value:.3f}"


def report(results: Results) -> None:
    """Print the tables."""
    for source, cells in (("realised", REALISED), ("drawn", DRAWN), ("noise 0.8", NOISE), ("mnist", MNIST)):
        if not any(results.cells(cells, "default")):
            continue
        print(f"\n## {source}\n\n| sets, priors, split | {' | '.join(METHODS)} | ratio | p | to supervised |")
        print("|---" + "|---:" * (len(METHODS) + 3) + "|")
        ratios = []
        for cell in results.cells(cells, "default"):
            errors = {run: results.values(cell, run) for run in METHODS}
            fewest = min(map(len, errors.values()))
            errors = {run: values[:fewest] for run, values in errors.items()}
            ratio, p_value = compare(errors["default"], errors["fedul-refined"])
            ratios.append(ratio)
            bound, _ = compare(errors["default"], errors["supervised"])
            columns = [percent(values) for values in errors.values()]
            print(f"| {name_of(cell)} | {' | '.join(columns)} | {ratio:.2f} | {p_value} | {bound:.2f} |")
        print(f"\nmean ratio {statistics.mean(ratios):.3f} over {len(ratios)} cells, largest {max(ratios):.3f}")
        for field, form in (("calibration_error", "{:.3f}"), ("seconds", "{:.1f}"), ("rounds", "{:.0f}")):
            print(f"\n{field}\n\n| sets, priors, split | {' | '.join(METHODS)} |\n|---" + "|---:" * len(METHODS) + "|")
            for cell in results.cells(cells, "default"):
                means = [statistics.mean(results.values(cell, run, field)) for run in METHODS]
                print(f"| {name_of(cell)} | {' | '.join(form.format(mean) for mean in means)} |")
    print("\n## longer\n\n| sets, priors, split | rounds 30 | rounds 90 | ratio | p |\n|---|---:|---:|---:|---:|")
    for cell in results.cells(REALISED, "rounds 90"):
        short, long = (results.values(cell, run) for run in LONGER)
        short = short[: len(long)]
        ratio, p_value = compare(long, short)
        print(f"| {name_of(cell)} | {percent(short)} | {percent(long)} | {ratio:.2f} | {p_value} |")
    print(f"\n## equal rounds\n\n| sets, priors, split | default rounds 90 | {' | '.join(EQUAL)} | ratio | p |")
    print("|---" + "|---:" * (len(EQUAL) + 3) + "|")
    for cell in results.cells(REALISED, "fedul-refined rounds 90"):
        errors = [results.values(cell, run) for run in ("rounds 90", *EQUAL)]
        errors = [values[: min(map(len, errors))] for values in errors]
        ratio, p_value = compare(errors[0], errors[1])
        print(f"| {name_of(cell)} | {' | '.join(map(percent, errors))} | {ratio:.2f} | {p_value} |")
    print(
        f"\n## neighbours\n\n| cell | default | {' | '.join(NEIGHBOURS)} |\n|---"
        + "|---:" * (len(NEIGHBOURS) + 1)
        + "|"
    )
    for cell in [*ABLATION_CELLS, *MNIST]:
        errors = [results.values(cell, run) for run in ("default", *NEIGHBOURS)]
        if errors[0] and errors[-1]:
            print(f"| {name_of(cell)}, {cell[3]} | {' | '.join(map(percent, errors))} |")
    print("\n## ablation\n\n| cell | run | error | ratio | p | calibration | seconds |\n|---|---" + "|---:" * 5 + "|")
    for cell in ABLATION_CELLS:
        for run in ("default", *ABLATION, "rounds 90", *FIXED):
            values = results.values(cell, run)
            base = results.values(cell, "rounds 90" if "rounds" in run else "default")
            if not values:
                continue
            ratio, p_value = compare(values, base[: len(values)])
            calibration, seconds = (
                statistics.mean(results.values(cell, run, field)) for field in ("calibration_error", "seconds")
            )
            print(
                f"| {name_of(cell)}, {cell[3]} | {run} | {percent(values)} | {ratio:.2f} | {p_value} "
                f"| {calibration:.3f} | {seconds:.1f} |"
            )


def name_of(cell: Sequence[Any]) -> str:
    """Return the name of a cell in a table."""
    return ", ".join(str(part) for part in cell[:3])


def main() -> None:
    """Measure, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(301, 311)))
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    lines = read_lines(options.out)
    if options.report:
        report(Results(lines))
        return
    finished = {key_of(line) for line in lines}
    for part, seed in itertools.product(options.part, options.seeds):
        cells, runs = PARTS[part]
        for cell, (run, settings) in itertools.product(cells, runs.items()):
            if (*cell, seed, run) not in finished:
                append_line(options.out, measure(cell, seed, run, settings))


if __name__ == "__main__":
    main()
