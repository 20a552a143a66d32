"""Error against epsilon: rows, clients and class priors with differential privacy.

    python benchmarks/privacy_curves.py --out FILE.jsonl [--only rows ...] [--natural FOLDER] [--seeds 0 1 2]
    python benchmarks/privacy_curves.py --out FILE.jsonl --report

--out gets one line per run; finished runs are not repeated. Rows of a data set by name are dealt to sets without
overlap: each set draws a weight for every class, and a row goes to a set with a probability in proportion to the weight
of its class. The class priors are the shares of the rows of a set. FOLDER has rows.csv (columns client, group and
features), prevalence.csv, new.csv and new_truth.csv, as for benchmarks/natural.py; its rows are dealt to clients at
random, and the groups are the sets of every client. Settings were chosen on the seeds 1000 and above. Noise follows
from the seeds (`dp_seeded`), so that the numbers can be repeated; it gives no guarantee here.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedul
from _measure import IgnoreWarnings, append_line, print_table, read_lines
from fedul._utils.randomness import numpy_generator
from fedul.core import Federation, Labels, Study
from fedul.data import read_source

EPSILONS = (1.0, 3.0, 8.0, None)
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Group:
    """Runs that differ in epsilon and seed.

    Parameters
    ----------
    data : str
        Data set, or "natural".
    clients, sets : int
        Number of clients, and of the sets of each.
    option : str
        Name of the setting that takes epsilon.
    settings : mapping
        Settings of all runs.
    private : mapping
        Further settings of the runs with an epsilon.
    epsilons : sequence of float or None
        Values of epsilon; None is a run without protection.
    """

    data: str
    clients: int
    sets: int
    option: str
    settings: Mapping[str, Any]
    private: Mapping[str, Any] = field(default_factory=dict)
    epsilons: Sequence[float | None] = EPSILONS


LINEAR = {"method": "fedul", "model": "linear", "select": "last"}
BATCHES = {"rounds": 30, "optimizer": "sgd", "batch_size": "all"}
"""One step of DP-SGD a round, with all rows: the least noise for a number of rounds."""
QUANTILE = {"client_dp_quantile": 0.5, "client_dp_clip": 0.3}
MANY_ROWS = {"rounds": 40, "learning_rate": 10, "batch_size": 2048}
CLIENTS = {"rounds": 20, "optimizer": "sgd", "learning_rate": 0.5, "batch_size": 32}
PRIORS = {"rounds": 30}
PRIOR_EPSILONS = (0.1, 0.3, 1.0, 3.0, None)
OPTIONS = {
    "dp_epsilon": "rows",
    "client_dp_epsilon": "clients",
    "prior_epsilon": "class priors",
}
"""Settings that take epsilon, and what they protect."""
GROUPS: dict[str, Group] = {
    "digits, 5 clients": Group("digits", 5, 10, "dp_epsilon", {**BATCHES, "learning_rate": 5}, {"learning_rate": 10}),
    "digits, 50 clients": Group("digits", 50, 3, "dp_epsilon", {**BATCHES, "learning_rate": 10}),
    "azpro, 5 clients": Group("natural", 5, 0, "dp_epsilon", {**BATCHES, "learning_rate": 5}),
    "azpro, 50 clients": Group("natural", 50, 0, "dp_epsilon", {**BATCHES, "learning_rate": 5}),
    "MNIST, 5 clients": Group("mnist", 5, 10, "dp_epsilon", CLIENTS, MANY_ROWS, (8.0, None)),
    "priors of digits": Group("digits", 5, 10, "prior_epsilon", PRIORS, epsilons=PRIOR_EPSILONS),
    "priors of azpro": Group("natural", 5, 0, "prior_epsilon", PRIORS, epsilons=PRIOR_EPSILONS),
    "MNIST, 50 whole clients": Group("mnist", 50, 3, "client_dp_epsilon", CLIENTS, QUANTILE),
    "MNIST, 200 whole clients": Group("mnist", 200, 3, "client_dp_epsilon", CLIENTS, QUANTILE, (1.0, 8.0, None)),
    "digits, 5 whole clients": Group("digits", 5, 10, "client_dp_epsilon", CLIENTS, QUANTILE),
}


@cache
def _source(data: str) -> Any:
    return read_source(data, None)


def deal_rows(data: str, clients: int, sets: int, seed: int) -> tuple[Federation, Any, Labels]:
    """Return a federation with rows of a data set, test inputs and test labels."""
    source, generator = _source(data), numpy_generator(seed, "deal", clients)
    classes, count = len(source.classes), clients * sets
    weights = generator.uniform(0.1, 1.0, (count, classes))
    weights[np.arange(count), generator.integers(classes, size=count)] *= 10
    labels = source.train_labels
    places = np.empty(len(labels), np.int64)
    for k in range(classes):
        rows = np.flatnonzero(labels == k)
        places[rows] = generator.choice(count, len(rows), p=weights[:, k] / weights[:, k].sum())
    shares = np.zeros((count, classes))
    np.add.at(shares, (places, labels), 1)
    owners = [f"c{c:03d}" for c in np.repeat(np.arange(clients), sets)]
    used = shares.sum(1) > 1  # a set of one row has its label
    kept = used[places]
    number = np.cumsum(used) - 1
    federation = Federation.from_arrays(
        source.train_inputs[np.flatnonzero(kept)],
        number[places[kept]],
        shares[used] / shares[used].sum(1, keepdims=True),
        [owner for owner, is_used in zip(owners, used, strict=True) if is_used],
        source.classes,
        scaling=source.scaling,
        held_out=0.0,
        priors_of="rows",
    )
    return federation, source.test_inputs, source.test_labels


def deal_table(folder: Path, clients: int, seed: int) -> tuple[Study, Path, Labels]:
    """Return a study with the rows of a natural table dealt to clients, new rows and their classes."""
    rows = pd.read_csv(folder / "rows.csv", dtype={"client": str, "group": str})
    priors = pd.read_csv(folder / "prevalence.csv", dtype={"client": str, "group": str})
    rows["group"], priors["group"] = rows.client + "-" + rows.group, priors.client + "-" + priors.group
    generator = numpy_generator(seed, "deal", clients)
    rows["client"] = [f"c{c:03d}" for c in generator.permutation(len(rows)) % clients]
    pairs = rows[["client", "group"]].drop_duplicates()
    table = pairs.merge(priors.drop(columns="client"), on="group")
    study = fedul.load(rows, table, client_column="client", set_column="group", held_out=0.0, seed=seed)
    truth = pd.read_csv(folder / "new_truth.csv")["truth"].astype(str).to_numpy()
    return study, folder / "new.csv", truth


def run_one(name: str, group: Group, epsilon: float | None, seed: int, natural: Path | None) -> dict[str, Any]:
    """Train once and return a line of results."""
    if group.data == "natural":
        assert natural is not None
        data, inputs, truth = deal_table(natural, group.clients, seed)
        classes: Sequence[str] = data.federation.classes
    else:
        data, inputs, labels = deal_rows(group.data, group.clients, group.sets, seed)
        classes = data.classes
        truth = np.array(classes)[labels]
    settings = {**LINEAR, **group.settings}
    if epsilon is not None:
        settings |= {**group.private, group.option: epsilon, "dp_seeded": True}
    started = time.monotonic()
    run = fedul.train(data, seed=seed, callbacks=[IgnoreWarnings()], force=True, **settings)
    seconds = time.monotonic() - started
    probabilities = run.classifier.predict_proba(inputs)
    predicted = np.array(classes)[np.asarray(probabilities).argmax(1)]
    spent = run.history[-1]
    return {
        "group": name,
        "epsilon": epsilon,
        "seed": seed,
        "error": round(float((predicted != truth).mean()), 5),
        "spent": spent.epsilon if spent.client_epsilon is None else spent.client_epsilon,
        "rounds": len(run.history),
        "seconds": round(seconds, 1),
    }


def report(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print mean errors with their range over seeds, one row per group and one column per epsilon."""
    for option, title in OPTIONS.items():
        groups = [name for name, group in GROUPS.items() if group.option == option]
        epsilons = sorted({e for name in groups for e in GROUPS[name].epsilons if e is not None})
        rows = [[title, *(f"{epsilon:g}" for epsilon in epsilons), "none", "seeds"]]
        for name in groups:
            by_epsilon = errors_of(lines, name)
            if by_epsilon:
                cells = [format_errors(by_epsilon.get(epsilon, ())) for epsilon in (*epsilons, None)]
                rows.append([name, *cells, str(max(map(len, by_epsilon.values())))])
        if len(rows) > 1:
            print_table(rows)
            print()


def errors_of(lines: Sequence[Mapping[str, Any]], name: str) -> dict[float | None, list[float]]:
    """Return the errors in % of a group by epsilon."""
    errors: dict[float | None, list[float]] = defaultdict(list)
    for line in lines:
        if line["group"] == name:
            errors[line["epsilon"]].append(100 * line["error"])
    return dict(errors)


def format_errors(errors: Sequence[float]) -> str:
    """Return the mean, and the range in brackets."""
    return f"{np.mean(errors):.1f} ({min(errors):.1f}-{max(errors):.1f})" if errors else "-"


def draw(lines: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the error against epsilon, one plot per unit of privacy."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "fedul", "svg.fonttype": "none"}):
        figure = Figure(figsize=(11, 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, (option, title) in zip(figure.subplots(1, len(OPTIONS)), OPTIONS.items(), strict=True):
            names = [name for name, group in GROUPS.items() if group.option == option]
            for i, name in enumerate(names):
                by_epsilon = errors_of(lines, name)
                known = sorted(epsilon for epsilon in by_epsilon if epsilon is not None)
                if not known:
                    continue
                means = [np.mean(by_epsilon[e]) for e in known]
                spread = [[m - min(by_epsilon[e]), max(by_epsilon[e]) - m] for e, m in zip(known, means, strict=True)]
                axes.errorbar(known, means, np.transpose(spread), marker="o", capsize=3, color=f"C{i}", label=name)
                if None in by_epsilon:
                    axes.axhline(np.mean(by_epsilon[None]), color=f"C{i}", linestyle=":", linewidth=1)
            axes.set(xlabel="epsilon", ylabel="test error (%)", title=title, xscale="log", ylim=(0, None))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.grid(alpha=0.3)
            axes.legend(frameon=False, fontsize="small")
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Run the groups that are not done, or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one per run")
    parser.add_argument("--only", nargs="+", choices=tuple(GROUPS), default=list(GROUPS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--natural", type=Path, help="folder with rows.csv, prevalence.csv, new.csv, new_truth.csv")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--figure", type=Path, help="with --report: SVG file to draw")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.report:
        report(read_lines(options.out))
        if options.figure:
            draw(read_lines(options.out), options.figure)
        return
    for seed in options.seeds:
        for name in options.only:
            group = GROUPS[name]
            if group.data == "natural" and options.natural is None:
                continue
            done = {(line["group"], line["epsilon"], line["seed"]) for line in read_lines(options.out)}
            for epsilon in group.epsilons:
                if (name, epsilon, seed) not in done:
                    append_line(options.out, run_one(name, group, epsilon, seed, options.natural))


if __name__ == "__main__":
    main()
