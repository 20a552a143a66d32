"""From a table and its prevalences to predictions and a report, in one script.

    python examples/table_to_report.py [FOLDER]

The table is the example that comes with fedul: four hospitals, six months, no diagnoses. Replace the two paths and the
two column names by your own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import fedul
from fedul.data.example import write_example


def main(folder: Path) -> None:
    """Write example data, predictions and a report into a folder."""
    write_example(folder)
    study = fedul.load(
        folder / "patients.csv", priors=folder / "prevalence.csv", client_column="hospital", set_column="month"
    )
    print(fedul.check(study).summary)

    run = fedul.train(study, out=folder / "run", resume=True, seed=0)
    evaluation = fedul.evaluate(run)
    if evaluation.interval is None:
        print(f"the accuracy cannot be estimated, because {evaluation.reason}")
    else:
        low, high = evaluation.interval
        print(f"estimated accuracy {evaluation.estimated_accuracy:.1%} ({low:.1%} to {high:.1%}), without any label")
    fedul.report(run, folder / "report.html", force=True)

    probabilities = run.classifier.predict_proba(folder / "new_patients.csv")  # (n, K)
    print(f"{len(probabilities):,} new patients; report: {folder / 'report.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "hospitals"))
