"""Tables and figure of the case study in arizona_hospitals.py."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedul import plotting
from fedul._utils.randomness import numpy_generator

Line = Mapping[str, Any]
MIXES = ("natural", "known", "estimated")
CHOSEN, CHOSEN_COLUMNS = "chosen encoding", "chosen columns"
CANDIDATES = {CHOSEN: ("default",), CHOSEN_COLUMNS: ("default", "default, stay only")}
"""Runs of which the one that predicts sets left out best is taken. The default has two encodings of the stay."""
LABELS = ("logistic regression, labels", "boosted trees, labels", "all labels")
DRAWS = 2000


def by_model(lines: Iterable[Line]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the scores of each model and encoding, one for each hospital and seed."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in [*lines, *choose(lines)]:
        for name, scores in line["scores"].items():
            model = line["run"] if name == "fedul" else name
            keys = ("hospital", "seed", "rows", "seconds", "epsilon")
            groups[model, line["encoding"]].append({**{key: line.get(key) for key in keys}, **scores})
    return groups


def choose(lines: Iterable[Line]) -> list[Line]:
    """Return for each choice, hospital and seed the run whose loss on sets left out of training is lowest."""
    every = sorted((line for line in lines if line["run"] in CANDIDATES[CHOSEN_COLUMNS]), key=_place)
    chosen = []
    for _, group in itertools.groupby(every, key=_place):
        of_place = list(group)
        for name, runs in CANDIDATES.items():
            candidates = [line for line in of_place if line["run"] in runs]
            if len(candidates) == 1 + len(runs):  # the default has two encodings
                best = min(candidates, key=lambda line: line["losses"][line["chosen"]])
                better = best["encoding"] if best["run"] == "default" else best["run"]
                chosen.append({**best, "run": name, "encoding": "by loss", "better": better})
    return chosen


def _place(line: Line) -> tuple[str, int]:
    return line["hospital"], line["seed"]


def error(scores: Sequence[Line], mix: str) -> float:
    """Return the error in % over all patients, each at the hospital that was left out; the mean over seeds."""
    return 100 * float(np.average([each[mix] for each in scores], weights=[each["rows"] for each in scores]))


def ratio(scores: Sequence[Line], labels: Sequence[Line], mix: str) -> str:
    """Return the ratio of two errors, with the 95 % interval of a bootstrap over hospitals."""
    hospitals = sorted({each["hospital"] for each in scores})
    wrong = []
    for group in (scores, labels):
        of = {name: [each for each in group if each["hospital"] == name] for name in hospitals}
        wrong.append([np.mean([each[mix] * each["rows"] for each in of[name]]) for name in hospitals])
    counts = np.array(wrong)  # (2, hospitals)
    draws = numpy_generator(0, "bootstrap").integers(len(hospitals), size=(DRAWS, len(hospitals)))
    sums = counts[:, draws].sum(-1)  # (2, draws)
    low, high = np.quantile(sums[0] / sums[1], [0.025, 0.975])
    return f"{counts[0].sum() / counts[1].sum():.2f} ({low:.2f} to {high:.2f})"


def error_rows(lines: Sequence[Line]) -> list[list[str]]:
    """Return the table of errors: pooled over patients for three class mixes, the mean over hospitals, and the AUC."""
    rows = [["model", "stay", "seeds", "natural mix", "published mix", "estimated mix", "mean of hospitals", "AUC"]]
    for (model, encoding), scores in by_model(lines).items():
        of_hospitals = 100 * np.mean([each["known"] for each in scores])
        auc = np.mean([each["auc"] for each in scores])
        errors = [f"{error(scores, mix):.2f}" for mix in MIXES]
        seeds = str(len({each["seed"] for each in scores}))
        rows.append([model, encoding, seeds, *errors, f"{of_hospitals:.2f}", f"{auc:.3f}"])
    return rows


def ratio_rows(lines: Sequence[Line]) -> list[list[str]]:
    """Return the table of ratios of the error to those of labelled models."""
    groups = by_model(lines)
    rows = [["run", "class mix", *LABELS]]
    for run in (CHOSEN, CHOSEN_COLUMNS):
        scores = next((found for (model, _), found in groups.items() if model == run), None)
        if scores is None:
            continue
        for mix in MIXES[:2]:
            against = [groups.get((name, "log")) for name in LABELS]
            rows.append([run, mix, *("" if each is None else ratio(scores, each, mix) for each in against)])
    return rows


def hospital_rows(lines: Sequence[Line]) -> list[list[str]]:
    """Return the table of hospitals: errors at the published mix, and the estimate without labels beside the truth."""
    groups = by_model(lines)
    rows = [["hospital", "patients", "labels (%)", "fedul (%)", "estimate (%)", "other hospitals (%)", "this one (%)"]]
    shown = {line["hospital"]: line for line in lines if "evaluation" in line and line["encoding"] == "log"}
    for hospital in sorted({line["hospital"] for line in lines}):
        cells = [hospital.removeprefix("hospital "), str(next(x["rows"] for x in lines if x["hospital"] == hospital))]
        for key in ((LABELS[0], "log"), (CHOSEN, "by loss")):
            own = [100 * each["known"] for each in groups.get(key, ()) if each["hospital"] == hospital]
            cells.append(f"{np.mean(own):.1f}" if own else "")
        if hospital in shown:
            found, natural = shown[hospital]["evaluation"], shown[hospital]["scores"]["fedul"]["natural"]
            given = found["interval"]
            cells.append("none" if given is None else f"{100 * given[0]:.0f} to {100 * given[1]:.0f}")
            cells += [f"{100 * found['true']:.1f}", f"{100 * (1 - natural):.1f}"]
        rows.append(cells)
    return rows


def cost_rows(lines: Sequence[Line]) -> list[list[str]]:
    """Return the table of what privacy costs: error, and epsilon spent."""
    rows = [["run", "seeds", "natural mix", "published mix", "epsilon"]]
    for (model, encoding), scores in by_model(lines).items():
        if encoding != "log" or scores[0]["seconds"] is None or model == "all labels":
            continue
        spent = [each["epsilon"] for each in scores if each["epsilon"] is not None]
        cells = [f"{error(scores, mix):.2f}" for mix in MIXES[:2]]
        seeds = str(len({each["seed"] for each in scores}))
        rows.append([model, seeds, *cells, f"{max(spent):.2f}" if spent else ""])
    return rows


def print_report(lines: Sequence[Line]) -> None:
    """Print all tables as Markdown."""
    for rows in (error_rows(lines), ratio_rows(lines), hospital_rows(lines), cost_rows(lines)):
        print("\n".join(to_markdown(rows)), end="\n\n")
    for (name, better), count in sorted(Counter((line["run"], line["better"]) for line in choose(lines)).items()):
        print(f"{name}: {better} predicts sets left out best in {count} runs.")


def to_markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [f"| {' | '.join(rows[0])} |", f"|---{'|---:' * (len(rows[0]) - 1)}|"] + [
        f"| {' | '.join(row)} |" for row in rows[1:]
    ]


def draw(lines: Sequence[Line], path: Path) -> None:
    """Draw the error at every hospital: fedul, labels, and the set's top class."""
    import matplotlib.pyplot as plt

    groups = by_model(lines)
    shown = (
        ("fedul, no label", (CHOSEN, "by loss"), "o"),
        ("logistic regression, all labels", (LABELS[0], "log"), "D"),
        ("most common procedure of the hospital", ("majority class", "log"), "|"),
    )
    sizes = {each["hospital"]: each["rows"] for each in groups[LABELS[0], "log"]}
    order = sorted(sizes, key=lambda name: sizes[name])
    with plotting.styled():
        figure, axes = plt.subplots(figsize=(7, 5.4))
        for (label, key, marker), colour in zip(shown, (*plotting.COLOURS[:2], plotting.MUTED), strict=True):
            means = [np.mean([100 * e["known"] for e in groups[key] if e["hospital"] == name]) for name in order]
            axes.plot(means, range(len(order)), marker, color=colour, label=label, markersize=7)
        names = [f"{name.removeprefix('hospital ')} ({sizes[name]})" for name in order]
        axes.set_yticks(range(len(order)), names)
        axes.set(xlabel="error at the hospital that was left out (%)", ylabel="hospital (patients)", xlim=(0, None))
        figure.legend(loc="outside upper center", ncols=3)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
