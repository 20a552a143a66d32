"""A run works from any working directory, after a move of the project, and with data that is named again."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from fedul.classifier import Classifier
from fedul.errors import InputError
from fedul.evaluation.evaluate import evaluate as evaluate_run
from fedul.reporting.report import report as write_report

from .checks import is_one_sentence, refuses
from .command import Fedul, Outcome, Warm

EVALUATE = "evaluate RUN --folds 2"


@pytest.fixture
def project(hospitals: tuple[Path, Outcome], tmp_path: Path) -> Path:
    """Copy a project, with absolute paths that lead nowhere, as if it had been moved."""
    folder = Path(shutil.copytree(hospitals[0], tmp_path / "moved project"))
    forget_absolute_paths(folder / "RUN/config.json")
    return folder


def forget_absolute_paths(file: Path) -> None:
    stored = json.loads(file.read_text())
    for name in ("data", "priors"):
        stored["data"][name] = f"/was/here/{Path(stored['data'][name]).name}"
    file.write_text(json.dumps(stored))


@pytest.fixture
def fedul(warm: Warm, project: Path) -> Fedul:
    return partial(warm.run, at=project)


def test_evaluate_report_and_predict_work_from_another_working_directory(warm: Warm, trained_hospitals: Path) -> None:
    elsewhere = trained_hospitals / "elsewhere"
    elsewhere.mkdir()
    for line in ("evaluate ../RUN --folds 2", "report ../RUN", "predict ../RUN ../new.csv --out p.csv"):
        outcome = warm.run(line, elsewhere)
        assert outcome.code == 0, outcome.err
    assert warm.run("report ../RUN --json", elsewhere).document["missing"] == []


def test_a_project_that_was_moved_is_evaluated_reported_and_resumed(fedul: Fedul, project: Path) -> None:
    assert fedul(EVALUATE).code == 0
    assert fedul("report RUN --json").document["missing"] == []
    outcome = fedul("train --out RUN --resume --rounds 11 --json")
    assert outcome.code == 0, outcome.err
    assert outcome.document["rounds"] == 11
    assert json.loads((project / "RUN/config.json").read_text())["data"]["data"] == str(project / "patients.csv")


def test_data_that_is_gone_is_named_with_the_place_where_it_was(fedul: Fedul, project: Path) -> None:
    (project / "patients.csv").rename(project / "renamed.csv")
    refuses(fedul, project, EVALUATE, "RUN: its data was in /was/here/patients.csv, where nothing is now")
    refuses(fedul, project, EVALUATE, "with --data")
    (project / "prevalence.csv").rename(project / "new priors.csv")
    refuses(
        fedul, project, f"{EVALUATE} --data renamed.csv", "its class priors were in /was/here/prevalence.csv, where"
    )
    named = "--data renamed.csv --priors 'new priors.csv'"
    assert fedul(f"{EVALUATE} {named}").code == 0
    without = fedul("report RUN --json")
    assert "/was/here/patients.csv" in without.err
    assert without.document["missing"] == ["priors"]
    assert fedul(f"report RUN --json {named}").document["missing"] == []


def test_other_data_is_refused_when_it_is_named(fedul: Fedul, project: Path) -> None:
    lines = (project / "patients.csv").read_text().splitlines()
    (project / "shorter.csv").write_text("\n".join(lines[:-1]) + "\n")
    complaint = "RUN: was trained on other data than shorter.csv"
    refuses(fedul, project, f"{EVALUATE} --data shorter.csv", complaint)
    refuses(fedul, project, "report RUN --data shorter.csv", complaint)
    refuses(fedul, project, "report RUN --data gone.csv", "gone.csv: there is no such file")


def test_data_that_changed_in_its_old_place_is_found_beside_the_run(fedul: Fedul, project: Path) -> None:
    old = project / "old"
    old.mkdir()
    for name in ("patients", "prevalence"):
        shutil.copy(project / f"{name}.csv", old)
    lines = (old / "patients.csv").read_text().splitlines()
    (old / "patients.csv").write_text("\n".join(lines[:-1]) + "\n")
    file = project / "RUN/config.json"
    stored = json.loads(file.read_text())
    stored["data"] |= {"data": str(old / "patients.csv"), "priors": str(old / "prevalence.csv")}
    file.write_text(json.dumps(stored))
    assert fedul("report RUN --json").document["missing"] == ["evaluation", "check"]


def test_data_that_was_a_dataframe_can_be_named_as_a_file(fedul: Fedul, project: Path) -> None:
    file = project / "RUN/config.json"
    stored = json.loads(file.read_text())
    stored["data"] |= {"data": "<DataFrame>", "priors": "<DataFrame>"}
    file.write_text(json.dumps({**stored, "data_relative": {}}))
    refuses(
        fedul, project, EVALUATE, "its data was passed as a DataFrame, which is not stored; name a file with --data"
    )
    assert fedul("report RUN --json --data patients.csv --priors prevalence.csv").document["missing"][0] == "evaluation"


def test_python_takes_the_new_place_too(project: Path) -> None:
    (project / "patients.csv").rename(project / "renamed.csv")
    with pytest.raises(InputError, match=r"/was/here/patients\.csv"):
        evaluate_run(project / "RUN", folds=2)
    assert evaluate_run(project / "RUN", folds=2, data=project / "renamed.csv").interval
    assert write_report(project / "RUN", data=project / "renamed.csv").is_file()
    assert Classifier.load(project / "RUN/model").predict_set(project / "new.csv")


def test_a_report_is_not_replaced_by_a_poorer_one(fedul: Fedul, project: Path) -> None:
    page = project / "RUN/report.html"
    assert fedul("report RUN").code == 0  # without an evaluation
    assert fedul(EVALUATE).code == 0
    assert fedul("report RUN").code == 0  # with one
    rich = page.read_bytes()
    (project / "RUN/evaluation.json").unlink()
    refuses(fedul, project, "report RUN", "report.html: has an evaluation, which the new report would not have")
    assert fedul("report RUN --out other.html").code == 0
    assert page.read_bytes() == rich
    assert fedul("report RUN --force").code == 0
    assert page.read_bytes() != rich


def test_a_report_with_class_priors_is_not_replaced_by_one_without(fedul: Fedul, project: Path) -> None:
    assert fedul("report RUN").code == 0
    (project / "patients.csv").unlink()
    outcome = fedul("report RUN")
    assert outcome.code == 2
    assert is_one_sentence(outcome.err.splitlines(keepends=True)[-1])
    assert "has class priors, which the new report would not have; name the data with --data" in outcome.err


def test_a_file_that_is_not_a_report_is_not_replaced(fedul: Fedul, project: Path) -> None:
    (project / "mine.html").write_text("<p>mine</p>")
    refuses(fedul, project, "report RUN --out mine.html", "mine.html: exists and is not a report")


def test_next_steps_follow_the_guide_and_are_quoted_for_the_shell(warm: Warm, project: Path) -> None:
    (project / "RUN").rename(project / "my run")
    columns = "--client-column hospital --set-column month --ignore-columns truth"
    for line, hint in (
        (
            f"check --data patients.csv --priors ./prevalence.csv {columns}",
            f"next: fedul train --data patients.csv --priors ./prevalence.csv {columns} --out RUN",
        ),
        ("train --out 'my run' --resume --rounds 10", "next: fedul evaluate 'my run'"),
        ("evaluate 'my run' --folds 2", "for a page: fedul report 'my run'"),
        ("report 'my run'", "classify new rows: fedul predict 'my run' FILE --out predictions.csv"),
        ("example 'my data'", "next: fedul check --data 'my data/patients.csv' --priors 'my data/prevalence.csv'"),
    ):
        outcome = warm.run(line, project)
        assert outcome.code == 0, outcome.err
        assert hint in outcome.out
