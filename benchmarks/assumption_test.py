"""False alarms and power of the assumption test, in Gaussian worlds and on digits.

    python benchmarks/assumption_test.py --out FILE.jsonl [--cases NAME ...] [--replications 400] [--seed0 5000]
    python benchmarks/assumption_test.py --out FILE.jsonl --report

A case is a world, the form of its class priors, and what is wrong with the second client: nothing, one column moved by
0.5 standard deviations, its class priors in the wrong order, or inverted images. The test compares features and not
predictions, so nothing is trained. --out gets one line per case and block of seeds; finished ones are not repeated. The
second form prints the tables of docs/results/assumption-test.md. Seeds below 2000 were used in development.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest
from torch import nn

import fedul
from _measure import append_line, read_lines
from fedul.classifier import Classifier
from fedul.core import SIGNIFICANCE, Federation
from fedul.evaluation.assumption import check_assumption
from fedul.evaluation.cross_fit import cross_fit
from fedul.evaluation.out_of_fold import ClientPredictions, OutOfFoldPredictions
from gaussian_worlds import THREE, World, apart, boosted, rare, two_classes

BLOCK = 50
ALTERED = "client-2"
COLUMN = 2
SHIFT = 0.5

WORLDS = {
    "rare classes": World(THREE, rare, rows=(150, 150)),
    "Bayes error 30 %": World(apart(1.0488, 10), two_classes, rows=(60, 60)),
    "one client": World(THREE, boosted, clients=1, sets=12, rows=(100, 100)),
    "sets of 1 to 5 rows": World(THREE, boosted, clients=3, sets=150, rows=(1, 5)),
    "96,000 rows": World(THREE, boosted, rows=(2400, 2400)),
    **{f"{rows} rows a set": World(THREE, boosted, clients=4, sets=6, rows=(rows, rows)) for rows in (100, 200, 201)},
    "rare classes, 1,000 rows a site": World(THREE, rare, rows=(125, 125)),
    "Bayes error 30 %, 1,000 rows a site": World(apart(1.0488, 10), two_classes, rows=(125, 125)),
    "1,000 rows a site": World(THREE, boosted, rows=(125, 125)),
}
FORMS = ("six decimals", "percents", "counts beside percents", "counts")
DIGITS = {"digits, boosted": "boosted", "digits, text": "text"}
POWER = "1,000 rows a site"


@dataclass(frozen=True)
class Case:
    """A world or digits, the form of the class priors, and what is wrong with one client."""

    world: str
    form: str
    wrong: str = ""

    @property
    def name(self) -> str:
        """The name of the case in the file."""
        return ", ".join(filter(None, (self.world, self.form, self.wrong)))


def all_cases() -> Iterator[Case]:
    """Yield all cases."""
    for world in WORLDS:
        if POWER in world:
            yield from (Case(world, form, wrong) for form in FORMS[:3] for wrong in ("shifted", "permuted"))
        else:
            forms = (*FORMS[:2], "counts") if WORLDS[world].clients == 1 else FORMS
            yield from (Case(world, form) for form in forms)
    yield from (Case(world, "counts", wrong) for world in DIGITS for wrong in ("", "inverted", "permuted"))


def draw(case: Case, seed: int) -> OutOfFoldPredictions:
    """Draw the rows of a Gaussian world, with their columns as features."""
    world, generator = WORLDS[case.world], np.random.default_rng([seed, 31])
    means = world.means(generator)
    classes, columns = means.shape
    clients: list[ClientPredictions] = []
    for number in range(world.clients):
        name = f"client-{number + 1}"
        priors = world.priors(generator, world.sets)
        sizes = generator.integers(world.rows[0], world.rows[1] + 1, world.sets)
        counts = np.stack([generator.multinomial(n, p) for n, p in zip(sizes, priors, strict=True)])
        labels = np.concatenate([np.repeat(np.arange(classes), own) for own in counts])
        rows = means[labels] + generator.normal(size=(len(labels), columns))
        exact = case.form == "counts" or (case.form == "counts beside percents" and number == 0)
        places = 6 if case.form == "six decimals" else 2
        stated = counts / sizes[:, None] if exact else priors.round(places)
        stated = stated / stated.sum(axis=1, keepdims=True)
        if name == ALTERED and case.wrong == "permuted":
            stated = np.roll(stated, 1, axis=1)
        if name == ALTERED and case.wrong == "shifted":
            rows[:, COLUMN] += SHIFT
        clients.append(
            ClientPredictions(
                name,
                [f"set {m}" for m in range(world.sets)],
                stated,
                np.repeat(np.arange(world.sets), sizes),
                np.arange(len(labels)) + sum(len(client.rows) for client in clients),
                np.full((len(labels), classes), 1 / classes),
                rows,
                exact,
                rounding=0.0 if exact else 0.5 * 10.0**-places,
            )
        )
    names = [f"class {k}" for k in range(classes)]
    prior = np.full(classes, 1 / classes)
    return OutOfFoldPredictions(clients, names, prior, columns=[f"x{j}" for j in range(columns)])


def deal_digits(case: Case, seed: int) -> OutOfFoldPredictions:
    """Deal digits, with principal components as features."""
    options = {"clients": 5, "sets": 10, "sets_overlap": False, "prior_recipe": DIGITS[case.world]}
    federation = fedul.load("digits", seed=seed, **options).federation
    clients = []
    for client in federation.clients:
        if client.name == ALTERED and case.wrong == "permuted":
            client = replace(client, priors=np.roll(client.priors, 3, axis=1))
        if client.name == ALTERED and case.wrong == "inverted":
            client = replace(client, inputs=client.inputs.max() - client.inputs)
        clients.append(client)
    return cross_fit(replace(federation, clients=clients), _untrained, folds=2)


def _untrained(part: Federation) -> Classifier:
    size = int(np.prod(part.input_shape))
    module = nn.Sequential(nn.Flatten(), nn.Linear(size, len(part.classes)))
    return Classifier(module, "custom", part.classes, part.input_shape, part.test_prior, part.scaling)


def measure(case: Case, seeds: Iterable[int]) -> dict[str, Any]:
    """Return the line of one block: seeds of rejections, and what was named in each."""
    started, rejected, named = time.process_time(), [], []
    for seed in seeds:
        test = check_assumption((deal_digits if case.world in DIGITS else draw)(case, seed), seed=seed)
        if test.p_value is not None and test.p_value < SIGNIFICANCE:
            rejected.append(seed)
            columns = [each.column for each in test.columns]
            named.append({"clients": sorted({each.client for each in test.misfits}), "columns": columns})
    return {"rejected": rejected, "named": named, "seconds": round(time.process_time() - started, 1)}


def report(lines: list[dict[str, Any]]) -> None:
    """Print the tables of false alarms and of power."""
    right, power = [], []
    for case in all_cases():
        own = [line for line in lines if line["case"] == case.name]
        runs = sum(line["last"] - line["first"] + 1 for line in own)
        if not runs:
            continue
        rejected = sum(len(line["rejected"]) for line in own)
        seconds = sum(line["seconds"] for line in own) / runs
        if not case.wrong:
            ends = binomtest(rejected, runs).proportion_ci(method="exact")
            inside = "yes" if ends.low <= SIGNIFICANCE <= ends.high else "**no**"
            right.append(
                f"| {case.world} | {case.form} | {rejected} of {runs} | {rejected / runs:.1%} | "
                f"{ends.low:.1%} to {ends.high:.1%} | {inside} | {seconds:.2f} |"
            )
            continue
        named = list(itertools.chain.from_iterable(line["named"] for line in own))
        hits = sum(ALTERED in each["clients"] for each in named)
        innocent = [len(set(each["clients"]) - {ALTERED}) for each in named]
        more = sum(count > 1 for count in innocent)
        columns = sum(f"x{COLUMN}" in each["columns"] for each in named) if case.wrong == "shifted" else ""
        only = sum(each["columns"] == [f"x{COLUMN}"] for each in named) if case.wrong == "shifted" else ""
        power.append(
            f"| {case.world} | {case.form} | {case.wrong} | {runs} | {rejected} | {hits} | "
            f"{sum(count > 0 for count in innocent)} | {more} | {columns} | {only} |"
        )
    print("| world | priors | rejected | share | 95 % interval | contains 5 % | seconds |")
    print("|---|---|---:|---:|---|---|---:|")
    print("\n".join(right))
    print("\n| world | priors | client 2 is | runs | rejected | it is named | another is named | two others | ", end="")
    print("column named | only this column |\n|---|---|---|" + "---:|" * 7)
    print("\n".join(power))


def main() -> None:
    """Measure, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cases", nargs="+", help="names of cases, or of worlds")
    parser.add_argument("--replications", type=int, default=400)
    parser.add_argument("--altered", type=int, default=100, help="replications where a client is wrong")
    parser.add_argument("--seed0", type=int, default=5000)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = read_lines(options.out)
    if options.report:
        report(lines)
        return
    finished = {(line["case"], line["first"]) for line in lines}
    for case in all_cases():
        if options.cases and not {case.name, case.world} & set(options.cases):
            continue
        count = options.altered if case.wrong else options.replications
        for first in range(options.seed0, options.seed0 + count, BLOCK):
            if (case.name, first) not in finished:
                last = min(first + BLOCK, options.seed0 + count) - 1
                line = {"case": case.name, "first": first, "last": last, **measure(case, range(first, last + 1))}
                append_line(options.out, line)


if __name__ == "__main__":
    main()
