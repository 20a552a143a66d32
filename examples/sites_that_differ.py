"""Sites that measure on different scales: find the column, and adjust each site by its own prevalences.

    python examples/sites_that_differ.py

Three clinics measure the same substance with assays of different scale. All data are simulated.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import fedul

CLINICS = {"alpha": (0.0, 1.0), "beta": (3.0, 2.5), "gamma": (-1.0, 0.6)}
"""Offset and factor of each clinic's assay."""
SHARES = (0.15, 0.35, 0.55, 0.75)


def simulate(seed: int, rows: int = 250) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return patients of three clinics and four quarters, and the share of ill patients in percent."""
    generator, tables, priors = np.random.default_rng(seed), [], []
    for clinic, (offset, factor) in CLINICS.items():
        for quarter, share in enumerate(SHARES, 1):
            ill = generator.random(rows) < share
            table = pd.DataFrame({"assay": offset + factor * generator.normal(1.8 * ill, 1.0)})
            table["age"] = generator.normal(50 + 6 * ill, 14)
            tables.append(table.assign(clinic=clinic, quarter=f"q{quarter}", truth=np.where(ill, "ill", "well")))
            priors.append((clinic, f"q{quarter}", 100 * share, 100 - 100 * share))
    return pd.concat(tables, ignore_index=True), pd.DataFrame(priors, columns=["clinic", "quarter", "ill", "well"])


def main() -> None:
    """Print what the assumption test finds, and the error on new patients with and without the adjustment."""
    (patients, priors), (new, _) = simulate(0), simulate(1)
    for adjustment in ("off", "on"):
        study = fedul.load(
            patients.drop(columns="truth"),
            priors=priors,
            client_column="clinic",
            set_column="quarter",
            site_adjustment=adjustment,
        )
        run = fedul.train(study, rounds=20, seed=0)
        wrong = run.classifier.predict(new.drop(columns="truth")) != new.truth
        test = fedul.evaluate(run).assumption
        columns = ", ".join(dict.fromkeys(each.column for each in test.columns)) or "none"
        print(f"site_adjustment={adjustment}: error {wrong.mean():.1%}; columns that differ between sites: {columns}")


if __name__ == "__main__":
    main()
