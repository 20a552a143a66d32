"""On a user's own data, runs are measured on held-out rows with true classes, or on sets left out of training."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedul
from fedul.config import FileDataConfig
from fedul.errors import InputError
from fedul.experiments.compare import compare
from fedul.experiments.comparison_record import read_record
from fedul.experiments.measures import HELD_OUT_ERROR, LEFT_OUT_LOSS, TEST_ERROR, check_measurable, measure_of
from fedul.training import RunFolder
from fedul.training.left_out import assign_folds, score_left_out
from fedul.training.truth_metrics import error_at_prior

from ..callbacks import Recorder

TINY: dict[str, Any] = {"seeds": 1, "rounds": 1, "model": "linear", "threads": 1}


def write_table(folder: Path, sets: int = 4, shares: tuple[float, ...] | None = None) -> dict[str, Any]:
    """Write rows of two clients with these shares of class a in their sets; return the options to compare on them."""
    generator = np.random.default_rng(0)
    rows, priors = [["client", "set", "age", "weight", "class"]], [["client", "set", "a", "b"]]
    for client in ("north", "south"):
        for number, share in enumerate(shares or np.linspace(0.2, 0.9, sets)):
            priors.append([client, f"s{number}", f"{share:.3f}", f"{1 - share:.3f}"])
            for is_a in generator.random(20) < share:
                age, weight = generator.normal([2.0 * is_a, 0], 1)
                rows.append([client, f"s{number}", f"{age:.3f}", f"{weight:.3f}", "a" if is_a else "b"])
    for name, table in (("rows", rows), ("priors", priors)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(table)
    return {"data": str(folder / "rows.csv"), "priors": str(folder / "priors.csv"), "client_column": "client"}


def test_own_data_is_measured_by_its_true_classes_if_it_has_any(tmp_path: Path) -> None:
    options = write_table(tmp_path)
    assert measure_of(FileDataConfig(**options)) is LEFT_OUT_LOSS
    assert measure_of(FileDataConfig(**options, truth_column="class")) is HELD_OUT_ERROR
    assert measure_of(fedul.BenchmarkDataConfig()) is TEST_ERROR


def test_the_error_at_a_prior_weights_the_errors_within_classes() -> None:
    predicted, labels = np.array([0, 0, 1, 1, 0, 1]), np.array([0, 0, 0, 0, 1, 1])
    assert error_at_prior(predicted, labels, np.array([0.9, 0.1])) == pytest.approx(0.9 * 0.5 + 0.1 * 0.5)
    assert error_at_prior(predicted[:4], labels[:4], np.array([0.9, 0.1])) == 0.5  # class 1 has no row
    natural = np.bincount(labels) / len(labels)
    assert error_at_prior(predicted, labels, natural) == pytest.approx((predicted != labels).mean())


def test_the_error_is_that_of_the_delivered_classifier_on_held_out_rows(tmp_path: Path) -> None:
    options = {**write_table(tmp_path), "truth_column": "class", "held_out": 0.4}
    comparison = compare(methods="fedul", out=tmp_path / "C", seed=3, **options, **TINY)
    study = fedul.load(**options, seed=3)
    classifier = RunFolder(tmp_path / "C/runs/fedul_under_fedavg/seed-3").load_classifier()
    predicted, true = [], []
    for client in study.federation.clients:
        predicted.append(classifier.predict_proba(client.inputs[client.held_out.index]).argmax(1))
        true.append(study.true_labels[client.name][1])
    wrong = np.concatenate(predicted) != np.concatenate(true)
    expected = study.federation.test_prior @ [wrong[np.concatenate(true) == k].mean() for k in (0, 1)]
    assert_allclose(comparison.results[0].by_seed, [expected])
    assert "held-out error %" in repr(comparison)


def test_the_loss_is_that_of_rows_of_sets_left_out(tmp_path: Path) -> None:
    options = {**write_table(tmp_path), "ignore_columns": ["class"]}
    recorder = Recorder()
    comparison = compare(methods="fedul", out=tmp_path / "C", callbacks=[recorder], **options, **TINY)
    assert [title for _, _, title in recorder.started] == [f"fedul, part {part} of 3" for part in (1, 2, 3)]
    assert len(recorder.messages) == 1  # 8 sets are few
    federation = fedul.load(**options).federation
    folds, found = assign_folds(federation.clients, 0), []
    for part in range(3):
        classifier = RunFolder(tmp_path / f"C/runs/fedul_under_fedavg/seed-0/part-{part + 1}").load_classifier()
        found.extend(score_left_out(federation, [fold == part for fold in folds], classifier)[1])
    assert len(found) == 8
    assert_allclose(comparison.results[0].by_seed, [np.mean(found)], rtol=1e-6)  # sets have as many rows each


def test_parallel_runs_are_measured_as_serial_ones_are(tmp_path: Path) -> None:
    options = {**write_table(tmp_path), "ignore_columns": ["class"], **TINY}
    serial = compare(methods="fedul", callbacks=[Recorder()], **options)
    parallel = compare(methods="fedul", callbacks=[Recorder()], jobs=2, **options)
    assert [each.values for each in parallel.results] == [each.values for each in serial.results]


def test_more_rounds_are_measured_again(tmp_path: Path) -> None:
    options = {**write_table(tmp_path), "truth_column": "class", **TINY, "methods": "fedul"}
    compare(**options, out=tmp_path / "C")
    longer = compare(**{**options, "rounds": 4}, out=tmp_path / "C", resume=True)
    assert longer.results[0].values == compare(**{**options, "rounds": 4}).results[0].values


def test_the_record_has_absolute_paths_and_methods_without_labels_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(tmp_path)
    monkeypatch.chdir(tmp_path)
    data = FileDataConfig(data="rows.csv", priors="priors.csv", client_column="client", truth_column="class")
    settings = {**TINY, "choose": "off"}
    comparison = compare(data, out="C", callbacks=[Recorder()], **settings)
    record = read_record(Path("C"))
    assert record is not None
    assert record.data["data"] == str(tmp_path / "rows.csv")
    assert record.methods.split(", ") == ["fedul-combined", "fedul", "fedul-refined", "fedpl", "fedllp", "fedllp-vat"]
    assert len(comparison.results) == 6
    assert len(record.data_fingerprint) == 64


def test_labels_of_the_users_own_rows_leave_all_methods_compared(tmp_path: Path) -> None:
    options = write_table(tmp_path)
    with (tmp_path / "rows.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    labelled = [[*head, "label"], *([*row, row[-1] if i % 5 == 0 else ""] for i, row in enumerate(rows))]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows(labelled)
    settings = {"label_column": "label", "truth_column": "class", **TINY}
    results = compare(methods="fedul,soft-labels", callbacks=[Recorder()], **options, **settings).results
    assert {result.labels_used for result in results} == {32}
    assert min(results, key=lambda result: result.mean).best


def test_a_class_that_would_be_missing_without_the_sets_left_out_is_refused(tmp_path: Path) -> None:
    options = {**write_table(tmp_path, shares=(1.0, 1.0, 1.0, 0.4)), "ignore_columns": ["class"]}
    study = fedul.load(**{**options, "client_column": "client"})
    one = fedul.Federation(study.federation.clients[:1], study.federation.classes)
    with pytest.raises(InputError, match="with seed 5 a class would be missing without the sets left out"):
        check_measurable(fedul.Study(one, None), LEFT_OUT_LOSS, [5])


def test_clients_with_two_sets_have_none_to_leave_out(tmp_path: Path) -> None:
    options = {**write_table(tmp_path, sets=2), "ignore_columns": ["class"]}
    with pytest.raises(InputError, match="no client has three sets"):
        compare(methods="fedul", **options, **TINY)


def test_a_dataframe_is_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match=r"^data: expected a name or a path \(write a DataFrame to a file\), got"):
        compare(np.zeros((2, 2)))  # type: ignore[arg-type]
