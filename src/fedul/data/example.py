"""Example data of a hospital network: patients without diagnoses, and published prevalences.

All data are synthetic. The true diagnoses of the new patients are in a separate file, to check predictions with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedul._utils.files import csv_text, write_bytes
from fedul._utils.randomness import numpy_generator
from fedul.core import Matrix

CLASSES = ("cold", "flu", "pneumonia")
HOSPITALS = {"Northfield": 300, "St. Mary": 250, "Lakeside": 180, "County": 220}
"""Patients per month."""
MONTHS = ("2025-10", "2025-11", "2025-12", "2026-01", "2026-02", "2026-03")
SEASON = {
    "2025-10": (0.70, 0.10, 0.20),
    "2025-11": (0.55, 0.25, 0.20),
    "2025-12": (0.35, 0.45, 0.20),
    "2026-01": (0.25, 0.50, 0.25),
    "2026-02": (0.35, 0.30, 0.35),
    "2026-03": (0.60, 0.12, 0.28),
}
"""Class shares over all hospitals; those of each hospital vary around them."""


@dataclass(frozen=True)
class Signs:
    """Distribution of the features of a diagnosis: means and deviations of numbers, probabilities of categories."""

    age: float
    temperature: tuple[float, float]
    crp: tuple[float, float]  # of its logarithm
    oxygen: tuple[float, float]
    days: float
    cough: tuple[float, float, float]  # none, dry, productive
    aches: float


SIGNS = {
    "cold": Signs(46, (37.3, 0.7), (1.6, 1.0), (97.3, 1.3), 4.5, (0.35, 0.45, 0.20), 0.20),
    "flu": Signs(50, (38.6, 0.8), (2.6, 1.0), (96.4, 1.6), 2.5, (0.15, 0.70, 0.15), 0.80),
    "pneumonia": Signs(62, (38.3, 0.9), (4.0, 0.9), (93.8, 2.8), 6.0, (0.10, 0.25, 0.65), 0.35),
}
FEATURES = ("age", "temperature", "crp", "oxygen", "days_ill", "cough", "aches")


def write_example(folder: Path, seed: int = 0) -> list[Path]:
    """Write patients.csv, prevalence.csv, new_patients.csv and new_diagnoses.csv; return their paths."""
    generator = numpy_generator(seed, "example")
    patients, prevalence = [["hospital", "month", *FEATURES]], [["hospital", "month", *CLASSES]]
    for hospital, count in HOSPITALS.items():
        for month in MONTHS:
            mix = generator.dirichlet(60 * np.array(SEASON[month]))
            rows = list(_sample_patients(round(count * generator.uniform(0.8, 1.2)), mix, generator))
            patients += [[hospital, month, *signs] for _, signs in rows]
            counts = [sum(name == diagnosis for diagnosis, _ in rows) for name in CLASSES]
            prevalence.append([hospital, month, *(f"{100 * number / len(rows):.2f}" for number in counts)])
    new = list(_sample_patients(1500, np.array([0.15, 0.15, 0.70]), generator))
    tables = {
        "patients.csv": patients,
        "prevalence.csv": prevalence,
        "new_patients.csv": [list(FEATURES), *(signs for _, signs in new)],
        "new_diagnoses.csv": [["diagnosis"], *([diagnosis] for diagnosis, _ in new)],
    }
    for name, table in tables.items():
        write_bytes(folder / name, csv_text(table).encode())
    return [folder / name for name in tables]


def _sample_patients(count: int, mix: Matrix, generator: np.random.Generator) -> Iterator[tuple[str, list[str]]]:
    for diagnosis in generator.choice(CLASSES, count, p=mix):
        yield str(diagnosis), _sample_signs(SIGNS[str(diagnosis)], generator)


def _sample_signs(of: Signs, generator: np.random.Generator) -> list[str]:
    """Return the features of one patient; some values are missing."""
    crp = "" if generator.random() < 0.08 else f"{np.exp(generator.normal(*of.crp)):.1f}"
    oxygen = "" if generator.random() < 0.03 else f"{min(generator.normal(*of.oxygen), 100):.0f}"
    return [
        f"{np.clip(generator.normal(of.age, 18), 1, 99):.0f}",
        f"{generator.normal(*of.temperature):.1f}",
        crp,
        oxygen,
        f"{1 + generator.poisson(of.days - 1)}",
        str(generator.choice(["none", "dry", "productive"], p=of.cough)),
        "yes" if generator.random() < of.aches else "no",
    ]
