"""Sites that differ: adjusted rows and classifiers per site, from training to prediction and export."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedul as package
from fedul.core import Matrix
from fedul.errors import InputError

from .checks import refuses
from .command import Fedul

SITES = ("north", "south", "east")
MEANS = np.array([[0.8, 0.8, 0.0], [-0.8, 0.0, 0.8], [0.0, -0.8, -0.8]])
SCALES = np.array([[1.0, 10.0, 0.5], [2.0, 1.0, 1.0], [1.0, 1.0, 3.0]])
SHIFTS = np.array([[0.0, 0.0, 0.0], [2.0, -2.0, 2.0], [-3.0, 2.0, 4.0]])
TRAIN = "train --data rows.csv --priors priors.csv --client-column site --rounds 15 --batch-size 64"


def write_table(file: Path, head: list[str], rows: Iterable[Iterable[Any]]) -> None:
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([head, *rows])


def draw(generator: np.random.Generator, site: int, prior: Matrix, rows: int) -> tuple[Matrix, Matrix]:
    """Return the classes of rows, and the rows in the units of a site."""
    labels = generator.choice(3, rows, p=prior)
    return labels, (MEANS[labels] + 0.7 * generator.normal(size=(rows, 3))) * SCALES[site] + SHIFTS[site]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with rows and priors of three sites with different units, and new rows with their classes."""
    folder, generator = tmp_path_factory.mktemp("world"), np.random.default_rng(0)
    rows, priors, new = [], [], []
    for site, name in enumerate(SITES):
        for month in range(6):
            prior = np.full(3, 0.15)
            prior[(month + site) % 3] = 0.7
            for values in draw(generator, site, prior, 150)[1]:
                cell = "" if generator.random() < 0.03 else f"{values[0]:.4f}"
                rows.append([name, month, cell, *values[1:].round(4), generator.choice(["P", "Q"])])
            priors.append([name, month, *prior])
        labels, values = draw(generator, site, np.full(3, 1 / 3), 500)
        new += [[name, *some.round(4), "P", "abc"[label]] for some, label in zip(values, labels, strict=True)]
    write_table(folder / "rows.csv", ["site", "set", "u", "v", "w", "ward"], rows)
    write_table(folder / "priors.csv", ["site", "set", "a", "b", "c"], priors)
    write_table(folder / "new.csv", ["site", "u", "v", "w", "ward"], [row[:-1] for row in new])
    write_table(folder / "unknown.csv", ["u", "v", "w", "ward"], [row[1:-1] for row in new])
    write_table(folder / "south.csv", ["u", "v", "w", "ward"], [row[1:-1] for row in new[500:1000]])
    write_table(folder / "truth.csv", ["class"], [row[-1:] for row in new])
    return folder


@pytest.fixture(scope="module")
def adjusted(world: Path) -> Path:
    """Return a folder with the run of an adjusted federation."""
    study = package.load(world / "rows.csv", world / "priors.csv", client_column="site", site_adjustment="on")
    package.train(study, rounds=15, batch_size=64, out=world / "ADJUSTED")
    return world


@pytest.fixture
def files(adjusted: Path, tmp_path: Path) -> Path:
    shutil.copytree(adjusted, tmp_path, dirs_exist_ok=True)
    return tmp_path


def column(file: Path, name: str) -> list[str]:
    with file.open(newline="") as opened:
        return [row[name] for row in csv.DictReader(opened)]


def error(folder: Path, predictions: str) -> float:
    right = np.array(column(folder / predictions, "class")) == column(folder / "truth.csv", "class")
    return float(1 - right.mean())


def bayes_error(folder: Path) -> float:
    site = np.repeat(np.arange(3), 500)
    values = np.array([[float(cell) for cell in column(folder / "new.csv", name)] for name in "uvw"]).T
    common = (values - SHIFTS[site]) / SCALES[site]
    best = ((common[:, None] - MEANS) ** 2).sum(axis=2).argmin(axis=1)
    return float(np.mean(np.array(list("abc"))[best] != column(folder / "truth.csv", "class")))


def test_adjusted_rows_of_different_units_are_classified_nearly_as_well_as_possible(fedul: Fedul, files: Path) -> None:
    trained = fedul(f"{TRAIN} --site-adjustment on --out RUN")
    assert trained.code == 0, trained.err
    assert fedul(f"{TRAIN} --out OFF").code == 0
    assert fedul("predict RUN new.csv --out on.csv").code == 0
    assert fedul("predict OFF new.csv --out off.csv").code == 0
    best = bayes_error(files)
    assert error(files, "on.csv") < best + 0.03
    assert error(files, "off.csv") > best + 0.06


def test_a_site_can_be_named_instead_of_the_client_column(fedul: Fedul, files: Path) -> None:
    fedul("predict ADJUSTED new.csv --out every.csv")
    named = fedul("predict ADJUSTED south.csv --site south --out south-classes.csv")
    assert named.code == 0
    assert "no known site" not in named.err
    for name in ("p(a)", "p(b)"):
        expected = [float(cell) for cell in column(files / "every.csv", name)[500:1000]]
        assert_allclose([float(cell) for cell in column(files / "south-classes.csv", name)], expected, atol=1e-5)


def test_rows_of_unknown_sites_get_the_mean_adjustment_with_a_note(fedul: Fedul, files: Path) -> None:
    done = fedul("predict ADJUSTED unknown.csv --out unknown-classes.csv")
    assert done.code == 0
    assert "1,500 rows are of no known site and adjusted by the mean of all sites" in done.err
    refuses(
        fedul, files, "predict ADJUSTED new.csv --site west", "site 'west': the classifier knows north, south, east"
    )


def test_python_names_the_client_of_rows(files: Path) -> None:
    pandas = pytest.importorskip("pandas")
    classifier = package.Classifier.load(files / "ADJUSTED" / "model")
    frame = pandas.read_csv(files / "new.csv")
    every = classifier.predict_proba(frame)
    south = frame[frame["site"] == "south"].drop(columns="site")
    found = classifier.predict_proba(south, client="south")
    assert_allclose(found, every[500:1000], atol=1e-6)
    with pytest.warns(UserWarning, match="500 rows are of no known site"):
        unknown = classifier.predict_proba(south)
    assert np.abs(unknown - found).max() > 0.1
    assert (classifier.for_site("south").predict(south) == classifier.predict(south, client="south")).all()


def test_a_missing_value_is_the_mean_of_its_site(files: Path) -> None:
    """Column v had no missing value in training, so it has no indicator."""
    classifier = package.Classifier.load(files / "ADJUSTED" / "model")
    write_table(
        files / "gaps.csv", ["site", "u", "v", "w", "ward"], [["south", 1, "", 2, "P"], ["south", "", 1, 2, "P"]]
    )
    whole = classifier.predict_proba(files / "gaps.csv")
    alone = classifier.for_site("south").predict_proba(files / "gaps.csv")
    assert_allclose(whole, alone, atol=1e-6)


def test_an_exported_classifier_is_the_one_of_a_named_site_or_the_mean(fedul: Fedul, files: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra fedul[onnx] is not installed")
    one = fedul("export ADJUSTED --format onnx --site south --out south.onnx")
    assert one.code == 0, one.err
    assert "mean of all sites" not in one.err
    mean = fedul("export ADJUSTED --format onnx --out mean.onnx")
    assert mean.code == 0, mean.err
    assert "rows are adjusted by the mean of all sites" in mean.err
    assert (files / "south.onnx").read_bytes() != (files / "mean.onnx").read_bytes()


def test_evaluate_uses_the_adjusted_rows(fedul: Fedul, files: Path) -> None:
    done = fedul("evaluate ADJUSTED --folds 2 --json")
    assert done.code == 0, done.err
    low, high = done.document["interval"]
    assert low < 1 - bayes_error(files) < high
    assert done.document["estimated_accuracy"] > 0.75


def test_a_run_without_sites_has_no_classifier_of_a_site(fedul: Fedul, files: Path) -> None:
    fedul(f"{TRAIN} --rounds 1 --out RUN")
    refuses(fedul, files, "predict RUN new.csv --site south", "trained with --site-adjustment or --algorithm fedbn")


def test_adjustments_of_another_classifier_are_refused(files: Path) -> None:
    model = files / "ADJUSTED" / "model"
    options = {"client_column": "site", "site_adjustment": "on", "test_prior": "a=0.8,b=0.1,c=0.1"}
    other = package.train(package.load(files / "rows.csv", files / "priors.csv", **options), rounds=1).classifier
    other.for_site("south").save(files / "one")
    assert not (files / "one" / "site_adjustments.safetensors").exists()
    other.save(files / "other")
    shutil.copy(files / "other" / "site_adjustments.safetensors", model)
    with pytest.raises(InputError, match="belongs to another classifier"):
        package.Classifier.load(model)
