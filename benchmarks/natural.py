"""Accuracy and AUC on tables whose groups nobody dealt, beside five lines of scikit-learn and models with labels.

    python benchmarks/natural.py FOLDER --out natural.jsonl [--runs fedul "network without l2" ...]
    python benchmarks/natural.py --out natural.jsonl --report

FOLDER has SPLIT/CASE folders with rows.csv (columns client, group and features), prevalence.csv (client, group and a
column per class, in percent), new.csv and new_truth.csv (column truth) with rows that were set aside, and
rows_truth.csv (rows.csv with a column truth) for the models with labels. --runs are names of methods or of RUNS;
without it the default method runs. Finished runs in --out are not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import fedul
from _measure import append_line, read_lines
from fedul.config import GENERIC
from fedul.data.files.new_rows import RowReader
from fedul.methods.fedul_combined import FedULCombined
from fedul.training.choice import count_sets

Scores = tuple[float, float]
DEFAULT = "default"
ABLATIONS = {
    "network": ("", "set_weight", "proportion_weight", "common_mix", "l2"),
    "linear": ("",),
    "consistent": ("", "set_weight", "proportion_weight", "consistency_weight", "trust", "l2"),
    "likelihood": ("",),
}
"""Alternatives of the default method, and the ingredients that are switched off in turn."""
RUNS = {f"{name} without {off}" if off else name: (name, off) for name, options in ABLATIONS.items() for off in options}


def settings_of(run: str, sets: int) -> dict[str, Any]:
    """Return the settings of a run: of the default, an alternative, an ablation, or a method with 30 rounds."""
    if run == DEFAULT:
        return {}
    if run not in RUNS:
        return {"method": run, "rounds": 30, "force": True}
    name, off = RUNS[run]
    (chosen,) = (each for each in FedULCombined().alternatives((1,), sets) if each.name == name)
    options, training = dict(chosen.options) or {"trust": 0.0}, dict(chosen.training)
    if off == "l2":
        training["l2"] = 0.0
    elif off:
        options[off] = False if off == "common_mix" else 0.0
    return {"method_option": options, "force": True, **GENERIC, **training}


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


def run_case(case: Path, name: str) -> dict[str, Any]:
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
    run = fedul.train(study, seed=0, **settings_of(name, count_sets(study.federation)))
    seconds = time.monotonic() - started
    classes = list(run.classifier.classes)
    order = np.argsort(classes)
    probabilities = run.classifier.predict_proba(case / "new.csv")[:, order]
    scores["fedul"] = score(truth, probabilities, sorted(classes))
    chosen = "" if run.result.choice is None else run.result.choice.chosen
    line = {"split": case.parent.name, "case": case.name, "run": name, "chosen": chosen, "seconds": round(seconds, 1)}
    return {**line, **scores}


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


def print_runs(results: list[dict[str, Any]]) -> None:
    """Print mean accuracy (AUC) of each run over all tables, and the paired difference in AUC from the default."""
    by_run: dict[str, dict[tuple[str, str], Scores]] = defaultdict(dict)
    for result in results:
        by_run[result["run"]][result["split"], result["case"]] = result["fedul"]
    print("| run | tables x splits | accuracy (AUC) | AUC less that of the default (s.e.) |\n|---|---:|---:|---:|")
    for run, scores in by_run.items():
        accuracy, auc = np.mean(list(scores.values()), axis=0)
        both = [scores[key][1] - by_run[DEFAULT][key][1] for key in scores if key in by_run[DEFAULT]]
        error = np.std(both, ddof=1) / len(both) ** 0.5 if len(both) > 1 else float("nan")
        print(f"| {run} | {len(scores)} | {accuracy:.3f} ({auc:.3f}) | {np.mean(both):+.3f} ({error:.3f}) |")


def main() -> None:
    """Score all cases of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one per case, split and run")
    parser.add_argument("--runs", nargs="+", default=[DEFAULT])
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = read_lines(options.out)
    done = {(result["split"], result["case"], result["run"]) for result in results}
    cases = [] if options.folder is None else sorted(path.parent for path in options.folder.glob("*/*/rows.csv"))
    for name, case in itertools.product(options.runs, cases):
        if (case.parent.name, case.name, name) not in done:
            append_line(options.out, run_case(case, name))
    if options.report:
        results = read_lines(options.out)
        print_table([result for result in results if result["run"] == DEFAULT])
        print()
        print_runs(results)


if __name__ == "__main__":
    main()
