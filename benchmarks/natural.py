"""Accuracy and AUC on tables whose groups nobody dealt, beside five lines of scikit-learn and models with labels.

    python benchmarks/natural.py FOLDER [--out natural.jsonl] [--method fedul] [--set rounds=30 ...]

FOLDER has SPLIT/CASE folders with rows.csv (columns client, group and features), prevalence.csv (client, group and a
column per class, in percent), new.csv and new_truth.csv (column truth) with rows that were set aside, and
rows_truth.csv (rows.csv with a column truth) for the models with labels. Finished cases in --out are not run again.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import fedul
from _measure import append_line, read_lines
from fedul.data.files.new_rows import RowReader

Scores = tuple[float, float]


def score(truth: np.ndarray, probabilities: np.ndarray, classes: list[str]) -> Scores:
    """Return accuracy and AUC (one against the rest, for more than two classes)."""
    accuracy = float((np.array(classes)[probabilities.argmax(1)] == truth).mean())
    if len(classes) == 2:
        return accuracy, float(roc_auc_score(truth == classes[1], probabilities[:, 1]))
    shares = probabilities / probabilities.sum(1, keepdims=True)
    return accuracy, float(roc_auc_score(truth, shares, multi_class="ovr", labels=classes))


def baselines(study: fedul.Study, case: Path, truth: np.ndarray) -> Iterator[tuple[str, Scores]]:
    """Yield logistic regression with labels and on rows weighted by the shares of their set, and the majority."""
    federation = study.federation
    classes = sorted(federation.classes)
    order = [list(federation.classes).index(name) for name in classes]
    inputs, shares = [], []
    for client in federation.clients:
        rows = client.all_rows
        inputs.append(client.inputs[rows.index].numpy())
        shares.append(client.priors[rows.sets.numpy()][:, order])
    x, weights = np.concatenate(inputs), np.concatenate(shares)
    new = np.concatenate(list(RowReader(case / "new.csv", federation.schema)))
    labelled = np.concatenate(list(RowReader(case / "rows.csv", federation.schema)))
    labels = pd.read_csv(case / "rows_truth.csv")["truth"].astype(str).to_numpy()
    model = LogisticRegression(max_iter=2000).fit(labelled, labels)
    yield "labels", score(truth, model.predict_proba(new), classes)
    repeated = np.repeat(classes, len(x))
    model = LogisticRegression(max_iter=2000)
    model.fit(np.tile(x, (len(classes), 1)), repeated, sample_weight=weights.T.ravel())
    yield "soft-set LR", score(truth, model.predict_proba(new), classes)
    yield "majority", (max(float((truth == name).mean()) for name in classes), 0.5)


def run_case(case: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores of all models on one case."""
    study = fedul.load(
        case / "rows.csv",
        case / "prevalence.csv",
        client_column="client",
        set_column="group",
        test_prior="natural",
    )
    truth = pd.read_csv(case / "new_truth.csv")["truth"].astype(str).to_numpy()
    scores = dict(baselines(study, case, truth))
    started = time.monotonic()
    run = fedul.train(study, seed=0, **settings)
    seconds = time.monotonic() - started
    classes = list(run.classifier.classes)
    order = np.argsort(classes)
    probabilities = run.classifier.predict_proba(case / "new.csv")[:, order]
    scores["fedul"] = score(truth, probabilities, sorted(classes))
    chosen = "" if run.result.choice is None else run.result.choice.chosen
    return {"split": case.parent.name, "case": case.name, "chosen": chosen, "seconds": round(seconds, 1), **scores}


def print_table(results: list[dict[str, Any]]) -> None:
    """Print the means over splits as a Markdown table: accuracy (AUC)."""
    models = ("labels", "soft-set LR", "majority", "fedul")
    groups = defaultdict(list)
    for result in results:
        groups[result["case"]].append(result)
    print(f"| table | {' | '.join(models)} | chosen |\n|---|{'---:|' * len(models)}---|")
    means = []
    for case, runs in groups.items():
        mean = np.mean([[run[model] for model in models] for run in runs], axis=0)  # (models, 2)
        means.append(mean)
        cells = [f"{accuracy:.2f} ({auc:.2f})" for accuracy, auc in mean]
        print(f"| {case} | {' | '.join(cells)} | {', '.join(run['chosen'] for run in runs)} |")
    overall = np.mean(means, axis=0)
    print(f"| mean | {' | '.join(f'{accuracy:.3f} ({auc:.3f})' for accuracy, auc in overall)} | |")
    level = sum(mean[3, 1] >= mean[1, 1] - 0.01 for mean in means)
    print(f"\nAUC at least that of soft-set LR less 0.01: {level} of {len(means)} tables.")


def main() -> None:
    """Score all cases of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="JSON lines, one per case and split")
    parser.add_argument("--method")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of fedul.train")
    options = parser.parse_args()
    settings = dict(pair.split("=", 1) for pair in options.set)
    if options.method:
        settings["method"] = options.method
    warnings.simplefilter("ignore")
    results = []
    if options.out:
        results = read_lines(options.out)
    done = {(result["split"], result["case"]) for result in results}
    for case in sorted(path.parent for path in options.folder.glob("*/*/rows.csv")):
        if (case.parent.name, case.name) in done:
            continue
        results.append(run_case(case, settings))
        if options.out:
            append_line(options.out, results[-1])
    print_table(results)


if __name__ == "__main__":
    main()
