"""Gaussian worlds with known truth: error of Bayes' rule, of labels, of the default method and of its neighbours.

    python benchmarks/gaussian_worlds.py --out FILE.jsonl [--worlds overlap rare ...] [--seeds 300 301 302]
    python benchmarks/gaussian_worlds.py --out FILE.jsonl --report

Classes have unit covariance. Rows of a set are drawn with its class priors, which are those of a population, rounded to
four decimals. Test rows follow the test prior. In the worlds shift-S every feature of a site is moved by S times a
standard normal number, and sites are adjusted by `fedul.adjust_sites`, except in runs called "not adjusted". --out gets
one line per run, with the seconds of the processor; finished ones are not repeated. The second form prints the tables
of docs/results/gaussian-worlds.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedul
from _measure import IgnoreWarnings, append_line, read_lines
from fedul.core import Federation, Labels, Matrix, Study, Truth, UnlabeledSets
from fedul.errors import InputError
from fedul.training.truth_metrics import calibration_error

Line = dict[str, Any]
TEST_ROWS = 4_000
NEIGHBOURS = ("fedul", "fedul-refined", "soft-labels", "soft-em", "rcm", "llpfc", "easyllp", "llp-pvc")
RUNS: dict[str, dict[str, Any]] = {
    "default": {},
    **{name: {"method": name, "rounds": 30, "force": True} for name in ("supervised", *NEIGHBOURS)},
}
NOT_ADJUSTED = "default, not adjusted"


@dataclass(frozen=True)
class World:
    """A Gaussian world: number of clients, sets and rows, means of classes, and how class priors are drawn.

    `means` returns (K, D) and `priors` (M, K) from a generator; `rows` are the fewest and most rows of a set.
    """

    means: Callable[[np.random.Generator], Matrix]
    priors: Callable[[np.random.Generator, int], Matrix]
    clients: int = 5
    sets: int = 8
    rows: tuple[int, int] = (60, 60)
    shift: float = 0.0
    test_prior: tuple[float, ...] | None = None


def boosted(generator: np.random.Generator, sets: int) -> Matrix:
    """Return class priors (M, 3): uniform numbers, of which one class in turn is multiplied by five."""
    shares = generator.uniform(0.1, 1, (sets, 3))
    shares[np.arange(sets), np.arange(sets) % 3] *= 5
    return shares / shares.sum(axis=1, keepdims=True)


def two_classes(generator: np.random.Generator, sets: int) -> Matrix:
    """Return class priors (M, 2) with shares from 10 to 90 %."""
    share = generator.uniform(0.1, 0.9, sets)
    return np.stack([share, 1 - share], axis=1)


def rare(generator: np.random.Generator, sets: int) -> Matrix:
    """Return class priors (M, 3): one class with 5 to 15 %, one with 2 to 8 %, and the rest."""
    second, third = generator.uniform(0.05, 0.15, sets), generator.uniform(0.02, 0.08, sets)
    return np.stack([1 - second - third, second, third], axis=1)


def hundred(generator: np.random.Generator, sets: int) -> Matrix:
    """Return class priors (M, 100), of which a few are large in each set."""
    priors: Matrix = 0.9 * generator.dirichlet(np.full(100, 0.1), sets) + 0.1 / 100
    return priors


def normal_means(classes: int, features: int, scale: float) -> Callable[[np.random.Generator], Matrix]:
    """Return the function that draws class means (K, D)."""
    return lambda generator: scale * generator.normal(size=(classes, features))


def apart(distance: float, features: int) -> Callable[[np.random.Generator], Matrix]:
    """Return the function that draws two class means (2, D) at a distance."""

    def draw(generator: np.random.Generator) -> Matrix:
        direction = generator.normal(size=features)
        half = distance / 2 * direction / np.linalg.norm(direction)
        return np.stack([half, -half])

    return draw


THREE = normal_means(3, 6, 1.05)
WORLDS = {
    "overlap": World(apart(1.0488, 10), two_classes),
    "rare": World(THREE, rare, rows=(150, 150), test_prior=(0.85, 0.10, 0.05)),
    "tiny sets": World(THREE, boosted, clients=3, sets=150, rows=(1, 5)),
    "one client": World(THREE, boosted, clients=1, sets=12, rows=(100, 100)),
    **{f"shift-{shift}": World(THREE, boosted, shift=shift) for shift in (0, 1, 2)},
    "100 classes": World(normal_means(100, 20, 1.0), hundred, clients=2, sets=60, rows=(25, 25)),
}


@dataclass(frozen=True)
class Sample:
    """Rows drawn from a world, with the truth."""

    federation: Federation
    train_labels: dict[str, Labels]
    held_out_labels: dict[str, Labels]
    test_inputs: dict[str, Matrix]
    test_labels: dict[str, Labels]
    bayes_error: float

    def study(self) -> Study:
        """Return the federation with its labels, for `supervised`."""
        first = self.federation.clients[0]  # rows for the error by round, which is not used
        labels = self.train_labels[first.name]
        inputs = first.inputs[first.train.index]
        truth = Truth(inputs, labels, np.zeros_like(labels), self.train_labels, self.held_out_labels)
        return Study(self.federation, truth)


def draw(world: World, seed: int) -> Sample:
    """Draw the clients and test rows of a world."""
    generator = np.random.default_rng([seed, 18])
    means = world.means(generator)
    classes, features = means.shape
    prior = np.full(classes, 1 / classes) if world.test_prior is None else np.array(world.test_prior)
    clients, wrong = [], []
    train_labels, held_out_labels, test_inputs, test_labels = {}, {}, {}, {}
    for number in range(world.clients):
        name, offset = f"site{number}", world.shift * generator.normal(size=features)
        priors = world.priors(generator, world.sets)
        sizes = generator.integers(world.rows[0], world.rows[1] + 1, world.sets)
        sets = np.repeat(np.arange(world.sets), sizes)
        labels = np.concatenate([generator.choice(classes, n, p=p) for n, p in zip(sizes, priors, strict=True)]).astype(
            np.int64
        )
        inputs = means[labels] + generator.normal(size=(len(sets), features)) + offset
        stated = priors.round(4)
        stated /= stated.sum(axis=1, keepdims=True)
        client = UnlabeledSets.from_arrays(name, torch.from_numpy(inputs).float(), sets, stated, seed=seed)
        clients.append(client)
        train_labels[name], held_out_labels[name] = labels[client.train.index], labels[client.held_out.index]
        test_labels[name] = generator.choice(classes, TEST_ROWS // world.clients, p=prior).astype(np.int64)
        unshifted = means[test_labels[name]] + generator.normal(size=(len(test_labels[name]), features))
        test_inputs[name] = (unshifted + offset).astype(np.float32)
        distances = ((unshifted[:, None] - means) ** 2).sum(axis=2)
        wrong.append((np.log(prior) - distances / 2).argmax(axis=1) != test_labels[name])
    federation = Federation(clients, [f"c{k}" for k in range(classes)], test_prior=prior)
    error = float(np.concatenate(wrong).mean())
    return Sample(federation, train_labels, held_out_labels, test_inputs, test_labels, error)


def measure(world: str, run: str, seed: int) -> Line:
    """Return the line of one run; its error is None if the method refuses the data."""
    sample = draw(WORLDS[world], seed)
    line: Line = {"world": world, "run": run, "seed": seed, "bayes": sample.bayes_error}
    if world.startswith("shift") and run != NOT_ADJUSTED:
        sample = replace(sample, federation=fedul.adjust_sites(sample.federation))
    data = sample.study() if run == "supervised" else sample.federation
    started = time.process_time()
    try:
        trained = fedul.train(data, seed=seed, callbacks=[IgnoreWarnings()], **RUNS.get(run, {}))
    except InputError as problem:
        return {**line, "error": None, "problem": str(problem)}
    seconds = time.process_time() - started
    choice = trained.result.choice
    adjusted = trained.classifier.site_adjustments is not None
    probabilities = np.concatenate(
        [
            trained.classifier.predict_proba(rows, client=name) if adjusted else trained.classifier.predict_proba(rows)
            for name, rows in sample.test_inputs.items()
        ]
    )
    labels = np.concatenate(list(sample.test_labels.values()))
    right = probabilities.argmax(axis=1) == labels
    of_class = [float(right[labels == k].mean()) for k in np.unique(labels)]
    return {
        **line,
        "error": float(1 - right.mean()),
        "balanced_error": 1 - statistics.mean(of_class),
        "calibration_error": calibration_error(probabilities, labels),
        "seconds": round(seconds, 2),
        "rounds": len(trained.history),
        "left_out_losses": {each.name: round(each.loss, 5) for each in choice.alternatives} if choice else {},
        "chosen": choice.chosen if choice else None,
    }


def report(lines: list[Line]) -> None:
    """Print the table of each quantity."""
    runs = [*RUNS, NOT_ADJUSTED]
    for field, scale, form in (
        ("error", 100, "{:.1f}"),
        ("balanced_error", 100, "{:.1f}"),
        ("calibration_error", 1, "{:.3f}"),
        ("seconds", 1, "{:.1f}"),
    ):
        print(f"\n{field}\n\n| world | Bayes error | {' | '.join(runs)} |\n|---" + "|---:" * (len(runs) + 1) + "|")
        for world in WORLDS:
            of_world = [line for line in lines if line["world"] == world]
            if not of_world:
                continue
            cells = []
            for run in runs:
                values = [scale * line[field] for line in of_world if line["run"] == run and line["error"] is not None]
                cell = form.format(statistics.mean(values)) if values else ""
                if field == "error" and len(values) > 1:
                    cell += f" ({form.format(statistics.stdev(values) / math.sqrt(len(values)))})"
                cells.append(cell)
            bayes = statistics.mean(100 * line["bayes"] for line in of_world if line["run"] == "default")
            print(f"| {world} | {bayes:.1f} | {' | '.join(cells)} |")


def runs_of(world: str) -> list[str]:
    """Return the runs in a world; adjusted rows are the same at every shift, so neighbours run at one of them."""
    if not world.startswith("shift"):
        return list(RUNS)
    return [*(RUNS if world == "shift-2" else ("default", "supervised")), NOT_ADJUSTED]


def main() -> None:
    """Measure, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--worlds", nargs="+", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[300, 301, 302])
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    lines = read_lines(options.out)
    if options.report:
        report(lines)
        return
    finished = {(line["world"], line["run"], line["seed"]) for line in lines}
    for seed, world in itertools.product(options.seeds, options.worlds):
        for run in runs_of(world):
            if (world, run, seed) not in finished:
                append_line(options.out, measure(world, run, seed))


if __name__ == "__main__":
    main()
