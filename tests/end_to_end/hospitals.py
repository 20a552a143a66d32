"""Made-up patients of two hospitals, some hundred rows: a table, its prevalences, and new rows with their truth."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

TRAIN = (
    "train --data patients.csv --priors prevalence.csv --client-column hospital --set-column month "
    "--truth-column truth --rounds 10 --out RUN"
)
CENTRES = {"flu": (39.0, 2.0, 0.8), "cold": (37.2, 5.0, 0.2)}


def patients(mix: dict[str, float], rows: int, generator: np.random.Generator) -> tuple[list[str], list[list[str]]]:
    """True classes, and temperature (missing now and then), days, cough and ward of made-up patients."""
    classes = generator.choice(list(mix), rows, p=list(mix.values()))
    made = []
    for name in classes:
        degrees, days, cough = CENTRES[name]
        temperature = "" if generator.random() < 0.05 else f"{generator.normal(degrees, 1.0):.1f}"
        coughs = "yes" if generator.random() < cough else "no"
        made.append([temperature, f"{generator.normal(days, 2):.2f}", coughs, generator.choice(["A", "B"])])
    return classes.tolist(), made


def write_hospitals(folder: Path) -> None:
    """Writes patients.csv, prevalence.csv, new.csv and truth.csv."""
    generator = np.random.default_rng(0)
    head = ["temperature", "days", "cough", "ward"]
    lines, priors = [["hospital", "month", *head, "truth"]], [["hospital", "month", "flu", "cold"]]
    for hospital, shares in {"North": (0.2, 0.7), "South": (0.4, 0.9, 0.5)}.items():
        for month, share in enumerate(shares):
            truth, rows = patients({"flu": share, "cold": 1 - share}, 150, generator)
            lines += [[hospital, f"m{month}", *row, name] for row, name in zip(rows, truth, strict=True)]
            flu = truth.count("flu") / len(truth)
            priors.append([hospital, f"m{month}", f"{flu:.4f}", f"{1 - flu:.4f}"])
    truth, rows = patients({"flu": 0.1, "cold": 0.9}, 1000, generator)
    tables = {
        "patients": lines,
        "prevalence": priors,
        "new": [head, *rows],
        "truth": [["class"], *([t] for t in truth)],
    }
    for name, table in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(table)
