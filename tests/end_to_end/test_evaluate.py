"""How good a classifier is, asked on the command line, without a label."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from ..data_files import TRAIN_HOSPITALS
from .checks import refuses
from .command import Fedul, Warm


@pytest.fixture
def files(trained_hospitals: Path) -> Path:
    return trained_hospitals


def test_the_estimate_stands_beside_the_truth_where_it_is_known_and_is_made_once(fedul: Fedul, files: Path) -> None:
    document = fedul("evaluate RUN --folds 2 --json").document
    low, high = document["interval"]
    assert low < document["estimated_accuracy"] < high
    assert low < document["accuracy"] < high
    assert document["assumption"].keys() >= {"p_value", "misfits"}
    assert document["labels_used"] == 0
    assert json.loads((files / "RUN/evaluation.json").read_text()) == document
    trained = files / "RUN/evaluation/fold-1-of-2/checkpoint/state.safetensors"
    before = trained.stat().st_mtime_ns
    shown = fedul("evaluate RUN --folds 2")
    assert "Estimated accuracy" in shown.out
    assert "Measured with labels" in shown.out
    assert trained.stat().st_mtime_ns == before  # asked again, it trains nothing again


def test_without_a_truth_column_no_accuracy_is_measured(fedul: Fedul, files: Path) -> None:
    line = TRAIN_HOSPITALS.replace("--truth-column truth", "--ignore-columns truth").replace("RUN", "BLIND")
    assert fedul(line).code == 0
    assert fedul("evaluate BLIND --folds 2 --json").document["accuracy"] is None
    assert fedul("evaluate BLIND --folds 2 --json --truth-column truth").document["accuracy"] > 0.5


def test_uncertain_priors_are_reported(fedul: Fedul, files: Path) -> None:
    header, *lines = (files / "prevalence.csv").read_text().splitlines()
    counts = []
    for line in lines:
        *names, flu, _ = line.split(",")
        counts.append(",".join([*names, str(round(40 * float(flu))), str(40 - round(40 * float(flu)))]))
    (files / "prevalence.csv").write_text("\n".join([header, *counts]) + "\n")
    assert fedul(TRAIN_HOSPITALS.replace("RUN", "UNSURE")).code == 0
    document = fedul("evaluate UNSURE --folds 2 --json").document
    assert document["prior_sensitivity"]["change"] > 0
    assert document["prior_sensitivity"]["sets"]
    assert "matters most" in fedul("evaluate UNSURE --folds 2").out


def test_what_cannot_be_evaluated_is_refused(fedul: Fedul, files: Path) -> None:
    refuses(fedul, files, "evaluate NONE", "NONE: no run in it; give the folder of a run")
    refuses(fedul, files, "federation audit NONE", "NONE: no run in it; give the folder of a run")
    refuses(fedul, files, "evaluate RUN --truth-column temperature", "'temperature' was trained on as a feature")
    assert fedul("train --data digits --method supervised --rounds 1 --out LABELLED").code == 0
    refuses(fedul, files, "evaluate LABELLED", "was trained with labels, and its error is known")
    assert fedul(TRAIN_HOSPITALS.replace("--rounds 10 --out RUN", "--rounds 1 --out NEW")).code == 0
    with (files / "patients.csv").open("a") as file:
        file.write("North,m0,39.9,2.0,yes,A,flu\n")
    refuses(fedul, files, "evaluate NEW", "its data has changed since it was trained")


def test_a_client_that_does_not_fit_is_named(fedul: Fedul, files: Path) -> None:
    header, *lines = (files / "patients.csv").read_text().splitlines()
    bent = [_hotter(line) if line.startswith("South,") else line for line in lines]
    (files / "patients.csv").write_text("\n".join([header, *bent]) + "\n")
    assert fedul(TRAIN_HOSPITALS.replace("RUN", "BENT")).code == 0
    found = fedul("evaluate BENT --folds 2 --json").document["assumption"]
    assert found["p_value"] < 0.05
    assert "South" in {misfit["client"] for misfit in found["misfits"]}


def _hotter(line: str) -> str:
    hospital, month, temperature, *rest = line.split(",")
    return ",".join([hospital, month, temperature and f"{float(temperature) + 2:.1f}", *rest])


def test_research_data_can_be_evaluated_too(warm: Warm, tmp_path: Path) -> None:
    run = partial(warm.run, at=tmp_path)
    assert run("train --data digits --clients 3 --sets-disjoint --method fedul --rounds 8 --out RUN").code == 0
    document = run("evaluate RUN --folds 4 --json").document
    assert abs(document["estimated_accuracy"] - document["accuracy"]) < 0.2
